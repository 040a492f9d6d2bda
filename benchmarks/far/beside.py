"""The real vLLM through our front end and through its own, in turns on the same engine."""

import contextlib
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.far.limit import FrontEnd
from benchmarks.far.load import Result, chat_body, run
from tests import vllm

_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
_FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "schema": _SCHEMA, "strict": True}}
# The grammar that we send. Left to itself, vLLM lets white space stand anywhere: other answers, of other lengths.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_SAME = {"structured_outputs": {"json": {"x-guidance": _SPACING, **_SCHEMA}}}
_JSON = {"response_format": _FORMAT}


class Place(NamedTuple):
    name: str
    port: int
    model: str


@contextlib.contextmanager
def engine(folder: Path, url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with vllm.running(folder, folder.parent / "vllm.log", "--enable-scale-out") as process:
        yield process.url


def beside(counts: list[int], num_tokens: int, num_rounds: int, url: str | None) -> None:
    with tempfile.TemporaryDirectory() as work:
        folder = vllm.convert(Path(work) / "smollm2-135m-instruct")
        with engine(folder, url) as there:
            port = vllm.free_port()
            front = FrontEnd(there, folder, port)
            ours = Place("ours", port, "default")
            own = Place("vLLM's own", int(there.rpartition(":")[2]), vllm.NAME)
            for place in (ours, own):  # what is made at the first request
                measure(place, 2, 4, {}, "warm")
            for count in counts:
                compare("text", (ours, own), count, num_tokens, num_rounds, ({"ignore_eos": True},) * 2)
                compare("JSON schema", (ours, own), count, num_tokens, num_rounds, (_JSON, _JSON))
                compare("same JSON", (ours, own), count, num_tokens, num_rounds, (_JSON, _SAME))
            print(json.dumps(front.end()))


def compare(
    title: str,
    places: tuple[Place, Place],
    count: int,
    num_tokens: int,
    num_rounds: int,
    more: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    """Round after round, so that what disturbs the machine disturbs both. `more`: what each is asked beside."""
    found: dict[str, list[Result]] = {place.name: [] for place in places}
    for number in range(num_rounds):
        turns = list(zip(places, more, strict=True))
        for place, fields in turns if number % 2 == 0 else reversed(turns):
            found[place.name].append(measure(place, count, num_tokens, fields, f"{title} {number}"))
    speeds = {name: statistics.median(each.tokens_per_second for each in results) for name, results in found.items()}
    firsts = {name: statistics.median(each.first_median for each in results) for name, results in found.items()}
    ours, own = speeds.values()
    lengths = [sum(each.num_tokens for each in results) / (count * num_rounds) for results in found.values()]
    print(
        f"{count:3} streams, {title:11}: ours {ours:7.1f} tokens/s, vLLM's own {own:7.1f}, ratio {ours / own:.3f}; "
        f"first token {firsts['ours'] * 1000:.0f} and {firsts[places[1].name] * 1000:.0f} ms; "
        f"answers of {lengths[0]:.0f} and {lengths[1]:.0f} tokens",
        flush=True,
    )


def measure(place: Place, count: int, num_tokens: int, more: dict[str, Any], salt: str) -> Result:
    """Every stream has a prompt of its own, the same at both places: their prefix caches are apart (`cache_salt`)."""
    prompts = [f"{salt} {number}: describe a person." for number in range(count)]
    bodies = [chat_body(prompt, num_tokens, place.model, temperature=0, **more) for prompt in prompts]
    return run(place.port, bodies)
