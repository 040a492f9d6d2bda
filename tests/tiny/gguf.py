"""A tiny Llama in a GGUF file that the converter knows: random weights in blocks of one kind, a byte-level BPE."""

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, quantize
from numpy.typing import NDArray

from tests.tiny.vocabulary import CHATML, CONTROL, NUM_TOKENS, USER_DEFINED, write_byte_tokenizer

WIDTH, HIDDEN, NUM_HEADS, NUM_KEY_HEADS, NUM_LAYERS, CONTEXT = 64, 96, 4, 2, 2, 512
PLAIN: dict[str, object] = {}


def write_gguf(
    path: Path, kind: str = "Q4_1", *, architecture: str = "llama", facts: dict[str, object] = PLAIN, more: str = ""
) -> Path:
    """`facts` are added, those with the names of others in their place; `more` is the name of one tensor too many."""
    writer = GGUFWriter(path, architecture)
    for key, value in {**_sizes(architecture), **_words(), **facts}.items():
        _add(writer, key, value)
    for name, values in _tensors(more):
        _add_tensor(writer, name, values, GGMLQuantizationType[kind])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _sizes(architecture: str) -> dict[str, object]:
    sizes: dict[str, object] = {
        "block_count": NUM_LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN,
        "attention.head_count": NUM_HEADS,
        "attention.head_count_kv": NUM_KEY_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": WIDTH // NUM_HEADS,
        "rope.freq_base": 10_000.0,
    }
    return {f"{architecture}.{key}": value for key, value in sizes.items()}


def _words() -> dict[str, object]:
    with TemporaryDirectory() as folder:
        write_byte_tokenizer(Path(folder))
        model: dict[str, Any] = json.loads((Path(folder) / "tokenizer.json").read_text())["model"]
    tokens = [*sorted(model["vocab"], key=model["vocab"].__getitem__), *CONTROL, *USER_DEFINED]
    assert len(tokens) == NUM_TOKENS
    types = [TokenType.NORMAL] * len(model["vocab"])
    types += [TokenType.CONTROL] * len(CONTROL) + [TokenType.USER_DEFINED] * len(USER_DEFINED)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [int(kind) for kind in types],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": tokens.index("<|im_end|>"),
        "tokenizer.chat_template": CHATML,
    }


def _add(writer: GGUFWriter, key: str, value: object) -> None:
    match value:
        case str():
            writer.add_string(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case list():
            writer.add_array(key, value)


def _tensors(more: str) -> Iterator[tuple[str, NDArray[np.float32]]]:
    draw = np.random.default_rng(3)

    def matrix(rows: int, columns: int) -> NDArray[np.float32]:
        return draw.normal(0.0, 1.5 / np.sqrt(columns), (rows, columns)).astype(np.float32)

    yield "token_embd.weight", matrix(NUM_TOKENS, WIDTH)
    yield "output_norm.weight", draw.normal(1.0, 0.1, WIDTH).astype(np.float32)
    yield "output.weight", matrix(NUM_TOKENS, WIDTH)
    key_rows = WIDTH // NUM_HEADS * NUM_KEY_HEADS
    for layer in range(NUM_LAYERS):
        for name in ("attn_norm", "ffn_norm"):
            yield f"blk.{layer}.{name}.weight", draw.normal(1.0, 0.1, WIDTH).astype(np.float32)
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", key_rows, WIDTH),
            ("attn_v", key_rows, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", HIDDEN, WIDTH),
            ("ffn_up", HIDDEN, WIDTH),
            ("ffn_down", WIDTH, HIDDEN),
        ):
            yield f"blk.{layer}.{name}.weight", matrix(rows, columns)
    if more:
        yield more, matrix(WIDTH, WIDTH)


def _add_tensor(writer: GGUFWriter, name: str, values: NDArray[np.float32], kind: GGMLQuantizationType) -> None:
    if values.ndim == 1 or kind == GGMLQuantizationType.F32:
        writer.add_tensor(name, values)
    else:
        writer.add_tensor(name, quantize(values, kind), raw_dtype=kind)
