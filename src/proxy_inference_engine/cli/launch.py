"""`pie launch claude|codex|opencode`: the client's settings for this server, shown, or written where there are none."""

import json
import os
from pathlib import Path

from proxy_inference_engine.cli.choices import program
from proxy_inference_engine.cli.client_settings import ClientName, ClientSettings, Offer, exports, settings_for
from proxy_inference_engine.cli.remote.running_server import need_server
from proxy_inference_engine.cli.terminal import fitted, paint
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError


def launch(
    config: Config,
    *,
    client: ClientName,
    model_name: str | None = None,
    is_written: bool = False,
    is_forced: bool = False,
    as_json: bool = False,
) -> int:
    """Raises StartupError without a server, and where a file is there that nobody said to replace."""
    server = need_server(config)
    model = server.model(model_name)
    if model.context_tokens is None:
        raise StartupError(f"the context of {model.id} is not known before it is loaded: `pie run` something first")
    offer = Offer(server.url, model.id, model.context_tokens, server.connection.key is not None)
    codex_home = os.environ.get("CODEX_HOME")
    settings = settings_for(client, offer, Path.home(), Path(codex_home) if codex_home else None)
    if is_written:
        write(settings, is_forced=is_forced)
    if as_json:
        print(json.dumps(_document(settings, is_written)))
    else:
        _print(settings, client, is_written)
    return 0


def write(settings: ClientSettings, *, is_forced: bool) -> None:
    """Raises StartupError for a file that is there; with `is_forced` it is kept beside, with `.before` at its end."""
    path = settings.path
    if path.exists() and path.read_text(encoding="utf-8") == settings.content:
        return
    if path.exists() and not is_forced:
        raise StartupError(
            f"{path} is there already, and was not changed: put the settings into it by hand, or say --force, "
            f"which keeps the old one as {path.name}.before"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.replace(path.with_name(f"{path.name}.before"))
    path.write_text(settings.content, encoding="utf-8")


def _print(settings: ClientSettings, client: ClientName, is_written: bool) -> None:
    if is_written:
        print(f"{paint('Written', 'green')}: {settings.path}\n")
        print(f"  {settings.command}")
    else:
        print(f"{paint(str(settings.path), 'bold')} for {settings.title}:\n\n{settings.content}")
        print(f"`{program()} launch {client} --write` writes it. Then: {settings.command}")
        if settings.environment:
            print(f"\n{paint('Or, without a file', 'bold')}\n\n{exports(settings.environment)}\n{settings.command}")
    for note in settings.notes:
        print("\n" + paint(fitted(f"Note: {note}.", 0), "yellow"))


def _document(settings: ClientSettings, is_written: bool) -> dict[str, object]:
    return {
        "path": str(settings.path),
        "content": settings.content,
        "environment": settings.environment,
        "command": settings.command,
        "notes": list(settings.notes),
        "written": is_written,
    }
