"""GGUF files whose headers cannot be true, each made from a sound one by a seed; and a process that loads them.

`python -m tests.model.gguf_mutations FOLDER FIRST LAST` says which seed it is at, so that whoever started it knows
which one ended it.
"""

import random
import resource
import signal
import struct
import sys
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp.header import Entry, GgufHeader, Tensor, read_header, write_header
from proxy_inference_engine.runners.llama_cpp.model import Model
from tests.model.gguf_files import write_llama

_NUMBERS = (0, 1, 2, 7, 2**8, 2**16, 10**9, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_FURTHER_KEYS = (
    "llama.expert_count", "llama.expert_used_count", "llama.vocab_size", "llama.attention.key_length",
    "llama.attention.value_length", "llama.rope.dimension_count", "llama.attention.sliding_window", "split.count",
    "split.no", "split.tensors.count", "general.alignment", "llama.pooling_type", "llama.attention.head_count_kv",
    "llama.rope.freq_base", "llama.embedding_length_out", "tokenizer.ggml.padding_token_id", "tokenizer.ggml.merges",
    "general.quantization_version", "llama.leading_dense_block_count", "llama.nextn_predict_layers",
)  # fmt: skip
_LIST, _WORD = 9, 8
_MAX_KIND, _MAX_TENSOR_KIND = 14, 45
_MORE_BYTES = 2 << 30  # that no file of a few kilobytes may take
_HANG_S = 60


class Mutator:
    """`whole` is a file with a sound header."""

    def __init__(self, whole: bytes, header: GgufHeader) -> None:
        self._whole = whole
        self._header = header

    def mutated(self, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.3:
            return self._bytes(chance)
        entries, tensors = list(self._header.entries), list(self._header.tensors)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            change = chance.choice((_change_value, _change_value, _change_list, _change_tensor, _change_lists_of_all))
            change(chance, entries, tensors)
        return write_header(entries, tensors) + self._whole[self._header.data_start :]

    def _bytes(self, chance: random.Random) -> bytes:
        data = bytearray(self._whole)
        for _ in range(chance.choice((1, 1, 2, 4))):
            at, number = chance.randrange(4, self._header.data_start), chance.choice(_NUMBERS)
            match chance.randrange(4):
                case 0:
                    data[at : at + 8] = struct.pack("<Q", number)
                case 1:
                    data[at] = chance.randrange(256)
                case 2:
                    del data[at : at + chance.randrange(1, 40)]
                case _:
                    data[at:at] = chance.randbytes(chance.randrange(1, 40))
        return bytes(data)


def _change_value(chance: random.Random, entries: list[Entry], _tensors: list[Tensor]) -> None:
    at = chance.choice([at for at, entry in enumerate(entries) if entry.kind != _LIST])
    entry, number = entries[at], chance.choice(_NUMBERS)
    cut = number & (2 ** (8 * len(entry.value)) - 1)
    entries[at] = chance.choice(
        (
            entry._replace(value=cut.to_bytes(len(entry.value), "little")),
            entry._replace(value=cut.to_bytes(len(entry.value), "little")),
            entry._replace(kind=10, value=struct.pack("<Q", number)),
            entry._replace(kind=chance.randrange(_MAX_KIND)),
            entry._replace(kind=_LIST, value=struct.pack("<IQ", 4, 3) + bytes(12)),
            Entry.of(entry.key, "x"),
            Entry.of(entry.key, 1.5),
        )
    )


def _change_list(chance: random.Random, entries: list[Entry], _tensors: list[Tensor]) -> None:
    at = chance.choice([at for at, entry in enumerate(entries) if len(entry.value) > 100])
    entry = entries[at]
    kind, length = struct.unpack_from("<IQ", entry.value)
    entries[at] = chance.choice(
        (
            entry._replace(value=struct.pack("<IQ", kind, chance.choice(_NUMBERS)) + entry.value[12:]),
            entry._replace(value=struct.pack("<IQ", chance.randrange(_MAX_KIND), length) + entry.value[12:]),
            entry._replace(value=struct.pack("<IQ", kind, 0)),
            entry._replace(value=struct.pack("<IQ", 4, 1) + bytes(4)),
            entry._replace(value=struct.pack("<IQQ", _WORD, 1, 1) + b"a"),
        )
    )


def _change_tensor(chance: random.Random, _entries: list[Entry], tensors: list[Tensor]) -> None:
    at = chance.randrange(len(tensors))
    tensor, shape, number = tensors[at], list(tensors[at].shape), chance.choice(_NUMBERS)
    shape[chance.randrange(len(shape))] = number
    tensors[at] = chance.choice(
        (
            tensor._replace(shape=tuple(shape)),
            tensor._replace(shape=tensor.shape[::-1]),
            tensor._replace(shape=(*tensor.shape, *[1] * chance.randrange(1, 6))),
            tensor._replace(offset=number),
            tensor._replace(offset=tensor.offset + chance.choice((1, 32))),
            tensor._replace(kind=chance.randrange(_MAX_TENSOR_KIND)),
        )
    )


def _change_lists_of_all(chance: random.Random, entries: list[Entry], tensors: list[Tensor]) -> None:
    match chance.randrange(8):
        case 0:
            del entries[chance.randrange(1, len(entries))]
        case 1:
            del tensors[chance.randrange(len(tensors))]
        case 2:
            entries.append(chance.choice(entries))
        case 3:
            tensors.append(chance.choice(tensors))
        case _:
            key, number = chance.choice(_FURTHER_KEYS), chance.choice(_NUMBERS) & (2**32 - 1)
            entries[:] = [*(entry for entry in entries if entry.key != key), Entry.of(key, number)]


def main(folder: Path, first: int, last: int) -> None:
    """Tries each; raises what is no plain refusal."""
    sound = write_llama(folder / "sound.gguf")
    mutator = Mutator(sound.read_bytes(), read_header(sound))
    Model(sound).close()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + _MORE_BYTES, hard))
    path = folder / "mutated.gguf"
    for seed in range(first, last):
        print("trying", seed, flush=True)
        path.write_bytes(mutator.mutated(seed))
        signal.alarm(_HANG_S)
        try:
            Model(path).close()
        except StartupError as error:
            assert "\n" not in error.message and len(error.message) < 400, error.message
    print("done", last - first)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
