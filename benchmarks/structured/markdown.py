"""A run of `python -m benchmarks.structured` as Markdown."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.report.markdown import MARKS, render_facts, render_settings, render_table
from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import median
from benchmarks.report.targets import OURS
from benchmarks.structured.schemas import ASKED
from benchmarks.structured.targets import PEER_KEYS, StructuredRun, ratio, verdicts


class _Line(NamedTuple):
    """One line of the table; `better` is what makes a figure good, None where it only explains others."""

    key: str
    title: str
    scale: float = 1.0
    better: str | None = None


_LINES = (
    _Line("object", "one object: end to end, ms", 1000, "less"),
    _Line("object_tokens", "one object: tokens"),
    _Line("object_chars", "one object: characters without spaces"),
    _Line("object_prompt_tokens", "one object: prompt tokens"),
    _Line("object_tokens_per_s", "one object: tokens a second, prompt included", better="more"),
    _Line("object_token", "one object: ms a token after the prompt", 1000, "less"),
    _Line("together_objects_per_s", "8 at once: objects a second", better="more"),
    _Line("together_tokens_per_s", "8 at once: tokens a second", better="more"),
    _Line("together_tokens", "8 at once: tokens an object"),
    _Line("call", "one tool call: end to end, ms", 1000, "less"),
    _Line("call_tokens", "one tool call: tokens"),
    _Line("call_chars", "one tool call: characters of its arguments without spaces"),
    _Line("call_prompt_tokens", "one tool call: prompt tokens"),
    _Line("call_tokens_per_s", "one tool call: tokens a second, prompt included", better="more"),
    _Line("call_token", "one tool call: ms a token after the prompt", 1000, "less"),
)


def write(done: StructuredRun, folder: Path) -> None:
    """`structured.json` and `structured.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    done.write(folder / "structured.json")
    (folder / "structured.md").write_text(render(done))


def render(done: StructuredRun) -> str:
    sections = [
        "# Structured output: benchmark results\n",
        render_facts(done.run),
        "## Targets\n",
        _targets(done),
        "## Side by side\n",
        _side_by_side(done),
        "## One object of each schema\n",
        _each_schema(done.run),
        "## What grammars cost\n",
        _costs(done),
        _shares(done),
        "## Servers\n",
        render_settings(done.run.servers),
    ]
    return "\n".join(section for section in sections if section)


def _targets(done: StructuredRun) -> str:
    rows = [["target", "against", "wanted", "got", ""]]
    rows += [[v.title, v.against, v.wanted, v.got, MARKS[v.is_reached]] for v in verdicts(done)]
    return render_table(rows)


def _side_by_side(done: StructuredRun) -> str:
    ours, peers = _servers(done.run)
    if ours is None:
        return "Not measured.\n"
    servers = [ours, *peers]
    rows = [["", *(server.title for server in servers), *(f"ours against {peer.key}" for peer in peers)]]
    rows.append(["weights", *(server.weights for server in servers), *("" for _ in peers)])
    for line in _LINES:
        rows.append([line.title, *(_value(server, line.key, line.scale) for server in servers)])
        rows[-1] += [_times_better(line, ours, peer) for peer in peers]
    rows.append(["answers valid for their schema", *(_valid(done, server) for server in servers), *("" for _ in peers)])
    return render_table(rows)


def _each_schema(run: Run) -> str:
    ours, peers = _servers(run)
    if ours is None:
        return "Not measured.\n"
    titles = [f"{server.key}: {figure}" for server in (ours, *peers) for figure in ("tokens", "ms")]
    rows = [["schema", *titles, *(f"ours against {peer.key}" for peer in peers), "pie: tool call, ms"]]
    for case in ASKED:
        line = _Line(f"object {case.name}", case.name, 1000, "less")
        row = [case.name]
        for server in (ours, *peers):
            row += [_value(server, f"object_tokens {case.name}"), _value(server, line.key, line.scale)]
        row += [_times_better(line, ours, peer) for peer in peers]
        rows.append([*row, _value(ours, f"call {case.name}", 1000)])
    return render_table(rows)


def _costs(done: StructuredRun) -> str:
    if not done.costs:
        return "Not measured.\n"
    rows = [
        ["schemas", "number", "refused", "compile p50, ms", "p99", "slowest", "mask p50, µs", "p99", "max", "masks"],
    ]
    for each in done.costs:
        times = [f"{each.compile_p50_ms:.2f}", f"{each.compile_p99_ms:.2f}", each.slowest]
        times += [f"{value:.0f}" for value in (each.mask_p50_us, each.mask_p99_us, each.mask_max_us)]
        rows.append([each.name, str(each.num_schemas), str(each.num_refused), *times, f"{each.num_masks:,}"])
    return render_table(rows)


def _shares(done: StructuredRun) -> str:
    rows = [["streams", "steps", "ms a step", "tokens a step and stream", "state machine", "mask p50, µs", "p99"]]
    rows += [
        [
            *(str(each.num_streams), str(each.num_steps), f"{each.step_ms:.1f}", f"{each.tokens_per_step:.1f}"),
            *(f"{each.share:.2%}", f"{each.mask_p50_us:.0f}", f"{each.mask_p99_us:.0f}"),
        ]
        for each in done.shares
    ]
    return render_table(rows) if done.shares else ""


def _servers(run: Run) -> tuple[ServerResult | None, Sequence[ServerResult]]:
    """Ours, and those it is measured against."""
    return run.server(OURS), [peer for key in PEER_KEYS if (peer := run.server(key))]


def _value(server: ServerResult, key: str, scale: float = 1.0) -> str:
    value = median(server.rounds, key)
    if value is None:
        return "–"
    return f"{value * scale:,.0f}" if value * scale >= 100 else f"{value * scale:.1f}"


def _times_better(line: _Line, ours: ServerResult, peer: ServerResult) -> str:
    if line.better is None:
        return ""
    pair = (ours, peer) if line.better == "more" else (peer, ours)
    found = ratio(pair[0], line.key, pair[1], line.key)
    return "–" if found is None else f"{found.value:.2f}×"


def _valid(done: StructuredRun, server: ServerResult) -> str:
    tally = done.tallies.get(server.key)
    if tally is None:
        return "–"
    return f"{tally.num_valid} of {tally.num_answers}" + (f" ({tally.error})" if tally.error else "")
