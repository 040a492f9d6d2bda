"""A model in the Hugging Face cache is loaded and asked without the network: by name, in a process that has none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiny.image_runners import IMAGE_FAMILIES
from tests.tiny.runners import folder_of

COMMIT = "0123456789abcdef" * 2 + "01234567"
PROGRAM = """
import sys

def watch(event, words):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        print(event, words[1:2], flush=True)
        raise OSError("this machine has no network")

sys.addaudithook(watch)
from proxy_inference_engine.config import Config
from proxy_inference_engine.models.load import load_engine, load_words

config = Config(model=sys.argv[1], context=256, slots=1)
words = load_words(config)
assert words.tokenizer.encode("The river")
worker = load_engine(config)
print(worker.info.name, worker.is_ready, worker.image_encoder is not None)
worker.stop()
"""


def publish(folder: Path, home: Path) -> None:
    """As a download leaves it: blobs, and a snapshot of links to them."""
    repository = home / "hub" / "models--owner--tiny-model"
    snapshot, blobs = repository / "snapshots" / COMMIT, repository / "blobs"
    for path in (snapshot, blobs, repository / "refs"):
        path.mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    for number, path in enumerate(sorted(folder.iterdir())):
        (blobs / str(number)).write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(f"../../blobs/{number}")


@pytest.mark.parametrize("kind", ["llama", "gemma3"])
def test_a_cached_model_needs_no_network(kind: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    takes_images = kind in IMAGE_FAMILIES
    folder = IMAGE_FAMILIES[kind](tmp_path / kind) if takes_images else folder_of(kind, tmp_path_factory.getbasetemp())
    publish(folder, tmp_path / "hf")
    others = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGINGFACE_", "PIE_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "owner/tiny-model"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**others, "HF_HOME": str(tmp_path / "hf")},
    )
    assert (done.returncode, done.stdout.strip()) == (0, f"tiny-model True {takes_images}"), done.stderr
