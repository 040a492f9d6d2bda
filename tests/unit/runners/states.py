"""Sequence states as llama.cpp writes them, with random KV, built from the format's description alone."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.arena import Bytes

MAGIC = 0x6767_7371
K_TYPE, V_TYPE = 8, 1


@dataclass(frozen=True, slots=True)
class State:
    blob: Bytes
    planes: list[Bytes]  # K of every layer, then V; (outer, tokens, inner)


def make_state(
    num_tokens: int,
    *,
    num_layers: int = 2,
    num_streams: int = 3,
    stream: int = 0,
    is_transposed: bool = False,
    seed: int = 0,
) -> State:
    """K rows have 34 bytes a token; V has 8 numbers of 2 bytes, by token or, transposed, by number."""
    random = np.random.default_rng(seed)
    head = struct.pack("<III", MAGIC, 0, num_streams) + bytes(4 * stream) + struct.pack("<I", num_tokens)
    cells = b"".join(struct.pack("<iIi", position, 1, 0) for position in range(num_tokens))
    parts = [head, cells, struct.pack("<II", is_transposed, num_layers)]
    planes: list[Bytes] = []
    for index in range(2 * num_layers):
        is_v = index >= num_layers
        shape = (8, num_tokens, 2) if is_v and is_transposed else (1, num_tokens, 16 if is_v else 34)
        plane: NDArray[np.uint8] = random.integers(1, 256, shape, np.uint8)
        planes.append(plane)
        if is_v and is_transposed:
            parts.append(struct.pack("<iII", V_TYPE, 2, 8))
        else:
            parts.append(struct.pack("<iQ", V_TYPE if is_v else K_TYPE, shape[2]))
        parts.append(plane.tobytes())
    parts.append(bytes(4 * (num_streams - stream - 1)))
    return State(np.frombuffer(b"".join(parts), np.uint8).copy(), planes)
