"""A GGUF file read as it lies on disk: its facts, and where its tensors are. Knows no architecture and no engine.

header | facts: key, type, value … | tensors: name, shape, kind, offset … | padding | numbers
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import StartupError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4


class Layout(NamedTuple):
    """How a kind of tensor is stored: so many values in so many bytes."""

    num_values: int
    num_bytes: int


LAYOUTS = {
    "F32": Layout(1, 4),
    "F16": Layout(1, 2),
    "BF16": Layout(1, 2),
    "Q4_0": Layout(32, 18),
    "Q4_1": Layout(32, 20),
    "Q8_0": Layout(32, 34),
}  # those that this package reads
_KINDS = {0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 30: "BF16"}
_KINDS |= {10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K"}


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    kind: str
    shape: tuple[int, ...]  # rows first
    offset: int  # from the beginning of the numbers


@dataclass(frozen=True, slots=True, eq=False)
class GgufFile:
    facts: Mapping[str, Any]
    tensors: tuple[Tensor, ...]
    numbers: NDArray[np.uint8]  # mapped, not read

    def fact(self, key: str) -> Any:
        """One that has to be there. Raises StartupError."""
        if key not in self.facts:
            raise StartupError(f"the file does not say {key!r}")
        return self.facts[key]

    def data(self, tensor: Tensor) -> NDArray[np.uint8]:
        """The bytes of a tensor, one row for each of its blocks. Raises StartupError."""
        layout = LAYOUTS[tensor.kind]
        num_blocks, rest = divmod(math.prod(tensor.shape), layout.num_values)
        found = self.numbers[tensor.offset : tensor.offset + num_blocks * layout.num_bytes]
        if rest or tensor.shape[-1] % layout.num_values or len(found) != num_blocks * layout.num_bytes:
            raise StartupError(f"the tensor {tensor.name!r} is damaged")
        return found.reshape(num_blocks, layout.num_bytes)


def read_gguf(path: Path) -> GgufFile:
    """Raises StartupError for a file that is damaged or cannot be read."""
    try:
        return _read(np.memmap(path, np.uint8, "r"))
    except OSError as error:
        raise StartupError(f"model {str(path)!r}: {error.strerror}") from None
    except (struct.error, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise StartupError(f"model {str(path)!r} is damaged, or no GGUF file that can be converted") from None


def _read(data: NDArray[np.uint8]) -> GgufFile:
    reader = _Reader(data)
    if reader.bytes(len(_MAGIC)) != _MAGIC or reader.number("<I") not in _VERSIONS:
        raise ValueError
    num_tensors, num_facts = reader.number("<Q"), reader.number("<Q")
    facts = {}
    for _ in range(num_facts):
        key = reader.text()
        facts[key] = reader.value(reader.number("<I"))
    tensors = tuple(reader.tensor() for _ in range(num_tensors))
    alignment = int(facts.get("general.alignment", 32))
    start = -(-reader.position // alignment) * alignment if alignment > 0 else reader.position
    return GgufFile(facts, tensors, data[start:])


class _Reader:
    """Goes through the head of a file; what lies behind its end is a ValueError or a struct.error."""

    def __init__(self, data: NDArray[np.uint8]) -> None:
        self._data = data.data
        self.position = 0

    def bytes(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self._data):
            raise ValueError
        return self._data[start : self.position].tobytes()

    def number(self, form: str) -> Any:
        (found,) = struct.unpack_from(form, self._data, self.position)
        self.position += struct.calcsize(form)
        return found

    def text(self) -> str:
        return self.bytes(self.number("<Q")).decode()

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.number(_NUMBERS[kind])
        inner, count = self.number("<I"), self.number("<Q")
        if inner in (_STRING, _ARRAY):
            return [self.value(inner) for _ in range(count)]
        form = np.dtype(_NUMBERS[inner])
        return np.frombuffer(self.bytes(count * form.itemsize), form).tolist()

    def tensor(self) -> Tensor:
        name, num_dimensions = self.text(), self.number("<I")
        if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
            raise ValueError
        shape = tuple(self.number("<Q") for _ in range(num_dimensions))
        kind = self.number("<I")
        return Tensor(name, _KINDS.get(kind, f"type {kind}"), shape[::-1], self.number("<Q"))
