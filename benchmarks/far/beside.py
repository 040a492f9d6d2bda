"""The real vLLM through our front end and through its own, in turns on the same engine.

Where many streams begin in one moment, their first tokens tell which of them the engine happened to take into which of
its long steps. Begun one after the other (`apart_s`), they tell how long a request takes to the engine and back.
"""

import contextlib
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import product
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


class Asked(NamedTuple):
    """The same of both: what is asked beside the prompt, of ours and of vLLM's own."""

    title: str
    ours: dict[str, Any]
    own: dict[str, Any]


_KINDS = (
    Asked("text", {"ignore_eos": True}, {"ignore_eos": True}),
    Asked("JSON schema", _JSON, _JSON),
    Asked("the same grammar", _JSON, _SAME),
)
Pairs = list[tuple[Result, Result]]  # ours and vLLM's own, a round each


class Plan(NamedTuple):
    counts: list[int]  # of streams, one by one
    num_tokens: int
    num_rounds: int  # at most
    minutes: float  # in which no other round begins
    apart_s: float  # between the beginnings of two streams


def beside(plan: Plan, url: str | None) -> None:
    deadline = time.monotonic() + plan.minutes * 60
    with tempfile.TemporaryDirectory() as work:
        folder = vllm.convert(Path(work) / "smollm2-135m-instruct")
        with engine(folder, url) as there:
            port = vllm.free_port()
            front = FrontEnd(there, folder, port)
            ours = Place("ours", port, "default")
            own = Place("vLLM's own", int(there.rpartition(":")[2]), vllm.NAME)
            began = time.monotonic()
            # What is made at the first request, and at the first so many.
            for count, asked in product(plan.counts, _KINDS):
                for place, fields in ((ours, asked.ours), (own, asked.own)):
                    measure(place, count, 4, fields, "warm", 0.0)
            found = take_turns((ours, own), plan, deadline)
            load = front.end(began, time.monotonic())
    print_table(found)
    print(f"\nevent loop late p99 {load.late_p99 * 1000:.1f} ms, {load.processors:.2f} processors")


def take_turns(places: tuple[Place, Place], plan: Plan, deadline: float) -> dict[tuple[int, str], Pairs]:
    """Round after round, so that what disturbs the machine disturbs everybody. None begins that would be too long."""
    found: dict[tuple[int, str], Pairs] = {(count, asked.title): [] for count in plan.counts for asked in _KINDS}
    longest = 0.0
    for number in range(plan.num_rounds):
        began = time.monotonic()
        if number and began + longest > deadline:
            break
        for count in plan.counts:
            for asked in _KINDS:
                salt = f"{asked.title} {number}"
                turns = [(places[0], asked.ours), (places[1], asked.own)]
                order = (0, 1) if number % 2 == 0 else (1, 0)
                made = {
                    each: measure(turns[each][0], count, plan.num_tokens, turns[each][1], salt, plan.apart_s)
                    for each in order
                }
                found[count, asked.title].append((made[0], made[1]))
                show(count, asked.title, *found[count, asked.title][-1])
        longest = max(longest, time.monotonic() - began)
    return found


def show(count: int, title: str, ours: Result, own: Result) -> None:
    speeds = f"{ours.tokens_per_second:.1f} and {own.tokens_per_second:.1f} tokens/s"
    firsts = f"first token {ours.first_mean * 1000:.0f} and {own.first_mean * 1000:.0f} ms"
    print(f"{count} streams, {title}: ours and vLLM's own {speeds}, {firsts}", flush=True)


def print_table(found: dict[tuple[int, str], Pairs]) -> None:
    """Medians of the rounds; a ratio and a difference are those of one round, the median of these.

    The first token of a round is the mean of its streams.
    """
    num_rounds = min(map(len, found.values()))
    print("\n| streams | asked | tokens/s | vLLM's own | ratio | of answers/s | first token | vLLM's own | later by |")
    print("|---|---|---|---|---|---|---|---|---|")
    for (count, title), pairs in found.items():
        speeds = [statistics.median(pair[place].tokens_per_second for pair in pairs) for place in (0, 1)]
        firsts = [statistics.median(pair[place].first_mean for pair in pairs) * 1000 for place in (0, 1)]
        ratio = statistics.median(ours.tokens_per_second / own.tokens_per_second for ours, own in pairs)
        # Answers are of other lengths where the grammars are not the same.
        sooner = statistics.median(own.seconds / ours.seconds for ours, own in pairs)
        later = statistics.median(ours.first_mean - own.first_mean for ours, own in pairs) * 1000
        lengths = [sum(pair[place].num_tokens for pair in pairs) / len(pairs) / count for place in (0, 1)]
        print(
            f"| {count} | {title}, answers of {lengths[0]:.0f} and {lengths[1]:.0f} tokens | {speeds[0]:,.0f} "
            f"| {speeds[1]:,.0f} | {ratio:.3f} | {sooner:.3f} "
            f"| {firsts[0]:.0f} ms | {firsts[1]:.0f} ms | {later:.1f} ms |"
        )
    failed = sum(each.num_failed for pairs in found.values() for pair in pairs for each in pair)
    print(f"\n{num_rounds} round(s), {failed} failed")


def measure(place: Place, count: int, num_tokens: int, more: dict[str, Any], salt: str, apart_s: float) -> Result:
    """Every stream has a prompt of its own, the same at both places: their prefix caches are apart (`cache_salt`)."""
    prompts = [f"{salt} {number}: describe a person." for number in range(count)]
    bodies = [chat_body(prompt, num_tokens, place.model, temperature=0, **more) for prompt in prompts]
    return run(place.port, bodies, ramp_s=apart_s * count)
