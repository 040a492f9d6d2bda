"""What tests of downloads share: a tiny repository, and one call that downloads it."""

import json
import struct
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.hub import Hub as Client
from proxy_inference_engine.models.download.model import pull
from tests.hub import Hub

NAME = "owner/tiny"
GGUF = b"GGUF\x03\x00\x00\x00" + bytes(range(256)) * 4000
_HEADER = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
SAFETENSORS = struct.pack("<Q", len(_HEADER)) + _HEADER + b"1234"
FOLDER = {"config.json": b"{}", "tokenizer.json": b'{"a": 1}', "model.safetensors": SAFETENSORS}


class Watcher:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.shown: list[tuple[int, int]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def show(self, num_bytes: int, total_bytes: int) -> None:
        self.shown.append((num_bytes, total_bytes))


def fetch(hub: Hub, name: str = NAME, *, token: str | None = None, watcher: Watcher | None = None) -> Path:
    watcher = watcher or Watcher()
    return pull(Config(model=name), watcher, lambda: Client(hub.endpoint, token, pause_s=0.0)).path


def refused(hub: Hub, name: str = NAME, token: str | None = None) -> str:
    with pytest.raises(StartupError) as caught:
        fetch(hub, name, token=token)
    assert "\n" not in caught.value.message
    return caught.value.message


def blobs(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (cache / "models--owner--tiny" / "blobs").glob("*")}
