"""Two models that answer at once in one server: how much each gets done, beside what it does alone.

`python -m benchmarks.two_models`: the bundled model twice, as two models of a pool. In turn the first alone, the second
alone, both at once, and both while the second reads long prompts; several rounds, so that what else the machine does
hits all alike. A share of 50 % each is fair; what starves has less.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from proxy_inference_engine.config import Config
from proxy_inference_engine.models.watcher import Nobody
from proxy_inference_engine.pool.entry import PoolEntry
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.served.ask import Ask, LimitWishes, RawPrompt
from proxy_inference_engine.served.model import ServedModel, Threads
from proxy_inference_engine.server.app import image_loader

_BUDGET = 8 << 30
_LONG = "The quick brown fox jumps over the lazy dog. " * 120
_STEP_S = 0.05


class Talker:
    """Several streams of one model, each beginning anew when it is over; counts tokens and the longest silence."""

    def __init__(self, model: ServedModel, num_streams: int, prompt: Callable[[int], str]) -> None:
        self._model = model
        self._num_streams = num_streams
        self._prompt = prompt
        self._number = 0
        self.num_tokens = 0
        self.longest_s = 0.0

    async def talk(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(self._streams() for _ in range(self._num_streams)))

    async def _streams(self) -> None:
        last = time.monotonic()
        while True:
            self._number += 1
            prompt = RawPrompt(self._prompt(self._number))
            limits = LimitWishes(max_tokens=64, ignore_eos=True)
            ask = Ask(f"{self._model.id}-{time.monotonic_ns()}", self._model.id, prompt, limits=limits)
            stream, before = await self._model.answer(ask), 0
            try:
                async for _ in stream.steps():
                    now = time.monotonic()
                    self.longest_s, last = max(self.longest_s, now - last), now
                    self.num_tokens += stream.num_tokens - before
                    before = stream.num_tokens
            finally:
                stream.cancel()


async def measure(models: Sequence[ServedModel], rounds: int, seconds: float) -> None:
    cases = {
        "first alone": ((0, _short),),
        "second alone": ((1, _short),),
        "both": ((0, _short), (1, _short)),
        "both, the second with long prompts": ((0, _short), (1, _long)),
    }
    found: dict[str, list[list[Talker]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, parts in cases.items():
            talkers = [Talker(models[index], 4, prompt) for index, prompt in parts]
            await asyncio.gather(*(talker.talk(seconds) for talker in talkers))
            found[name].append(talkers)
            await asyncio.sleep(_STEP_S)
    print("| | tokens/s of the first | of the second | longest silence of the first |\n|---|---|---|---|")
    for name, parts in cases.items():
        rates = {0: "", 1: ""}
        for place, (index, _) in enumerate(parts):
            rate = statistics.median(talkers[place].num_tokens / seconds for talkers in found[name])
            rates[index] = f"{rate:.1f}"
        silence = statistics.median(talkers[0].longest_s for talkers in found[name])
        print(f"| {name} | {rates[0]} | {rates[1]} | {silence * 1000:.0f} ms |")


def _short(number: int) -> str:
    return f"Story {number}: once upon a time"


def _long(number: int) -> str:
    return f"{number} {_LONG}"


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_models")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--threads", type=int, help="of each model; unset: the physical cores")
    given = parser.parse_args()
    loader = EngineLoader(_BUDGET, Threads(), image_loader)
    config = Config(cache_memory=64 << 20, context=2048, threads=given.threads)
    entries = [PoolEntry(name, config) for name in ("first", "second")]
    models = [await loader.load(entry, Nobody()) for entry in entries]
    try:
        await measure(models, given.rounds, given.seconds)
    finally:
        for model in models:
            await loader.unload(model)


if __name__ == "__main__":
    asyncio.run(main())
