"""Our server before a fake far engine: tokens a second, how late its event loop is, and what a token costs."""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.far.load import Result, chat_body, run
from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer
from tests.vllm import free_port

_IDS = (270, 460)  # tokens of several letters
_RAMP_S = 5.0  # in which the streams begin, and which is not measured


def ramp(gap_ms: float) -> float:
    """Answers that come at once are over before the next begins: then all are asked for in the same moment."""
    return _RAMP_S if gap_ms else 0.0


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
    process = subprocess.Popen([*command, "--ids", *map(str, _IDS)])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


class FrontEnd:
    """Our server in a process of its own; it tells what it saw when it ends."""

    def __init__(self, url: str, folder: Path, port: int) -> None:
        command = [sys.executable, "-m", "benchmarks.far.front", url, str(folder), str(port)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != "ready":
            sys.exit("the front end did not start")

    def end(self) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        said: dict[str, Any] = json.loads(self._process.stdout.read())
        self._process.wait()
        return said


def limit(num_streams: int, num_tokens: int, gap_ms: float, num_processes: int) -> Result:
    with words() as folder, fake_engine(gap_ms) as url:
        port = free_port()
        fronts = [FrontEnd(url, folder, port) for _ in range(num_processes)]
        bodies = [chat_body(f"Hello {number}", num_tokens) for number in range(num_streams)]
        result = run(port, bodies, ramp_s=ramp(gap_ms))
        ends = [front.end() for front in fronts]
    late_p50, late_p99 = (max(end[name] for end in ends) * 1000 for name in ("lag_p50", "lag_p99"))
    processor_s = sum(end["processor_s"] for end in ends)
    speed = result.steady if gap_ms else result.tokens_per_second
    offered = num_streams * 1000 / gap_ms if gap_ms else float("inf")
    print(
        f"{num_streams} streams, {num_processes} front end(s), {offered:,.0f} tokens/s offered: "
        f"{speed:,.0f} tokens/s, event loop late p50 {late_p50:.1f} ms, "
        f"p99 {late_p99:.1f} ms, first token p50 {result.first_median * 1000:.0f} ms, "
        f"{result.num_tokens / processor_s:,.0f} tokens per second of processor, {result.num_failed} failed",
        flush=True,
    )
    return result
