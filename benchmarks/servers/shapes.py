"""GGUF files with random weights in the shapes that people run, quantised as they download them (Q4_K_M).

Speed depends on shapes and quantisation, not on what the weights say; no model of this size can be bundled. Vocabulary
and chat template are the bundled model's.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter
from numpy.typing import NDArray

_MAX_CONTEXT = 8192
_SEED = 7
_SCALE = 2e-3  # of a block: weights of about 0.03, as trained ones are
_KINDS = {"K": GGMLQuantizationType.Q4_K, "M": GGMLQuantizationType.Q6_K}  # what most tensors are, and the finer ones


class Shape(NamedTuple):
    num_layers: int
    width: int
    hidden: int
    num_heads: int
    num_kv_heads: int


SHAPES = {"1B": Shape(16, 2048, 8192, 32, 8), "3B": Shape(28, 3072, 8192, 24, 8)}  # those of Llama 3.2


def write_shape(name: str, like: Path, folder: Path, say: Callable[[str], None]) -> Path:
    """The file, written unless it is there, with the tokenizer of another."""
    path = folder / f"random-{name}-Q4_K_M.gguf"
    if path.exists():
        return path
    say(f"writing random weights in the shape of a {name} model")
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".part")
    writer = GGUFWriter(partial, "llama")
    reader = GGUFReader(like)
    _write_sizes(writer, SHAPES[name])
    num_tokens = _copy_tokenizer(reader, writer)
    for tensor, data, kind in _tensors(SHAPES[name], num_tokens):
        writer.add_tensor(tensor, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return partial.replace(path)


def _write_sizes(writer: GGUFWriter, shape: Shape) -> None:
    writer.add_block_count(shape.num_layers)
    writer.add_context_length(_MAX_CONTEXT)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.num_heads)
    writer.add_head_count_kv(shape.num_kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.num_heads)
    writer.add_layer_norm_rms_eps(1e-5)


def _copy_tokenizer(reader: GGUFReader, writer: GGUFWriter) -> int:
    """Returns the size of the vocabulary."""
    for name, field in reader.fields.items():
        if not name.startswith("tokenizer."):
            continue
        kind, *inner = field.types
        writer.add_key_value(name, field.contents(), kind, sub_type=inner[-1] if kind == GGUFValueType.ARRAY else None)
    return len(reader.fields["tokenizer.ggml.tokens"].data)


def _tensors(shape: Shape, num_tokens: int) -> Iterator[tuple[str, NDArray[np.generic], GGMLQuantizationType]]:
    """As llama.cpp's Q4_K_M has them: values, half of the last products and the head are finer."""
    draw = np.random.default_rng(_SEED)
    kv_width = shape.width // shape.num_heads * shape.num_kv_heads
    norm = np.ones(shape.width, np.float32)
    rows = {
        "attn_q": (shape.width, shape.width, "K"),
        "attn_k": (kv_width, shape.width, "K"),
        "attn_v": (kv_width, shape.width, "M"),
        "attn_output": (shape.width, shape.width, "K"),
        "ffn_gate": (shape.hidden, shape.width, "K"),
        "ffn_up": (shape.hidden, shape.width, "K"),
        "ffn_down": (shape.width, shape.hidden, "KM"),
    }
    yield "token_embd.weight", _blocks(draw, num_tokens, shape.width, _KINDS["M"]), _KINDS["M"]
    yield "output_norm.weight", norm, GGMLQuantizationType.F32
    for layer in range(shape.num_layers):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", norm, GGMLQuantizationType.F32
        for name, (height, width, kinds) in rows.items():
            kind = _KINDS[kinds[layer % len(kinds)]]
            yield f"blk.{layer}.{name}.weight", _blocks(draw, height, width, kind), kind


def _blocks(draw: np.random.Generator, height: int, width: int, kind: GGMLQuantizationType) -> NDArray[np.uint8]:
    """Random quants under one small scale: any bytes are a block, but scales may not be any float."""
    num_weights, num_bytes = GGML_QUANT_SIZES[kind]
    blocks = draw.integers(0, 256, (height * width // num_weights, num_bytes), np.uint8)
    scale = np.frombuffer(np.float16(_SCALE / 32).tobytes(), np.uint8)
    if kind == GGMLQuantizationType.Q4_K:  # d, dmin, scales of six bits, quants of four
        blocks[:, :4] = np.tile(scale, 2)
    else:  # quants of six bits, scales of eight, d
        blocks[:, -2:] = scale
    return blocks.reshape(height, width // num_weights * num_bytes)
