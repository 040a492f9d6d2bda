"""`pie show NAME`: what the files of a model say of it, and what it would take here. Its weights are not loaded."""

import json
from dataclasses import asdict
from typing import Any

from proxy_inference_engine.cli.shelf.inventory import weight_paths
from proxy_inference_engine.cli.terminal import fitted, paint
from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.models.fit import fit
from proxy_inference_engine.models.load import load_words
from proxy_inference_engine.models.resolve import find_mmproj, resolve
from proxy_inference_engine.served.family import fit_family


def show(config: Config, *, model: str | None = None, as_json: bool = False) -> int:
    """Raises StartupError for what is not here."""
    config = config.model_copy(update={"model": model or config.model})
    facts = _facts(config)
    if as_json:
        print(json.dumps(facts))
        return 0
    print(paint(facts["name"], "bold"))
    for title, text in _lines(facts):
        print(f"  {title:<14}{fitted(text, 16)}")
    return 0


def _facts(config: Config) -> dict[str, Any]:
    file = resolve(config.model, config.cache_dir)
    words, found = load_words(config), fit(config)
    own = words.chat_template, words.architecture, words.name
    family = fit_family(config, words.tokenizer, *own, tool_template=words.tool_template).format
    mmproj = find_mmproj(config.mmproj, file) if file.kind == "gguf" else None
    return {
        "name": file.name,
        "path": str(file.path),
        "kind": file.kind,
        "bytes": sum(path.stat().st_size for path in weight_paths(file)),
        "architecture": words.architecture,
        "context_tokens": found.known_context,
        "vocabulary": words.tokenizer.num_tokens,
        "format": family.name,
        "has_chat_template": words.chat_template is not None,
        "reasons": family.thinking is not None or family.channels is not None,
        "takes_images": mmproj is not None if file.kind == "gguf" else None,
        "fit": asdict(found),
    }


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    found = facts["fit"]
    template = "" if facts["has_chat_template"] else ", for want of a chat template"
    lines = [
        ("file", f"{facts['path']} ({format_size(facts['bytes'])}, {facts['kind']})"),
        ("architecture", facts["architecture"] or "unknown"),
        ("context", f"{facts['context_tokens']:,} tokens"),
        ("vocabulary", f"{facts['vocabulary']:,} tokens"),
        ("format", f"{facts['format']}{template}"),
        ("reasoning", "yes" if facts["reasons"] else "no"),
        ("here", found["why"] if found["fits"] else f"does not fit: {found['why']}"),
    ]
    if facts["takes_images"] is not None:
        lines.insert(6, ("images", "yes, with the mmproj file beside it" if facts["takes_images"] else "no"))
    return lines
