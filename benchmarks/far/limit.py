"""Our server before a fake far engine: tokens a second, how late its event loop is, and what a token costs."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.far.load import Result, chat_body, run
from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer
from tests.vllm import free_port

_IDS = (270, 460)  # tokens of several letters
_RAMP_S = 5.0  # in which the streams begin
_MAX_LATE_S = 0.050
_HELD = 0.98  # of what is offered; less has fallen behind


@contextlib.contextmanager
def words() -> Iterator[Path]:
    """A model's words without a model."""
    with tempfile.TemporaryDirectory() as folder:
        write_byte_tokenizer(Path(folder))
        config = {"model_type": "llama", "max_position_embeddings": 8192, "vocab_size": NUM_TOKENS}
        (Path(folder) / "config.json").write_text(json.dumps(config))
        yield Path(folder)


@contextlib.contextmanager
def fake_engine(gap_ms: float) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.far.fake", "--port", str(port), "--gap-ms", str(gap_ms)]
    process = subprocess.Popen([*command, "--ids", *map(str, _IDS)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":  # or the front end's first look may come before it
            sys.exit("the fake engine did not start")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class Load(NamedTuple):
    """What a front end says of itself while it was loaded. Times in seconds."""

    late_p50: float
    late_p99: float
    processor_s: float
    processors: float


class FrontEnd:
    """Our server in a process of its own; it tells what it saw when it ends."""

    def __init__(self, url: str, folder: Path, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.far.front", url, str(folder), str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            sys.exit("the front end did not start")

    def end(self, began: float, ended: float) -> Load:
        """Between two moments of the monotonic clock."""
        said, _ = self._process.communicate(f"{began} {ended}")
        return Load(**json.loads(said))


class Held(NamedTuple):
    """What one front end did with so many streams."""

    num_streams: int
    offered: float  # tokens a second
    result: Result
    load: Load

    @property
    def is_held(self) -> bool:
        """Everything passed on, and in time."""
        is_whole = not self.result.num_failed and self.result.steady >= _HELD * self.offered
        return is_whole and self.load.late_p99 < _MAX_LATE_S

    def __str__(self) -> str:
        result, load = self.result, self.load
        return (
            f"{self.num_streams} streams, {self.offered:,.0f} tokens/s offered: {result.steady:,.0f} tokens/s, "
            f"event loop late p50 {load.late_p50 * 1000:.1f} ms, p99 {load.late_p99 * 1000:.1f} ms, "
            f"first token p50 {result.first_median * 1000:.0f} ms, {load.processors:.2f} processors, "
            f"{load.processor_s / result.num_tokens * 1e6:.1f} µs of processor a token, {result.num_failed} failed"
        )


def limit(rates: Sequence[int], counts: Sequence[int], seconds: float) -> None:
    """More and more tokens a second through the first number of streams, then as many streams as there may be."""
    num_streams, *more = counts
    held = [hold(num_streams, rate, seconds) for rate in rates]
    best = max((each for each in held if each.is_held), key=lambda each: each.offered, default=None)
    if best is None:
        print("no rate was held: there are no rows")
        return
    wide = [hold(count, min(rates[0], best.offered), seconds) for count in more]
    streams = max(each.num_streams for each in [best, *wide] if each.is_held)
    print("\n| one server of ours | measured |\n|---|---|")
    print(f"| `F`, tokens per second | {best.result.steady:,.0f} |")
    print(f"| `S`, streams at once, event-loop lag p99 below 50 ms | {streams:,} |")
    print(f"| event-loop lag p99 at `F`, {num_streams} streams | {best.load.late_p99 * 1000:.0f} ms |")
    print(f"| processors it uses then | {best.load.processors:.2f} |")


def hold(num_streams: int, rate: float, seconds: float) -> Held:
    """So many tokens a second, spread over the streams, for so long after all have begun."""
    gap_ms = num_streams / rate * 1000
    num_tokens = round((seconds + _RAMP_S) * 1000 / gap_ms)
    with words() as folder, fake_engine(gap_ms) as url:
        port = free_port()
        front = FrontEnd(url, folder, port)
        bodies = [chat_body(f"Hello {number}", num_tokens) for number in range(num_streams)]
        result = run(port, bodies, ramp_s=_RAMP_S)
        load = front.end(result.began, result.began + result.seconds)
    held = Held(num_streams, rate, result, load)
    print(held, flush=True)
    return held
