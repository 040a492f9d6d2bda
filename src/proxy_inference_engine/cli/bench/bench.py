"""`pie bench`: how fast the running server answers one client, and several at a time."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path

from proxy_inference_engine.cli.bench.load import Load, LoadResult, measure
from proxy_inference_engine.cli.bench.plot import bars, picture
from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.cli.remote.running_server import need_server
from proxy_inference_engine.cli.terminal import paint, table
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError

_CLIENTS = "1,2,4,8"
_PICTURE = "pie-bench.svg"
_MAX_CLIENTS = 256


def bench(
    config: Config,
    *,
    model_name: str | None = None,
    clients: str = _CLIENTS,
    tokens: int = 64,
    prompt_tokens: int = 256,
    svg: str = _PICTURE,
    as_json: bool = False,
) -> int:
    """Raises StartupError without a server. The first answer, which is not counted, loads the model."""
    levels = _levels(clients)
    if not 2 <= tokens <= 1 << 20 or not 1 <= prompt_tokens <= 1 << 20:
        raise StartupError("--tokens is a number from 2, --prompt-tokens one from 1")
    server = need_server(config)
    load = Load(server.model(model_name).id, tokens, prompt_tokens)
    results, num_done = [], 0
    total = sum(level * load.num_rounds for level in levels) + load.num_rounds
    with contextlib.closing(ProgressLine(form=str)) as line:

        def advance() -> None:
            nonlocal num_done
            num_done += 1
            line.show(num_done, total)

        measure(server.connection, load, 1, advance)
        for level in levels:
            results.append(measure(server.connection, load, level, advance))
    title = f"{load.model}: {results[0].num_prompt_tokens} tokens in, {tokens} out"
    if as_json:
        print(json.dumps({"model": load.model, "results": [asdict(result) for result in results], "svg": svg}))
    else:
        print(f"{paint(title, 'bold')}\n\n{_table(results)}\n\n{bars(results)}\n")
    Path(svg).write_text(picture(results, title), encoding="utf-8")  # once all that was measured is shown
    if not as_json:
        print(f"The same as a picture: {svg}")
    return 0


def _levels(text: str) -> list[int]:
    try:
        levels = [int(word) for word in text.split(",")]
    except ValueError:
        levels = []
    if not levels or not all(1 <= level <= _MAX_CLIENTS for level in levels):
        raise StartupError(f"--clients wants numbers between commas, each from 1 to {_MAX_CLIENTS}: 1,4,16")
    return levels


def _table(results: list[LoadResult]) -> str:
    rows = [("CLIENTS", "TOKENS/S", "EACH", "FIRST TOKEN", "P95", "ANSWERS")]
    for result in results:
        rows.append(
            (
                str(result.num_clients),
                f"{result.tokens_per_second:,.1f}",
                f"{result.stream_tokens_per_second:,.1f}",
                f"{result.ttft_ms:,.0f} ms",
                f"{result.ttft_p95_ms:,.0f} ms",
                str(result.num_answers),
            )
        )
    return table(rows, numbers=frozenset(range(6)))
