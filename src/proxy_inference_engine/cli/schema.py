"""`pie schema`: whether a JSON Schema can be enforced, why not, what it costs, and what its grammar lets through."""

import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proxy_inference_engine.cli.terminal import fitted, paint
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.load import load_words
from proxy_inference_engine.served.family import fit_family
from proxy_inference_engine.state_machine.machine import MachineBuilder, choose_spacing
from proxy_inference_engine.state_machine.schema_report import Compilation, Trial, Walk, advise, spread

_CONTEXT_CHARS = 40


def schema(config: Config, *, path: str | None = None, instances: Sequence[str] = (), bulk: str | None = None) -> int:
    """0 when the schema can be enforced and every instance passes; in bulk always, when the file can be read."""
    if (path is None) == (bulk is None):
        raise StartupError("give a file with a schema, or --bulk with a file of lines: pie schema SCHEMA.json")
    trial = Trial(_builder(config))
    if bulk is not None:
        return _bulk(trial, Path(bulk))
    assert path is not None
    return _one(trial, path, instances)


def _builder(config: Config) -> MachineBuilder:
    words = load_words(config)
    own = words.chat_template, words.architecture, words.name
    family = fit_family(config, words.tokenizer, *own, tool_template=words.tool_template).format
    spacing = choose_spacing(config.json_spacing, spaces_json=words.profile.spaces_json)
    return MachineBuilder(family, words.tokenizer, spacing=spacing)


def _read(path: str) -> Any:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{path}: not JSON: {error}") from None


# One schema, for people


def _one(trial: Trial, path: str, instances: Sequence[str]) -> int:
    document = _read(path)
    found = trial.compile(document)
    if found.machine is None:
        _print_refusal(trial, path, document, found)
        return 1
    print(f"{path}: can be enforced. Compiled in {found.compile_ms:.1f} ms.")
    walks = [(name, trial.walk(found.machine, _read(name))) for name in instances]
    for name, walk in walks:
        print(f"  {name}: {_describe(walk)}")
    if walks:
        masks = spread([each for _, walk in walks for each in walk.mask_us])
        print(f"  a mask takes {masks['p50']:.0f} µs (p50), {masks['p99']:.0f} µs (p99), {masks['max']:.0f} µs at most")
    return 0 if all(walk.is_accepted for _, walk in walks) else 1


def _print_refusal(trial: Trial, path: str, document: Any, found: Compilation) -> None:
    """Why, what to write instead, and what would be left of it with `strict: false`."""
    lenient = trial.compile(document, is_strict=False).machine
    print(f"{path}: cannot be enforced.\n  {fitted(str(found.error), 2)}")
    advice = advise(found.place, can_relax=lenient is not None)
    if advice is not None:
        print(f"  {paint('→', 'yellow')} {fitted(advice, 4)}")
    if lenient is not None:
        print("  " + fitted(f"With strict: false it is taken, without: {', '.join(lenient.relaxed)}", 2))


def _describe(walk: Walk) -> str:
    if walk.is_accepted:
        return f"accepted; {walk.num_tokens} tokens, {walk.num_forced} of them forced"
    at = walk.num_chars_accepted
    before, after = walk.text[max(0, at - _CONTEXT_CHARS) : at], walk.text[at : at + _CONTEXT_CHARS]
    return f"refused at character {at}: {before} ⟦here⟧ {after}"


# Many schemas, for programs


def _bulk(trial: Trial, path: Path) -> int:
    summary: Counter[str] = Counter()
    compile_ms: list[float] = []
    mask_us: list[float] = []
    show = sys.stderr.isatty()
    for number, line in enumerate(_lines(path), start=1):
        result, walks = _result(trial, line)
        compile_ms.append(result["compile_ms"])
        mask_us += [each for walk in walks for each in walk.mask_us]
        summary += _verdict(line, result)
        print(json.dumps(result))
        if show:
            print(f"\r{number} schemas, {summary['passed']} passed", end="", file=sys.stderr, flush=True)
    if show:
        print(file=sys.stderr)
    counts = {
        key: summary[key] for key in ("schemas", "compiled", "passed", "refused_valid", "accepted_invalid", "instances")
    }
    print(json.dumps({"summary": {**counts, "compile_ms": spread(compile_ms), "mask_us": spread(mask_us)}}))
    return 0


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        try:
            for number, text in enumerate(file, start=1):
                if text.strip():
                    yield _line(text, f"{path}, line {number}")
        except (EOFError, zlib.error) as error:
            raise StartupError(f"{path}: {error}") from None


def _line(text: str, where: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
        tests = [{"valid": bool(test["valid"]), "data": test["data"]} for test in line["tests"]]
        return {"name": line["name"], "schema": line["schema"], "tests": tests}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StartupError(f"{where}: no name, schema and tests: {error}") from None


def _result(trial: Trial, line: dict[str, Any]) -> tuple[dict[str, Any], list[Walk]]:
    """What is printed for a line: whether each instance was accepted, whatever it should have been.

    To the letter, as with `open_objects`: a schema means no order of properties.
    """
    found = trial.compile(line["schema"], any_order=True)
    walks = [] if found.machine is None else [trial.walk(found.machine, test["data"]) for test in line["tests"]]
    result = {
        "name": line["name"],
        "compiled": found.machine is not None,
        "error": found.error,
        "results": [walk.is_accepted for walk in walks],
        "compile_ms": round(found.compile_ms, 3),
        "mask_us": spread([each for walk in walks for each in walk.mask_us]),
    }
    return result, walks


def _verdict(line: dict[str, Any], result: dict[str, Any]) -> Counter[str]:
    wanted = [test["valid"] for test in line["tests"]]
    pairs = list(zip(wanted, result["results"], strict=False))
    refused = any(is_valid and not is_accepted for is_valid, is_accepted in pairs)
    accepted = any(is_accepted and not is_valid for is_valid, is_accepted in pairs)
    return Counter(
        schemas=1,
        compiled=int(result["compiled"]),
        passed=int(result["compiled"] and not refused and not accepted),
        refused_valid=int(refused),
        accepted_invalid=int(accepted),
        instances=len(pairs),
    )
