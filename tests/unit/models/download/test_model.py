"""Downloads from a hub on this machine: what is fetched, how it lies in the cache, and connections that break."""

import fcntl
import json
import os
import re
import resource
import socket
import sys
import threading
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download import model as download
from proxy_inference_engine.models.download.hub import Hub as Client
from proxy_inference_engine.models.download.model import obtain, pull
from proxy_inference_engine.models.resolve import resolve
from tests.hub import COMMIT, OTHER_COMMIT, Hub, digest
from tests.polling import HANG_S, wait_until
from tests.unit.models.download.pulling import FOLDER, GGUF, NAME, SAFETENSORS, Watcher, blobs, fetch, refused


def test_the_layout_of_the_cache(hub: Hub, cache: Path) -> None:
    path = fetch(hub)
    repository = cache / "models--owner--tiny"
    assert path == repository / "snapshots" / COMMIT / "tiny-Q8_0.gguf"
    assert os.readlink(path) == f"../../blobs/{digest(path.name, GGUF)}"
    assert path.read_bytes() == GGUF
    assert (repository / "refs" / "main").read_text() == COMMIT
    assert blobs(cache) == {digest(path.name, GGUF): GGUF}
    assert resolve(NAME).path == path


def test_huggingface_hub_finds_what_we_downloaded(hub: Hub, cache: Path) -> None:
    library = pytest.importorskip("huggingface_hub")
    path = fetch(hub)
    assert library.try_to_load_from_cache(NAME, path.name, cache_dir=cache) == str(path)
    found = library.scan_cache_dir(cache)
    assert [(repo.repo_id, len(repo.revisions)) for repo in found.repos] == [(NAME, 1)]
    assert not found.warnings


def test_the_cache_is_as_huggingface_hub_would_have_left_it(hub: Hub, cache: Path) -> None:
    """Its own download from the same hub: the same files, links and revisions."""
    library = pytest.importorskip("huggingface_hub")
    hub.repositories[NAME] = dict(FOLDER)
    fetch(hub)
    other = cache.parent / "other"
    for name in FOLDER:
        library.hf_hub_download(NAME, name, cache_dir=other, endpoint=hub.endpoint)
    ours, theirs = (tree(folder / "models--owner--tiny") for folder in (cache, other))
    assert ours == theirs and len(ours) == 2 * len(FOLDER) + 1


def tree(folder: Path) -> dict[str, str]:
    paths = [path for path in folder.rglob("*") if path.is_symlink() or path.is_file()]
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_bytes().hex()
        for path in paths
    }


def test_a_cached_model_is_loaded_without_a_network(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(hub)

    def forbidden(*_: object) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", forbidden)
    monkeypatch.setenv("HF_ENDPOINT", "nonsense")  # not even read
    assert obtain(Config(model=NAME), Watcher()).name == "tiny-Q8_0"


def test_what_is_missing_is_downloaded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.endpoint}/")
    watcher = Watcher()
    assert obtain(Config(model=NAME), watcher).path.read_bytes() == GGUF
    assert watcher.lines == ["downloading owner/tiny: 1000 KiB"]
    assert watcher.shown[0] == (0, len(GGUF)) and watcher.shown[-1] == (len(GGUF), len(GGUF))
    assert [done for done, _ in watcher.shown] == sorted(done for done, _ in watcher.shown)


