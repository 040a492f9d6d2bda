"""What a person gives to a question beside its text: a schema, images, settings. Files become what the API takes."""

import base64
import json
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.python.options import check_names

_MAX_IMAGE_BYTES = 64 << 20  # more is a mistake, not an image; the model's side has its own limit


def read_format(path: str) -> dict[str, Any]:
    """A file with a JSON Schema as a `response_format`. Raises StartupError and OSError."""
    try:
        schema = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StartupError(f"{path}: not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise StartupError(f"{path}: a JSON Schema is an object here")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}


def read_image(place: str) -> dict[str, Any]:
    """A file, or an address that the model's side fetches, as a part of a message. Raises StartupError and OSError."""
    if place.startswith(("http://", "https://", "data:")):
        return {"type": "image_url", "image_url": {"url": place}}
    path = Path(place).expanduser()
    if path.stat().st_size > _MAX_IMAGE_BYTES:
        raise StartupError(f"{place}: too large for an image")
    kind = mimetypes.guess_type(path.name)[0]
    if kind is None or not kind.startswith("image/"):
        raise StartupError(f"{place}: by its name this is no image; .png, .jpg and .webp are")
    data = base64.b64encode(path.read_bytes()).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}}


def read_setting(name: str, text: str) -> tuple[str, Any]:
    """A field of a chat completion and its value, which is JSON, or else text. Raises PieError for an unknown one."""
    name = name.strip().replace("-", "_")
    check_names({name: None})
    if name in ("tools", "max_rounds"):
        raise StartupError(f"{name!r} cannot be set here: a terminal runs no functions")
    try:
        return name, json.loads(text)
    except ValueError:
        return name, text


def read_settings(pairs: Sequence[str]) -> dict[str, Any]:
    """Settings from `NAME=VALUE` words. Raises PieError."""
    found = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise StartupError(f"--set wants NAME=VALUE, not {pair!r}")
        key, value = read_setting(name, text)
        found[key] = value
    return found
