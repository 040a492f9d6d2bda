"""Clients that ask a server at the same time, and when what came: the measuring part of `pie bench`."""

import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from proxy_inference_engine.cli.remote.connection import ServerConnection

_PATH = "/v1/chat/completions"
_WORDS = (
    "river stone window garden market letter winter bridge candle forest paper silver morning engine harbor valley "
    "mirror thunder basket copper island meadow lantern orchard saddle timber violin wagon"
)
_TOKENS_PER_WORD = 1.3  # of the words above, in most vocabularies; what came of it is measured


@dataclass(frozen=True, slots=True)
class Load:
    """What each client asks, and how often."""

    model: str
    num_tokens: int
    num_prompt_tokens: int
    num_rounds: int = 2


@dataclass(frozen=True, slots=True)
class AnswerTimes:
    """When one answer began and ended, in seconds since the clients of its load were let go."""

    began: float
    first: float
    ended: float
    num_tokens: int
    num_prompt_tokens: int


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What was measured with so many clients at a time."""

    num_clients: int
    tokens_per_second: float  # of all together
    stream_tokens_per_second: float  # of one of them, after its first token
    ttft_ms: float  # until the first token: half were faster
    ttft_p95_ms: float
    num_prompt_tokens: int  # of one prompt, as the server counted them
    num_answers: int


def body_of(load: Load, seed: int) -> dict[str, Any]:
    """A prompt that nobody had before, so that no cache knows more of it than its first words."""
    words = random.Random(seed).choices(_WORDS.split(), k=max(1, int(load.num_prompt_tokens / _TOKENS_PER_WORD)))
    return {
        "model": load.model,
        "messages": [{"role": "user", "content": f"{seed}: {' '.join(words)}. Tell a long story with these words."}],
        "max_tokens": load.num_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def measure(
    connection: ServerConnection, load: Load, num_clients: int, on_answer: Callable[[], None] = lambda: None
) -> LoadResult:
    """Raises what the first client that failed raised."""
    times: list[AnswerTimes] = []
    failures: list[BaseException] = []
    gate = threading.Barrier(num_clients + 1)
    is_over = threading.Event()
    first_seed = random.SystemRandom().randrange(1 << 30)

    def ask(client: int) -> None:
        gate.wait()
        try:
            for number in range(load.num_rounds):
                if is_over.is_set():
                    return
                times.append(_time(connection, body_of(load, first_seed + client * load.num_rounds + number)))
                on_answer()
        except BaseException as error:
            failures.append(error)
            is_over.set()

    threads = [threading.Thread(target=ask, args=(client,), daemon=True) for client in range(num_clients)]
    for thread in threads:
        thread.start()
    gate.wait()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)  # so that Ctrl-C is heard
    finally:
        is_over.set()
    if failures:
        raise failures[0]
    return summarise(num_clients, times)


def _time(connection: ServerConnection, body: Mapping[str, Any]) -> AnswerTimes:
    began = time.monotonic()
    first, usage = 0.0, {"completion_tokens": 0, "prompt_tokens": 0}
    with closing(connection.events(_PATH, body)) as events:
        for chunk in events:
            deltas = [choice["delta"] for choice in chunk.get("choices") or ()]
            if not first and any(delta.get("content") or delta.get("reasoning_content") for delta in deltas):
                first = time.monotonic()
            usage = chunk.get("usage") or usage
    ended = time.monotonic()
    return AnswerTimes(began, first or ended, ended, usage["completion_tokens"], usage["prompt_tokens"])


def summarise(num_clients: int, times: Sequence[AnswerTimes]) -> LoadResult:
    waits = sorted((each.first - each.began) * 1000 for each in times)
    span = max(each.ended for each in times) - min(each.began for each in times)
    streams = [(each.num_tokens - 1) / (each.ended - each.first) for each in times if each.ended > each.first]
    return LoadResult(
        num_clients=num_clients,
        tokens_per_second=sum(each.num_tokens for each in times) / span if span else 0.0,
        stream_tokens_per_second=statistics.median(streams) if streams else 0.0,
        ttft_ms=statistics.median(waits),
        ttft_p95_ms=waits[min(len(waits) - 1, int(len(waits) * 0.95))],
        num_prompt_tokens=round(statistics.mean(each.num_prompt_tokens for each in times)),
        num_answers=len(times),
    )
