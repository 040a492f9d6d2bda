"""GGUF files that were damaged or made to harm: a plain line for each, and the process goes on."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp.adapters import Adapters
from proxy_inference_engine.runners.llama_cpp.header import Entry, Tensor, read_header, write_header
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.soundness import check_soundness
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from tests.model.gguf_files import write_adapter, write_llama, write_split_llama
from tests.model.mmproj_files import write_mmproj

NUM_MUTATIONS = 300
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is bounded on Linux")


def tried(folder: Path, first: int, last: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "tests.model.gguf_mutations", str(folder), str(first), str(last)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "GGML_NO_BACKTRACE": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)


def test_no_header_ends_the_process_or_takes_its_memory(tmp_path: Path) -> None:
    done = tried(tmp_path, 0, NUM_MUTATIONS)
    last = done.stdout.splitlines()[-1:]
    assert (done.returncode, last) == (0, [f"done {NUM_MUTATIONS}"]), done.stderr[-2000:]


def changed(path: Path, key: str, entry: Entry) -> None:
    header, data = read_header(path), path.read_bytes()
    entries = [entry if each.key == key else each for each in header.entries]
    path.write_bytes(write_header(entries, header.tensors) + data[header.data_start :])


@pytest.mark.parametrize("name", ["none", "no_vocab"])
def test_a_model_without_a_vocabulary_is_refused(tmp_path: Path, name: str) -> None:
    path = write_llama(tmp_path / "m.gguf")
    header, data = read_header(path), path.read_bytes()
    entries = [each for each in header.entries if not each.key.startswith("tokenizer.")]
    entries += [Entry.of("tokenizer.ggml.model", name), Entry.of("llama.vocab_size", 260)]
    path.write_bytes(write_header(entries, header.tensors) + data[header.data_start :])
    with pytest.raises(StartupError, match=r"cannot load 'm\.gguf': it has no vocabulary"):
        Vocabulary(Model(path))


def with_tensor(path: Path, **fields: object) -> None:
    header, data = read_header(path), path.read_bytes()
    tensors = [Tensor(**{**header.tensors[0]._asdict(), **fields}), *header.tensors[1:]]
    path.write_bytes(write_header(header.entries, tensors) + data[header.data_start :])


def refusal(path: Path) -> str:
    with pytest.raises(StartupError) as caught:
        Model(path)
    message: str = caught.value.message
    assert message.startswith(f"cannot load {path.name!r}: it is damaged, download it again (") and "\n" not in message
    return message


@pytest.mark.parametrize(
    ("key", "number"),
    [
        ("llama.block_count", 10**9),
        ("llama.block_count", 0),
        ("llama.embedding_length", 2**31),
        ("llama.context_length", 0),
        ("llama.attention.head_count", 2**32 - 1),
    ],
)
def test_numbers_that_cannot_be_are_named(tmp_path: Path, key: str, number: int) -> None:
    """A thousand million layers were an abort of llama.cpp's, and of the server with it."""
    path = write_llama(tmp_path / "m.gguf")
    changed(path, key, Entry.of(key, number))
    assert f"{key} is {number}" in refusal(path)


def test_so_are_lists_that_do_not_belong_together(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf")
    changed(path, "tokenizer.ggml.scores", Entry("tokenizer.ggml.scores", 9, struct.pack("<IQf", 6, 1, 0.0)))
    assert "tokenizer.ggml.scores is no list of 260 numbers" in refusal(path)


def test_so_are_tokens_that_come_twice(tmp_path: Path) -> None:
    """Seen with one mutated header of three thousand: an assertion of llama.cpp's ended the process."""
    path = write_llama(tmp_path / "m.gguf")
    tokens = next(each for each in read_header(path).entries if each.key == "tokenizer.ggml.tokens")
    first = tokens.value[12 : 20 + int.from_bytes(tokens.value[12:20], "little")]
    rest = tokens.value[12 + len(first) :]
    second = 8 + int.from_bytes(rest[:8], "little")
    changed(path, tokens.key, tokens._replace(value=tokens.value[:12] + first + first + rest[second:]))
    assert "tokenizer.ggml.tokens has" in refusal(path) and "twice" in refusal(path)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"shape": (2**40, 2**40)}, "has the shape"),
        ({"shape": (0, 32)}, "has the shape"),
        ({"shape": ()}, "has the shape"),
        ({"shape": (1, 1, 1, 1, 1)}, "has the shape"),
        ({"shape": (2**30, 32)}, "is not where the header says"),
        ({"offset": 2**63}, "is not where the header says"),
        ({"offset": 7}, "is not where the header says"),
        ({"kind": 8, "shape": (33, 32)}, "in blocks of 32"),
    ],
)
def test_so_are_tensors(tmp_path: Path, fields: dict[str, object], reason: str) -> None:
    path = write_llama(tmp_path / "m.gguf")
    with_tensor(path, **fields)
    assert reason in refusal(path)


@pytest.mark.parametrize("count", [2**20, 2**63, 2**64 - 1])
@pytest.mark.parametrize("at", [8, 16])
def test_so_are_counts(tmp_path: Path, at: int, count: int) -> None:
    """Of tensors and of entries."""
    path = write_llama(tmp_path / "m.gguf")
    data = bytearray(path.read_bytes())
    data[at : at + 8] = struct.pack("<Q", count)
    path.write_bytes(data)
    assert "header" in refusal(path)


def test_every_part_of_a_model_is_looked_at(tmp_path: Path) -> None:
    first, second, *_ = write_split_llama(tmp_path)
    with_tensor(second, offset=2**63)
    with pytest.raises(StartupError, match=second.name):
        Model(first)


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("adapter.lora.alpha", Entry.of("adapter.lora.alpha", "x")),
        ("adapter.type", Entry.of("adapter.type", 5)),
        ("general.architecture", Entry.of("general.architecture", 1.5)),
    ],
)
def test_an_adapter_has_what_llama_cpp_reads_of_it(tmp_path: Path, key: str, entry: Entry) -> None:
    """Of another kind each was an abort."""
    model = Model(write_llama(tmp_path / "m.gguf"))
    path = write_adapter(tmp_path / "a.gguf")
    changed(path, key, entry)
    with pytest.raises(StartupError, match=f"{key} is of another kind"):
        Adapters(model, {"a": path})
    model.close()


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("clip.vision.block_count", 10**9, "is 1000000000"),
        ("clip.vision.patch_size", 0, "is 0"),
        ("clip.vision.image_size", "x", "of another kind"),
        ("clip.has_vision_encoder", 1, "of another kind"),
        ("clip.projector_type", 1.5, "of another kind"),
    ],
)
def test_so_has_what_encodes_images(tmp_path: Path, key: str, value: str | float, reason: str) -> None:
    path = write_mmproj(tmp_path / "mmproj.gguf", "gemma3")
    check_soundness(path)
    changed(path, key, Entry.of(key, value))
    with pytest.raises(StartupError, match=f"{key} is {reason}|{key} {reason}"):
        check_soundness(path)


def test_a_file_that_breaks_off_is_refused(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "m.gguf")
    whole, start = path.read_bytes(), read_header(path).data_start
    for size in (start - 1, start + 100, len(whole) - 200):
        path.write_bytes(whole[:size])
        refusal(path)
