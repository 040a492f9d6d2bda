"""The other front ends on the same port: whoever is asked for metrics shows those of all.

Each leaves its own in a folder once a second. Who watches them removes what one left that has died.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

LABEL = "process"


class Neighbours:
    """`spread` asks the others to read keys and configuration again."""

    def __init__(self, folder: Path, number: int, spread: Callable[[], None]) -> None:
        self._folder = folder
        self._number = str(number)
        self.spread = spread

    def leave(self, metrics: bytes) -> None:
        """Whole or not at all, for those who read it meanwhile. Does nothing where the folder is gone."""
        written = self._folder / f"{self._number}.new"
        with suppress(OSError):
            written.write_bytes(metrics)
            written.replace(self._folder / self._number)

    def together(self, metrics: bytes) -> bytes:
        """Our own as they are now, and the others' as they left them, each with the number of its process."""
        found = {self._number: metrics.decode()}
        with suppress(OSError):
            for file in sorted(self._folder.iterdir()):
                if file.name.isdigit() and file.name != self._number:
                    with suppress(OSError):  # it has just died
                        found[file.name] = file.read_text()
        registry = CollectorRegistry()
        registry.register(_Merged(found))
        return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterable[Metric]:
        families: dict[str, Metric] = {}
        for number, text in self._texts.items():
            for family in text_string_to_metric_families(text):
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.add_sample(sample.name, {LABEL: number, **sample.labels}, sample.value)
        return families.values()
