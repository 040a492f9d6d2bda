"""Large files by hf-xet: the library itself, a storage on this machine; without it, or after it fails, by HTTP."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.models.download import parallel
from tests.hub import Hub, digest
from tests.unit.models.download.pulling import GGUF, NAME, Watcher, blobs, fetch
from tests.xet_storage import Storage, storing

DIGEST = digest("tiny-Q8_0.gguf", GGUF)


@pytest.fixture
def storage(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Iterator[Storage]:
    monkeypatch.setattr(parallel, "PIECE_BYTES", 64 << 10)
    with storing(GGUF) as storage:
        hub.storage = storage.endpoint
        yield storage


@pytest.fixture
def library() -> None:
    pytest.importorskip("hf_xet", reason="hf-xet is not installed")


def by_http(hub: Hub) -> list[str]:
    return [each.range or "all" for each in hub.asked if each.path.startswith("/stored/")]


@pytest.mark.usefixtures("library")
def test_the_bytes_come_from_the_storage(hub: Hub, storage: Storage, cache: Path) -> None:
    watcher = Watcher()
    assert fetch(hub, token="hf_secret", watcher=watcher).read_bytes() == GGUF
    assert by_http(hub) == [] and blobs(cache) == {DIGEST: GGUF}
    assert storage.tokens == {"Bearer storage"}  # the user's own stays with the hub
    assert watcher.lines == ["downloading owner/tiny: 1000 KiB"] and watcher.shown[-1] == (len(GGUF), len(GGUF))


@pytest.mark.usefixtures("library")
def test_what_has_come_is_not_asked_for_again(hub: Hub, storage: Storage, cache: Path) -> None:
    partial = cache / "models--owner--tiny" / "blobs" / f"{DIGEST}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(GGUF[:123_456])
    assert fetch(hub).read_bytes() == GGUF
    assert by_http(hub) == []
    assert {wanted for path, wanted in storage.asked if "/v1/" in path} == {f"bytes=123456-{len(GGUF) - 1}"}


@pytest.mark.usefixtures("library")
def test_a_storage_that_refuses(hub: Hub, storage: Storage) -> None:
    storage.fails_after = 0
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert by_http(hub) == ["all"]
    # The library tells of a refusal, or its stream just ends.
    assert any(line.startswith("going on without hf-xet (") for line in watcher.lines)


@pytest.mark.usefixtures("library")
def test_wrong_bytes_from_the_storage_are_found_out(hub: Hub, storage: Storage, cache: Path) -> None:
    storage.data = GGUF[::-1]
    with pytest.raises(Exception, match="has not the digest"):
        fetch(hub)
    assert blobs(cache) == {}


@pytest.mark.usefixtures("library")
def test_a_file_that_is_stored_otherwise_comes_in_pieces(hub: Hub, storage: Storage) -> None:
    hub.storage = None
    assert fetch(hub).read_bytes() == GGUF
    assert len(by_http(hub)) > 1 and storage.asked == []


@pytest.mark.parametrize("reason", ["switched off", "not installed"])
def test_without_it(hub: Hub, storage: Storage, monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "switched off":
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    else:
        monkeypatch.setitem(sys.modules, "hf_xet", None)
    assert fetch(hub).read_bytes() == GGUF
    assert len(by_http(hub)) > 1 and storage.asked == []
    assert not any("xet" in each.path for each in hub.asked), NAME
