"""The constant part of every chunk and answer of one request."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.output.events import Ended
from proxy_inference_engine.server.jsons import dumps


@dataclass(frozen=True, slots=True)
class Head:
    id: str
    model: str
    fingerprint: str
    created: int
    service_tier: str | None = None
    metadata: dict[str, str] | None = None

    def fields(self, kind: str) -> dict[str, Any]:
        fields = {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }
        return fields if self.service_tier is None else {**fields, "service_tier": self.service_tier}


class ChunkWriter:
    """Frames with everything but the choice serialised once."""

    def __init__(self, head: Head, kind: str, include_usage: bool) -> None:
        self._start = f'data: {dumps(head.fields(kind))[:-1]},"choices":['
        self._end = '],"usage":null}\n\n' if include_usage else "]}\n\n"
        self._usage_field = ',"usage":null' if include_usage else ""

    def chunk(self, choice: str) -> str:
        return f"{self._start}{choice}{self._end}"

    def last_chunk(self, choice: str, timings: dict[str, float]) -> str:
        """The chunk in which the last choice ends."""
        return f'{self._start}{choice}],"timings":{dumps(timings)}{self._usage_field}}}\n\n'

    def usage_chunk(self, usage: dict[str, Any]) -> str:
        return f'{self._start}],"usage":{dumps(usage)}}}\n\n'


def ending(ended: Ended, hidden_stops: Container[str] = ()) -> dict[str, str]:
    """How a choice ended; a stop string is named when the client gave it."""
    fields: dict[str, str] = {"finish_reason": ended.reason}
    if ended.stop_str is not None and ended.stop_str not in hidden_stops:
        fields["stop_str"] = ended.stop_str
    return fields