def test_another_file_of_a_cached_repository_is_downloaded(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    fetch(hub)
    hub.repositories[NAME]["tiny-Q4_0.gguf"] = GGUF[:999]
    hub.commits = {"main": OTHER_COMMIT}
    file = obtain(Config(model=f"{NAME}:Q4_0"), Watcher())
    assert (file.name, file.path.parent.name) == ("tiny-Q4_0", OTHER_COMMIT)
    assert hub.paths == ["tiny-Q8_0.gguf", "tiny-Q4_0.gguf"]
    assert resolve(f"{NAME}:Q8_0").path.parent.name == OTHER_COMMIT


def test_a_lost_file_is_downloaded_again(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    path = fetch(hub)
    path.resolve().unlink()
    assert obtain(Config(model=NAME), Watcher()).path.read_bytes() == GGUF


def test_the_draft_model_is_downloaded_too(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    hub.repositories["owner/draft"] = {"draft.gguf": GGUF[:100], "mmproj-f16.gguf": GGUF}
    assert obtain(Config(model=NAME, draft_model="owner/draft"), Watcher()).name == "tiny-Q8_0"
    assert hub.paths == ["tiny-Q8_0.gguf", "draft.gguf"]
    assert resolve("owner/draft").path.read_bytes() == GGUF[:100]


@pytest.mark.parametrize(
    ("config", "variable", "reason"),
    [
        (Config(model=NAME, offline=True), "", "--offline forbids"),
        (Config(model=NAME), "1", "HF_HUB_OFFLINE forbids"),
        (Config(model=NAME), "TRUE", "HF_HUB_OFFLINE forbids"),
    ],
)
def test_offline(hub: Hub, monkeypatch: pytest.MonkeyPatch, config: Config, variable: str, reason: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_HUB_OFFLINE", variable)
    with pytest.raises(StartupError, match=f"not in the Hugging Face cache .*hf download owner/tiny.*{reason}"):
        obtain(config, Watcher())
    with pytest.raises(StartupError, match=f"'owner/tiny' is not downloaded .{reason}"):
        pull(config, Watcher())
    assert hub.asked == []


# Who may: commands, a program that loads a model, and the operator's own routes, which want an admin's key.
DOWNLOADERS = {
    "cli/main.py",
    "cli/serve.py",
    "cli/shelf/pull.py",
    "models/fit.py",
    "pool/pulls.py",
    "python/local_model.py",
    "server/apis/admin/hub.py",
}


def test_only_operators_download() -> None:
    """A name in a user's request must never lead here."""
    room = Path(download.__file__).parent
    package = room.parents[1]
    others = (path for path in package.rglob("*.py") if path.parent != room)
    callers = {path for path in others if re.search(r"models(\.| import )download\b", path.read_text())}
    assert {path.relative_to(package).as_posix() for path in callers} == DOWNLOADERS


def test_pull_takes_what_is_new_and_only_that(hub: Hub, cache: Path) -> None:
    old = fetch(hub)
    assert fetch(hub) == old and hub.paths == ["tiny-Q8_0.gguf"]
    hub.commits = {"main": OTHER_COMMIT}
    hub.repositories[NAME]["tiny-Q8_0.gguf"] = GGUF + b"new"
    new = fetch(hub)
    assert new.parent.name == OTHER_COMMIT and new.read_bytes() == GGUF + b"new"
    assert old.read_bytes() == GGUF
    assert resolve(NAME).path == new and resolve(f"{NAME}@{COMMIT}").path == old


@pytest.mark.parametrize("revision", ["v1.0", "refs/pr/3", COMMIT])
def test_revisions(hub: Hub, cache: Path, revision: str) -> None:
    hub.commits[revision] = COMMIT
    path = fetch(hub, f"{NAME}@{revision}")
    assert resolve(f"{NAME}@{revision}").path == path
    assert hub.asked[0].path == f"/api/models/{NAME}/revision/{revision}"
    references = cache / "models--owner--tiny" / "refs"
    assert not (references / "main").exists()
    assert (references / revision).is_file() == (revision != COMMIT)


def test_only_what_a_folder_of_safetensors_needs(hub: Hub, cache: Path) -> None:
    wanted = FOLDER | {"chat_template.jinja": b"x", "preprocessor_config.json": b'{"b": 2}'}
    wanted["additional_chat_templates/tool_use.jinja"] = b"y"
    unwanted = (
        "modeling.py",
        "pytorch_model.bin",
        "weights.pt",
        "a.pkl",
        "onnx/model.onnx",
        "original/model.safetensors",
        "additional_chat_templates/rag.jinja",
    )
    hub.repositories[NAME] = {**dict.fromkeys(unwanted, b"never"), **wanted}
    snapshot = fetch(hub)
    found = {str(path.relative_to(snapshot)): path for path in snapshot.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == wanted
    assert sorted(hub.paths) == sorted(wanted)
    assert hub.paths[-1] == "model.safetensors"


def test_an_index_says_which_weights(hub: Hub) -> None:
    names = [f"model-0000{part}-of-00002.safetensors" for part in (1, 2)]
    index = json.dumps({"weight_map": dict(zip("ab", names, strict=True))}).encode()
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index}
    hub.repositories[NAME] = {**files, **dict.fromkeys([*names, "model-old.safetensors"], SAFETENSORS)}
    assert {path.name for path in fetch(hub).iterdir()} == {*files, *names}


@pytest.mark.parametrize(
    "index", [b"no JSON", b"[]", b'{"weight_map": 1}', b'{"weight_map": {"a": "../x.safetensors"}}']
)
def test_an_index_that_is_wrong(hub: Hub, index: bytes) -> None:
    hub.repositories[NAME] = FOLDER | {"model.safetensors.index.json": index}
    assert "model.safetensors.index.json of 'owner/tiny'" in refused(hub)


def test_an_engine_that_is_missing_is_noticed_before_the_weights_come(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[NAME] = dict(FOLDER)
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    with pytest.raises(StartupError, match=r"llama\.cpp cannot run 'tiny'"):
        obtain(Config(model=NAME, engine="llama.cpp"), Watcher())
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "mlx_lm", raising=False)
    with pytest.raises(StartupError, match="MLX, which is not installed"):
        obtain(Config(model=NAME), Watcher())
    assert hub.paths == []


# Broken connections


def test_a_connection_that_breaks_is_taken_up_where_it_broke(hub: Hub) -> None:
    hub.cuts = [1000, 0, 50_000]
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    ranges = [each.range for each in hub.asked if each.path.startswith("/stored/")]
    assert ranges == [None, "bytes=1000-", "bytes=1000-", "bytes=51000-"]
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_server_without_ranges_starts_over(hub: Hub) -> None:
    hub.has_ranges = False
    hub.cuts = [1000, 2000]
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))


def test_a_server_without_ranges_that_breaks_again(hub: Hub) -> None:
    """Reset, not closed: the reader gets an error, not an end."""
    hub.has_ranges = False
    hub.cuts = [1000, 400_000, 300_000]
    hub.resets = True
    assert fetch(hub).read_bytes() == GGUF


def test_a_server_that_sends_no_length(hub: Hub) -> None:
    hub.has_lengths = False
    hub.cuts = [1000]
    assert fetch(hub).read_bytes() == GGUF


def test_what_never_comes_is_given_up_and_kept(hub: Hub, cache: Path) -> None:
    hub.cuts = [1000, *[0] * 6]
    assert "the connection ended early; the same command goes on" in refused(hub)
    assert blobs(cache) == {f"{digest('tiny-Q8_0.gguf', GGUF)}.incomplete": GGUF[:1000]}
    assert not (cache / "models--owner--tiny" / "refs").exists()
    hub.cuts, hub.asked = [], []
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert [each.range for each in hub.asked][1:] == ["bytes=1000-"] * 2
    assert watcher.shown[0] == (1000, len(GGUF))
    assert watcher.lines == ["downloading owner/tiny: 999 KiB, the rest of 1000 KiB"]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_server_that_is_busy_is_asked_again(hub: Hub, status: int) -> None:
    hub.refusals = [(status, {"Retry-After": "0"}), (status, {"Retry-After": "soon"})]
    assert fetch(hub).read_bytes() == GGUF
    hub.refusals = [(status, {})] * 3
    assert f"{hub.endpoint} cannot be asked: it answers {status}" in refused(hub)


def test_nobody_there(hub: Hub, cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        endpoint = f"http://127.0.0.1:{busy.getsockname()[1]}"
    with pytest.raises(StartupError, match=f"'owner/tiny' is not in .* {endpoint} cannot be asked: Connection refused"):
        pull(Config(model=NAME), Watcher(), lambda: Client(endpoint, pause_s=0.0))


@pytest.mark.parametrize("left", [b"wrong" * 100, GGUF + b"too long"], ids=["wrong", "long"])
def test_a_wrong_remainder_is_thrown_away(hub: Hub, cache: Path, left: bytes) -> None:
    partial = cache / "models--owner--tiny" / "blobs" / f"{digest('tiny-Q8_0.gguf', GGUF)}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(left)
    watcher = Watcher()
    assert fetch(hub, watcher=watcher).read_bytes() == GGUF
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))
    assert not partial.exists()


def test_ctrl_c_leaves_what_came(hub: Hub, cache: Path) -> None:
    class Impatient(Watcher):
        def show(self, num_bytes: int, total_bytes: int) -> None:
            if num_bytes >= 300_000:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(hub, watcher=Impatient())
    (name, content), *more = blobs(cache).items()
    assert not more and name.endswith(".incomplete")
    assert len(content) >= 300_000 and GGUF.startswith(content)
    hub.asked = []
    assert fetch(hub).read_bytes() == GGUF
    assert hub.asked[-1].range == f"bytes={len(content)}-"


def test_a_disk_that_fills_up_leaves_what_came(hub: Hub, cache: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, before[1]))  # no file may be longer
    try:
        assert "cannot be written: File too large" in refused(hub)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(blobs(cache).values()) == [GGUF[:500_000]]
    assert fetch(hub).read_bytes() == GGUF
    assert hub.asked[-1].range == "bytes=500000-"


