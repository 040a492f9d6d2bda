"""The settings with which other programs use this server: Claude Code, Codex, opencode. Text alone, nothing is written.

A key is never part of them: they name the variable that has it.
"""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ClientName = Literal["claude", "codex", "opencode"]
KEY_VARIABLE = "PIE_CLIENT_KEY"
_WANTED_TOKENS = {"claude": 32_768, "codex": 16_384, "opencode": 16_384}  # below that there is no room beside its tools
_MAX_OUTPUT = 32_000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a client has to know of the server."""

    url: str
    model: str
    context_tokens: int
    has_key: bool

    @property
    def output_tokens(self) -> int:
        """The most tokens of one answer: a client that asks for the whole context leaves none for its question."""
        return min(_MAX_OUTPUT, max(256, self.context_tokens // 4))


@dataclass(frozen=True, slots=True)
class ClientSettings:
    title: str
    path: Path  # where they belong
    content: str
    command: str  # what to type then
    environment: dict[str, str]  # what does the same without a file; a value may name a variable
    notes: tuple[str, ...]


def settings_for(client: ClientName, offer: Offer, home: Path, codex_home: Path | None = None) -> ClientSettings:
    match client:
        case "claude":
            return _claude(offer)
        case "codex":
            return _codex(offer, codex_home or home / ".codex")
        case "opencode":
            return _opencode(offer)


def _claude(offer: Offer) -> ClientSettings:
    variables = {
        "ANTHROPIC_BASE_URL": offer.url,
        "ANTHROPIC_MODEL": offer.model,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": offer.model,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": offer.model,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": offer.model,
        "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(offer.context_tokens),
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(offer.output_tokens),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }
    document: dict[str, object] = {"env": dict(variables)}
    if offer.has_key:
        document["apiKeyHelper"] = f"printenv {KEY_VARIABLE}"
    else:
        document["env"] = {**variables, "ANTHROPIC_AUTH_TOKEN": "none"}
    exported = {**variables, "ANTHROPIC_AUTH_TOKEN": f"${KEY_VARIABLE}" if offer.has_key else "none"}
    path = Path(".claude") / "settings.local.json"  # of this folder alone, and not for others' eyes
    return ClientSettings("Claude Code", path, _json(document), "claude", exported, _notes("claude", offer))


def _codex(offer: Offer, home: Path) -> ClientSettings:
    lines = [
        f"model = {json.dumps(offer.model)}",
        'model_provider = "pie"',
        f"model_context_window = {offer.context_tokens}",
        f"model_max_output_tokens = {offer.output_tokens}",
        "",
        "[model_providers.pie]",
        'name = "Proxy Inference Engine"',
        f"base_url = {json.dumps(offer.url + '/v1')}",
        'wire_api = "responses"',
    ]
    if offer.has_key:
        lines.append(f'env_key = "{KEY_VARIABLE}"')
    content = "\n".join(lines) + "\n"
    return ClientSettings("Codex", home / "config.toml", content, "codex", {}, _notes("codex", offer))


def _opencode(offer: Offer) -> ClientSettings:
    options = {"baseURL": f"{offer.url}/v1", "apiKey": f"{{env:{KEY_VARIABLE}}}" if offer.has_key else "none"}
    limit = {"context": offer.context_tokens, "output": offer.output_tokens}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "Proxy Inference Engine",
        "options": options,
        "models": {offer.model: {"name": offer.model, "limit": limit}},
    }
    document = {
        "$schema": "https://opencode.ai/config.json",
        "model": f"pie/{offer.model}",
        "provider": {"pie": provider},
    }
    path = Path("opencode.json")
    return ClientSettings("opencode", path, _json(document), "opencode", {}, _notes("opencode", offer))


def _notes(client: ClientName, offer: Offer) -> tuple[str, ...]:
    notes = []
    if offer.has_key:
        notes.append(f"export {KEY_VARIABLE}=… first: the settings name the variable, not the key")
    wanted = _WANTED_TOKENS[client]
    if offer.context_tokens < wanted:
        notes.append(
            f"{offer.model} has a context of {offer.context_tokens:,} tokens: {client} wants {wanted:,} or more, "
            "for its own instructions and tools"
        )
    return tuple(notes)


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2) + "\n"


def exports(environment: dict[str, str]) -> str:
    """Variables as a shell takes them; a value that names a variable stays one."""
    return "\n".join(
        f"export {name}={value if value.startswith('$') else shlex.quote(value)}" for name, value in environment.items()
    )
