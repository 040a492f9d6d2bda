"""A model of one layer, written and computed when a library is loaded: does it compute what it should, and is its KV
where `blob.py` looks for it? Takes some 20 ms and one thread.
"""

import ctypes
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.runners.llama_cpp.binding import GGML_TYPE_F16, Binding, floats, llama_batch
from proxy_inference_engine.runners.llama_cpp.blob import KvLayout
from proxy_inference_engine.runners.llama_cpp.header import Entry, Tensor, write_header

_WIDTH = 32  # of everything
_NUM_CELLS = 64
_IDS = (3, 1, 4, 1, 5, 9, 2, 6)
_NEXT = 5
# The first logits after the ids and after the next token: float32 weights, KV in 16 bits.
_EXPECTED = ((-0.5072, -0.5933, 0.1666, 0.436), (-0.4436, -0.2166, -0.2585, 0.8342))
_TOLERANCE = 0.01


def failure(binding: Binding) -> str | None:
    """What the library does otherwise than expected; None where all is well.

    Raises OSError without a place to write, and ValueError where nothing can be computed.
    """
    with tempfile.TemporaryDirectory(prefix="pie-") as folder:
        path = Path(folder) / "one-layer.gguf"
        _write_model(path)
        with _opened(binding, path) as context:
            return _compute(binding, context)


def _compute(binding: Binding, context: int) -> str | None:
    found = [_decode(binding, context, 0, 0, _IDS)]
    layout, planes = _export(binding, context)
    found.append(_decode(binding, context, 0, len(_IDS), (_NEXT,)))
    for logits, expected in zip(found, _EXPECTED, strict=True):
        if not np.allclose(logits[: len(expected)], expected, atol=_TOLERANCE):
            return f"it computes {logits[: len(expected)].round(3).tolist()}, not {list(expected)}"
    if layout is None:
        return "its KV is not laid out as expected"
    _restore(binding, context, layout, planes)
    again = _decode(binding, context, 1, len(_IDS), (_NEXT,))
    return None if np.array_equal(again, found[1]) else "KV that was read and written back computes something else"


def _export(binding: Binding, context: int) -> tuple[KvLayout | None, list[NDArray[np.uint8]]]:
    blob = np.zeros(binding.llama_state_seq_get_size(context, 0), np.uint8)
    binding.llama_state_seq_get_data(context, blob.ctypes.data, len(blob), 0)
    layout = KvLayout.read(blob, len(_IDS), 2)
    return layout, layout.blob_views(blob, len(_IDS), 2, 0) if layout else []


def _restore(binding: Binding, context: int, layout: KvLayout, planes: list[NDArray[np.uint8]]) -> None:
    """Into the second sequence, by our own hand."""
    blob = np.zeros(layout.blob_bytes(len(_IDS), 2), np.uint8)
    layout.write_headers(blob, len(_IDS), 2)
    for target, source in zip(layout.blob_views(blob, len(_IDS), 2, 0), planes, strict=True):
        target[:] = source
    binding.llama_state_seq_set_data(context, blob.ctypes.data, len(blob), 1)


def _decode(binding: Binding, context: int, sequence: int, start: int, ids: tuple[int, ...]) -> NDArray[np.float32]:
    """The logits after the last of the ids."""
    count = len(ids)
    sequences = ctypes.pointer(ctypes.c_int32(sequence))
    batch = llama_batch(
        n_tokens=count,
        token=(ctypes.c_int32 * count)(*ids),
        pos=(ctypes.c_int32 * count)(*range(start, start + count)),
        n_seq_id=(ctypes.c_int32 * count)(*[1] * count),
        seq_id=(ctypes.POINTER(ctypes.c_int32) * count)(*[sequences] * count),
        logits=(ctypes.c_int8 * count)(*[0] * (count - 1), 1),
    )
    if binding.llama_decode(context, batch) != 0:
        return np.full(_WIDTH, np.nan, np.float32)
    return floats(binding.llama_get_logits(context), _WIDTH).copy()


@contextmanager
def _opened(binding: Binding, path: Path) -> Iterator[int]:
    params = binding.llama_model_default_params()
    nothing = (ctypes.c_void_p * 1)()
    params.devices = ctypes.addressof(nothing)  # no GPU: a list that ends at once
    model = binding.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise ValueError("it cannot load a model")
    options = binding.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_ubatch, options.n_seq_max = 2 * _NUM_CELLS, _NUM_CELLS, _NUM_CELLS, 2
    options.n_threads = options.n_threads_batch = 1  # a team of threads belongs to the thread that made it
    options.flash_attn_type = 1
    options.type_k = options.type_v = GGML_TYPE_F16
    context = binding.llama_init_from_model(model, options)
    try:
        if not context:
            raise ValueError("it cannot make a context")
        yield context
    finally:
        if context:
            binding.llama_free(context)
        binding.llama_model_free(model)


def _write_model(path: Path) -> None:
    facts: dict[str, str | int | float] = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": _NUM_CELLS,
        "llama.embedding_length": _WIDTH,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": _WIDTH,
        "tokenizer.ggml.model": "none",
    }
    layer = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    squares = ["token_embd.weight", "output.weight", *(f"blk.0.{name}.weight" for name in layer)]
    norms = ["output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"]
    shapes = [(name, (_WIDTH, _WIDTH)) for name in squares] + [(name, (_WIDTH,)) for name in norms]
    tensors, data = [], b""
    for name, shape in shapes:
        tensors.append(Tensor(name, shape, 0, len(data)))
        data += _numbers(len(tensors), shape).tobytes()
    path.write_bytes(write_header([Entry.of(key, value) for key, value in facts.items()], tensors) + data)


def _numbers(seed: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Numbers that are the same on every machine, with no pattern that would hide a shift."""
    places = np.arange(np.prod(shape), dtype=np.float64)
    return (np.modf(np.sin(places * 12.9898 + seed) * 437.585)[0] / 2).astype(np.float32)