def test_a_second_writer_is_noticed_where_locks_do_nothing(hub: Hub, cache: Path) -> None:
    class Rival(Watcher):
        def show(self, num_bytes: int, total_bytes: int) -> None:
            if 0 < num_bytes < total_bytes:
                with next((cache / "models--owner--tiny" / "blobs").iterdir()).open("ab") as file:
                    file.write(b"rival")

    with pytest.raises(StartupError, match=r"does not end after|it was deleted"):
        fetch(hub, watcher=Rival())
    assert fetch(hub).read_bytes() == GGUF


def test_a_second_download_waits_for_the_first(hub: Hub, cache: Path) -> None:
    name = digest("tiny-Q8_0.gguf", GGUF)
    locks = cache / ".locks" / "models--owner--tiny"
    locks.mkdir(parents=True)
    with (locks / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher = Watcher()
        thread = threading.Thread(target=fetch, args=(hub,), kwargs={"watcher": watcher})
        thread.start()
        wait_until(lambda: any("waiting" in line for line in watcher.lines))
        assert any("another program is downloading 'tiny-Q8_0.gguf'" in line for line in watcher.lines)
        (cache / "models--owner--tiny" / "blobs" / name).write_bytes(GGUF)  # the other one has finished
    thread.join(HANG_S)
    assert resolve(NAME).path.read_bytes() == GGUF
    assert hub.paths == []
    assert watcher.shown[-1] == (len(GGUF), len(GGUF))
