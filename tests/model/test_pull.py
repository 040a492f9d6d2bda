"""`pie pull`, and `pie run` and `pie serve` on a name that is not in the cache: real programs, and a hub of ours."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import hub as hubs
from tests import terminal as terminals
from tests.hub import COMMIT, Hub
from tests.model.gguf_files import write_llama, write_split_llama
from tests.polling import HANG_S, wait_until

NAME = "owner/tiny"
SETTINGS = ("--threads", "1", "--context", "256", "--log-level", "error")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("hub")
    write_llama(folder / "tiny-F32.gguf", facts={"general.sampling.temp": 0.0})
    paths = [folder / "tiny-F32.gguf", *write_split_llama(folder)]
    return {path.name: path.read_bytes() for path in paths}


@pytest.fixture
def hub(files: dict[str, bytes]) -> Iterator[Hub]:
    with hubs.serving() as hub:
        hub.repositories[NAME] = {"README.md": b"hello", "modeling.py": b"never", **files}
        yield hub


def environment(hub: Hub, home: Path) -> dict[str, str]:
    return terminals.environment(home, HF_ENDPOINT=hub.endpoint)


def start(hub: Hub, home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "proxy_inference_engine", *words],
        cwd=home,
        env=environment(hub, home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def pie(hub: Hub, home: Path, *words: str) -> tuple[int, str, str]:
    process = start(hub, home, *words)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_run_downloads_a_model_and_answers(hub: Hub, tmp_path: Path) -> None:
    words = ("run", "hello", "--model", f"{NAME}:F32", *SETTINGS)
    code, answer, told = pie(hub, tmp_path, *words)
    assert code == 0 and len(answer) > 2
    assert told.startswith("downloading owner/tiny:F32: ") and "100 %, " in told
    assert hub.paths == ["tiny-F32.gguf"]
    hub.asked = []
    assert pie(hub, tmp_path, *words) == (0, answer, "")
    assert pie(hub, tmp_path, *words, "--offline") == (0, answer, "")
    assert hub.asked == []


def test_pull_says_where_the_model_is(hub: Hub, tmp_path: Path) -> None:
    code, path, _ = pie(hub, tmp_path, "pull", f"{NAME}:split")
    snapshot = tmp_path / ".cache" / "huggingface" / "hub" / "models--owner--tiny" / "snapshots" / COMMIT
    assert (code, Path(path.strip()).parent) == (0, snapshot)
    assert sorted(path.name for path in snapshot.iterdir()) == sorted(hub.paths) == sorted(set(hub.paths))
    assert all(re.fullmatch(r"split-\d{5}-of-\d{5}\.gguf", path) for path in hub.paths)
    assert len(hub.paths) > 1
    assert pie(hub, tmp_path, "run", "hello", "--model", path.strip(), *SETTINGS)[0] == 0


def test_a_folder_of_safetensors_runs_as_it_came(hub: Hub, tmp_path: Path) -> None:
    """All that MLX and its image tower need is among what is fetched, and no more."""
    pytest.importorskip("mlx_vlm")
    from tests.tiny.image_models import write_qwen3_vl

    folder = write_qwen3_vl(tmp_path / "there")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub.repositories[NAME] = {**files, "modeling.py": b"never", "pytorch_model.bin": b"never"}
    home = tmp_path / "here"
    home.mkdir()
    code, _, told = pie(hub, home, "run", "hello", "--model", NAME, "--context", "64", "--log-level", "error")
    assert code == 0, told
    assert set(hub.paths) == {*files}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("pull",), "which model? pie pull owner/model"),
        (("pull", "model.gguf"), "is no name on Hugging Face"),
        (("pull", NAME), "has several GGUF files: split ("),
        (("pull", "owner/nobody"), "has no such model; if it is private, set HF_TOKEN"),
        (("pull", f"{NAME}@v9"), "has no revision 'v9'"),
        (("run", "hello", "--offline", "--model", f"{NAME}:F32"), "(--offline forbids downloads)"),
        (("serve", "--port", "0", "--model", "owner/nobody"), "has no such model"),
    ],
)
def test_one_plain_line_says_what_is_wrong(hub: Hub, tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    code, out, told = pie(hub, tmp_path, *words)
    assert (code, out, told.count("\n")) == (1, "", 1)
    assert told.startswith("pie: ") and reason in told
    assert hub.paths == []


def test_serve_downloads_before_it_listens(hub: Hub, tmp_path: Path) -> None:
    process = start(hub, tmp_path, "serve", "--port", "0", "--model", f"{NAME}:F32", "--kv-memory", "1MiB", *SETTINGS)
    try:
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C" not in printed:
            read = process.stdout.readline()
            assert read, process.stderr and process.stderr.read()
            printed += read
        assert "model    tiny-F32" in printed
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_can_be_taken_up(hub: Hub, tmp_path: Path, files: dict[str, bytes]) -> None:
    """The connection stalls after some bytes; the signal comes while the program waits for more."""
    hub.stalls = [10_000]
    # A shell starts background jobs with SIGINT ignored, and programs inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = start(hub, tmp_path, "pull", f"{NAME}:F32")
    finally:
        signal.signal(signal.SIGINT, before)
    folder = tmp_path / ".cache" / "huggingface" / "hub" / "models--owner--tiny" / "blobs"
    wait_until(lambda: any(path.stat().st_size for path in folder.glob("*.incomplete")))
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 130
    assert told.rstrip().endswith("stopped; the same command goes on from here")
    hub.release.set()
    (partial,) = folder.iterdir()
    assert partial.read_bytes() == files["tiny-F32.gguf"][:10_000]
    assert pie(hub, tmp_path, "pull", f"{NAME}:F32")[0] == 0
    assert hub.asked[-1].range == "bytes=10000-"
