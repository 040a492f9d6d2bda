"""A run as Markdown: the machine, the table, the targets, what was not measured and why."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.report.chart import draw
from benchmarks.report.results import Run, ServerResult
from benchmarks.report.samples import FIGURES, Figure, median, round_medians
from benchmarks.report.targets import CONVERTED, OURS, SAME_FILE, times_better, verdicts
from benchmarks.work.quiet import LIMIT

MARKS = {True: "reached", False: "**not reached**", None: "not measured"}


def write(run: Run, folder: Path) -> None:
    """`latest.json`, `latest.md` and `latest.svg`."""
    folder.mkdir(parents=True, exist_ok=True)
    run.write(folder / "latest.json")
    (folder / "latest.md").write_text(render(run))
    (folder / "latest.svg").write_text(draw(run))


def render(run: Run) -> str:
    servers = [server for server in run.servers if server.is_measured]
    sections = [
        "# Benchmark results\n",
        render_facts(run),
        "## Side by side\n",
        _table(servers),
        "![The same as bars](latest.svg)\n",
        "## How many times better than llama.cpp's own server\n",
        _ratios(run),
        "## Targets\n",
        _targets(run),
        "## Our engine beside the forward pass\n",
        _overheads(run),
        _memory(run),
        "## Servers\n",
        render_settings(run.servers),
    ]
    return "\n".join(section for section in sections if section)


def render_facts(run: Run) -> str:
    machine = run.machine
    extensions = machine["extensions"]
    lines = [
        f"- measured {run.started}, commit {run.commit}"
        + (", **a quick run**" if run.is_quick else "")
        + ("" if run.is_complete else ", **stopped before the end**"),
        f"- {machine['processor']}, {machine['logical_cores']} logical cores"
        + (f" ({', '.join(map(str, extensions))})" if isinstance(extensions, list) and extensions else ""),
        f"- {float(str(machine['memory_bytes'])) / 1e9:.0f} GB memory, {machine['system']}, Python {machine['python']}",
        _quiet(run.others),
        "- medians of all repetitions of all rounds; in brackets the lowest and the highest round",
    ]
    return "\n".join(lines) + "\n"


def _quiet(others: Sequence[float]) -> str:
    """Whether the numbers can be trusted."""
    disturbed = [share for share in others if share > LIMIT]
    if not disturbed:
        return f"- quiet: others never used more than {LIMIT:.0%} of the processors during a measurement"
    return (
        f"- **not quiet**: others used more than {LIMIT:.0%} of the processors (up to {max(disturbed):.0%}) during "
        f"{len(disturbed)} of {len(others)} measurements"
    )


def _table(servers: Sequence[ServerResult]) -> str:
    rows = [["", *(server.title for server in servers)], ["weights", *(server.weights for server in servers)]]
    rows += [[f"{figure.title}, {figure.unit}", *(_cell(figure, server) for server in servers)] for figure in FIGURES]
    return render_table(rows)


def _cell(figure: Figure, server: ServerResult) -> str:
    value = median(server.rounds, figure.key)
    if value is None:
        return "–"
    rounds = round_medians(server.rounds, figure.key)
    if len(rounds) < 2:
        return figure.format(value)
    return f"{figure.format(value)} ({figure.format(min(rounds))}–{figure.format(max(rounds))})"


def _ratios(run: Run) -> str:
    peers = [peer for key in (*SAME_FILE, *CONVERTED) if (peer := run.server(key))]
    if not peers or run.server(OURS) is None:
        return "Not measured.\n"
    rows = [["", *(peer.title for peer in peers)]]
    for figure in FIGURES:
        ratios = [times_better(run, figure.key, peer) for peer in peers]
        rows.append([figure.title, *(f"{ratio[0]:.2f}×" if ratio else "–" for ratio in ratios)])
    return render_table(rows)


def _targets(run: Run) -> str:
    rows = [["target", "against", "wanted", "got", ""]]
    rows += [[v.title, v.against, v.wanted, v.got, MARKS[v.is_reached]] for v in verdicts(run)]
    return render_table(rows)


def _overheads(run: Run) -> str:
    rows = [["sampling", "streams", "ms a step", "outside the forward pass", "of that inside steps"]]
    rows += [
        [o.sampling, str(o.num_streams), f"{o.step_ms:.1f}", f"{o.loop_share:.1%}", f"{o.step_share:.1%}"]
        for o in run.overheads
    ]
    return render_table(rows) if run.overheads else "Not measured.\n"


def _memory(run: Run) -> str:
    rows = [["resident MB", "weights", "KV", "cache held", "cache budget"]]
    for memory in run.memory:
        sizes = (
            memory.resident_bytes,
            memory.weight_bytes,
            memory.kv_bytes,
            memory.cache_bytes,
            memory.max_cache_bytes,
        )
        rows.append(["–" if size is None else f"{size / 1e6:,.0f}" for size in sizes])
    return render_table(rows) if run.memory else ""


def render_settings(servers: Iterable[ServerResult]) -> str:
    rows = [["server", "versions", "settings", "not measured"]]
    for server in servers:
        failures = [f"{name}: {reason}" for name, reason in server.failures.items()]
        reasons = "; ".join([*([server.reason] if server.reason else []), *failures])
        rows.append([server.title, server.versions, f"`{server.settings}`", reasons])
    return render_table(rows)


def render_table(rows: Sequence[Sequence[str]]) -> str:
    head, *rest = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    lines += [f"| {' | '.join(row)} |" for row in rest]
    return "\n".join(lines) + "\n"
