"""Whether the numbers in a GGUF header can be true, seen before llama.cpp is given the file: of some that cannot be it
makes an abort, which ends the process, or memory for what is not there.

What is merely unknown passes: llama.cpp tells what it does not know.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.llama_cpp.header import Entry, GgufHeader, Tensor, read_header

_MAX_DIMENSIONS = 4
_MAX_ALIGNMENT = 1 << 20
_MAX_WEIGHTS = 1 << 62
_MAX_PARTS = 1000
# Weights in a block of a kind of tensor and its bytes, by the format's numbers. Other kinds are llama.cpp's to know.
_BLOCKS = {
    0: (1, 4),
    1: (1, 2),
    2: (32, 18),
    3: (32, 20),
    6: (32, 22),
    7: (32, 24),
    8: (32, 34),
    9: (32, 40),
    10: (256, 84),
    11: (256, 110),
    12: (256, 144),
    13: (256, 176),
    14: (256, 210),
    15: (256, 292),
    16: (256, 66),
    17: (256, 74),
    18: (256, 98),
    19: (256, 50),
    20: (32, 18),
    21: (256, 110),
    22: (256, 82),
    23: (256, 136),
    24: (1, 1),
    25: (1, 2),
    26: (1, 4),
    27: (1, 8),
    28: (1, 8),
    29: (256, 56),
    30: (1, 2),
    34: (256, 54),
    35: (256, 66),
    39: (32, 17),
}
# What may be said under a model's architecture: the least and the most. Aborts, divisions by zero and sizes of memory.
_RANGES = {
    "block_count": (1, 512),
    "nextn_predict_layers": (0, 511),
    "leading_dense_block_count": (0, 512),
    "context_length": (1, 1 << 30),
    "embedding_length": (1, 1 << 20),
    "embedding_length_out": (0, 1 << 20),
    "feed_forward_length": (0, 1 << 24),
    "vocab_size": (0, 1 << 24),
    "expert_count": (0, 512),
    "expert_used_count": (0, 512),
    "attention.head_count": (0, 1 << 16),
    "attention.head_count_kv": (0, 1 << 16),
    "attention.key_length": (0, 1 << 16),
    "attention.value_length": (0, 1 << 16),
    "rope.dimension_count": (0, 1 << 16),
}
# Of adapters and of what encodes images: llama.cpp aborts where these are of another kind.
_WORD, _LIST, _FLOAT, _SIGNED, _UNSIGNED, _FLAG = 8, 9, 6, 5, 4, 7
_KINDS = (
    (re.compile(r"general\.(architecture|type)|adapter\.type|clip\.(\w+\.)?projector_type"), _WORD),
    (re.compile(r"adapter\.lora\.alpha|clip\.(vision|audio)\.attention\.layer_norm_epsilon"), _FLOAT),
    (re.compile(r"clip\.(has|use)_\w+"), _FLAG),
    (re.compile(r"clip\.(vision|audio)\.(image_mean|image_std)"), _LIST),
    (
        re.compile(
            r"clip\.(vision|audio)\.(image_size|patch_size|embedding_length|feed_forward_length|block_count"
            r"|projection_dim|attention\.head_count|projector\.scale_factor|preproc_image_size)"
        ),
        _UNSIGNED,
    ),
)
_IMAGE_RANGES = {
    "image_size": (1, 1 << 14),
    "patch_size": (1, 1 << 10),
    "projection_dim": (0, 1 << 20),
    "projector.scale_factor": (1, 1 << 6),
    "embedding_length": (1, 1 << 20),
    "feed_forward_length": (0, 1 << 24),
    "block_count": (1, 512),
    "attention.head_count": (1, 1 << 12),
}
_TOKENS = "tokenizer.ggml.tokens"
_BESIDE_TOKENS = {"tokenizer.ggml.scores": _FLOAT, "tokenizer.ggml.token_type": _SIGNED}  # read by the token's number
_PART = re.compile(r"(?P<stem>.*)-00001-of-(?P<count>\d{5})\.gguf")


def check_soundness(path: Path) -> None:
    """Check a file and the other parts of it. Raises StartupError, which names what cannot be."""
    for each in (path, *_other_parts(path)):
        try:
            _check(read_header(each), each.stat().st_size)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise StartupError(f"cannot load {each.name!r}: it is damaged, download it again ({reason})") from None


def _other_parts(path: Path) -> list[Path]:
    """The other parts of a split model that are there; llama.cpp tells which are missing."""
    found = _PART.fullmatch(path.name)
    if found is None or int(found["count"]) > _MAX_PARTS:
        return []
    names = (f"{found['stem']}-{number:05}-of-{found['count']}.gguf" for number in range(2, int(found["count"]) + 1))
    return [path.with_name(name) for name in names if path.with_name(name).exists()]


def _check(header: GgufHeader, file_bytes: int) -> None:
    alignment = header.alignment
    if alignment > _MAX_ALIGNMENT or alignment & (alignment - 1):
        raise ValueError(f"general.alignment is {alignment}")
    entries = {entry.key: entry for entry in header.entries}
    if len(entries) < len(header.entries):
        raise ValueError("a key comes twice")
    _check_kinds(entries)
    _check_numbers(entries)
    _check_vocabulary(entries)
    num_bytes = file_bytes - header.data_start
    for tensor in header.tensors:
        _check_tensor(tensor, alignment, num_bytes)


def _check_kinds(entries: dict[str, Entry]) -> None:
    for key, entry in entries.items():
        for pattern, kind in _KINDS:
            if entry.kind != kind and pattern.fullmatch(key):
                raise ValueError(f"{key} is of another kind")


def _check_ranges(entries: dict[str, Entry], prefix: str, ranges: Mapping[str, tuple[int, int]]) -> None:
    for name, (least, most) in ranges.items():
        for number in _numbers_at(entries, f"{prefix}.{name}"):
            if not least <= number <= most:
                raise ValueError(f"{prefix}.{name} is {number}")


def _check_numbers(entries: dict[str, Entry]) -> None:
    architecture = entries.get("general.architecture")
    if architecture is None or not architecture.word:
        return  # llama.cpp says that it is missing
    _check_ranges(entries, architecture.word, _RANGES)
    _check_ranges(entries, "clip.vision", _IMAGE_RANGES)
    for name, limit in (("expert_used_count", "expert_count"), ("nextn_predict_layers", "block_count")):
        numbers, limits = (_numbers_at(entries, f"{architecture.word}.{key}") for key in (name, limit))
        if numbers and max(numbers) > max(limits, default=0):
            raise ValueError(f"{architecture.word}.{name} is {max(numbers)}, more than {limit}")
    experts, used = (
        _numbers_at(entries, f"{architecture.word}.{key}") for key in ("expert_count", "expert_used_count")
    )
    if any(experts) and not any(used):
        raise ValueError(f"{architecture.word}.expert_count is given, but none is used")


def _numbers_at(entries: dict[str, Entry], key: str) -> list[int]:
    entry = entries.get(key)
    return [] if entry is None else _numbers(entry)


_LAYOUTS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 10: "Q", 11: "q"}  # of whole numbers


def _numbers(entry: Entry) -> list[int]:
    """The whole number, or those of a list; none of any other kind."""
    kind, data = entry.kind, entry.value
    if kind == _LIST:
        kind, data = int.from_bytes(data[:4], "little"), data[12:]
    layout = _LAYOUTS.get(kind)
    if layout is None:
        return []
    return [number for (number,) in struct.iter_unpack(f"<{layout}", data)]


def _check_vocabulary(entries: dict[str, Entry]) -> None:
    tokens = entries.get(_TOKENS)
    if tokens is None:
        return
    found = _list_of(tokens)
    if found is None or found[0] != _WORD:
        raise ValueError(f"{_TOKENS} is no list of texts")
    num_tokens = found[1]
    for key, kind in _BESIDE_TOKENS.items():
        if key in entries and _list_of(entries[key]) != (kind, num_tokens):
            raise ValueError(f"{key} is no list of {num_tokens} numbers, one for each token")
    seen = set[bytes]()
    for number, text in enumerate(_texts(tokens)):
        text = text or b"[EMPTY_%d]" % number  # as llama.cpp calls it
        if text in seen:
            raise ValueError(f"{_TOKENS} has {text[:64].decode(errors='replace')!r} twice")
        seen.add(text)


def _texts(entry: Entry) -> Iterator[bytes]:
    """The items of a list of texts."""
    data, position, size_at = entry.value, 12, struct.Struct("<Q").unpack_from
    while position < len(data):
        (size,) = size_at(data, position)
        position += 8 + size
        yield data[position - size : position]


def _list_of(entry: Entry) -> tuple[int, int] | None:
    """The kind of its items and how many there are; None: it is no list."""
    if entry.kind != _LIST:
        return None
    kind, length = struct.unpack_from("<IQ", entry.value)
    return kind, length


def _check_tensor(tensor: Tensor, alignment: int, num_bytes: int) -> None:
    """`num_bytes`: what there is of data."""
    place = f"the tensor {tensor.name[:64]!r}"
    num_weights = prod(tensor.shape)
    if not 0 < len(tensor.shape) <= _MAX_DIMENSIONS or not 0 < num_weights <= _MAX_WEIGHTS:
        raise ValueError(f"{place} has the shape {list(tensor.shape)}")
    block, block_bytes = _BLOCKS.get(tensor.kind, (1, 0))
    if tensor.shape[0] % block:
        raise ValueError(f"{place} has rows of {tensor.shape[0]} weights, in blocks of {block}")
    if tensor.offset % alignment or tensor.offset + num_weights // block * block_bytes > num_bytes:
        raise ValueError(f"{place} is not where the header says: the file has {num_bytes} bytes of data")
