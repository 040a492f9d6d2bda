"""What grammars cost by themselves: compiling a schema, and a mask at every token of its instances.

In this process, without a server or a model: only the vocabulary is loaded. As `pie schema` tells it.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report.samples import percentile
from benchmarks.structured.schemas import ASKED, WALKED
from proxy_inference_engine.config import Config
from proxy_inference_engine.formats import detect
from proxy_inference_engine.models.load import load_words
from proxy_inference_engine.state_machine.machine import MachineBuilder, choose_spacing
from proxy_inference_engine.state_machine.schema_report import Trial


@dataclass(frozen=True, slots=True)
class Schema:
    name: str
    schema: Any
    instances: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Costs:
    """What one set of schemas cost, over every compilation and every mask of every repetition."""

    name: str
    num_schemas: int
    num_refused: int  # that cannot be enforced: their times do not count
    num_masks: int
    compile_p50_ms: float
    compile_p99_ms: float
    slowest: str  # the schema that took longest to compile, and how long
    mask_p50_us: float
    mask_p99_us: float
    mask_max_us: float


def own_schemas() -> list[Schema]:
    return [Schema(case.name, case.schema, (case.instance,)) for case in (*ASKED, *WALKED)]


def sample_schemas(path: Path, most: int | None) -> list[Schema]:
    """Lines as `pie schema --bulk` reads them; `most` of them, from all over the file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    kept = lines if most is None else lines[:: max(1, -(-len(lines) // most))]
    return [Schema(line["name"], line["schema"], [test["data"] for test in line["tests"]]) for line in kept]


def make_builder() -> MachineBuilder:
    """A builder of grammars as the server makes it; a new one has nothing compiled yet."""
    words = load_words(Config())
    spacing = choose_spacing(None, spaces_json=words.profile.spaces_json)
    return MachineBuilder(detect(words.chat_template), words.tokenizer, spacing=spacing)


def measure_costs(name: str, schemas: Sequence[Schema], num_repeats: int) -> Costs:
    compile_ms: list[float] = []
    mask_us: list[float] = []
    slowest = (0.0, "")
    num_refused = 0
    for _ in range(num_repeats):
        trial = Trial(make_builder())
        trial.compile({"type": "null"})  # what the first compilation of all loads is no schema's cost
        for each in schemas:
            found = trial.compile(each.schema)
            if found.machine is None:
                num_refused += 1
                continue
            compile_ms.append(found.compile_ms)
            slowest = max(slowest, (found.compile_ms, each.name))
            for instance in each.instances:
                mask_us += trial.walk(found.machine, instance).mask_us
    return Costs(
        name=name,
        num_schemas=len(schemas),
        num_refused=num_refused // num_repeats,
        num_masks=len(mask_us),
        compile_p50_ms=percentile(compile_ms, 0.5),
        compile_p99_ms=percentile(compile_ms, 0.99),
        slowest=f"{slowest[1]}: {slowest[0]:.1f} ms",
        mask_p50_us=percentile(mask_us, 0.5),
        mask_p99_us=percentile(mask_us, 0.99),
        mask_max_us=max(mask_us),
    )
