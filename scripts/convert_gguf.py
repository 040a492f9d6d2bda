"""Converts a GGUF file of the Llama architecture to a folder in Hugging Face's layout: safetensors, config, tokenizer.

    python scripts/convert_gguf.py --out folder [--dtype bf16|f32] [file.gguf]

Without a file it takes the bundled model. Weights are dequantised, so the folder is larger and as exact as the file.
"""

import argparse
import json
import re
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from gguf import GGUFReader, ReaderTensor, TokenType, dequantize
from numpy.typing import NDArray

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import resolve

Dtype = Literal["bf16", "f32"]
Values = NDArray[np.float32] | NDArray[np.uint16]

_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(.+)")
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# How texts are cut before the merges, by llama.cpp's names for it.
_CUTTING: dict[str, Any] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}


class Heads(NamedTuple):
    num_query: int
    num_key: int


class Metadata:
    """The fields of a GGUF file by name."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields

    def get(self, key: str, default: Any = None) -> Any:
        field = self._fields.get(key)
        return default if field is None else field.contents()

    def __getitem__(self, key: str) -> Any:
        if key not in self._fields:
            raise StartupError(f"the file does not say {key!r}")
        return self._fields[key].contents()


def convert(source: Path, out: Path, dtype: Dtype) -> None:
    """Write the folder; an old one of the same name is written over, file by file."""
    reader = GGUFReader(source)
    metadata = Metadata(reader)
    check(metadata, reader)
    out.mkdir(parents=True, exist_ok=True)
    heads = Heads(metadata["llama.attention.head_count"], metadata["llama.attention.head_count_kv"])
    write_safetensors(out / "model.safetensors", reader.tensors, heads, dtype)
    is_tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    for name, value in (
        ("config.json", model_config(metadata, dtype, is_tied=is_tied)),
        ("generation_config.json", {"eos_token_id": metadata["tokenizer.ggml.eos_token_id"]}),
        ("tokenizer.json", tokenizer(metadata)),
        ("tokenizer_config.json", tokenizer_config(metadata)),
    ):
        (out / name).write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def check(metadata: Metadata, reader: GGUFReader) -> None:
    """Refuse what this script would convert wrongly."""
    for key, known in (
        ("general.architecture", {"llama"}),
        ("tokenizer.ggml.model", {"gpt2"}),
        ("tokenizer.ggml.pre", set(_CUTTING)),
    ):
        if metadata[key] not in known:
            raise StartupError(f"{key} is {metadata[key]!r}; this script knows {', '.join(sorted(known))}")
    if metadata.get("llama.rope.scaling.type", "none") != "none" or metadata.get("llama.expert_count", 0):
        raise StartupError("this script knows neither scaled rotary positions nor experts")
    unknown = [tensor.name for tensor in reader.tensors if new_name(tensor.name) is None]
    if unknown:
        raise StartupError(f"this script does not know the tensor {unknown[0]!r}")


def new_name(name: str) -> str | None:
    base, _, part = name.rpartition(".")
    block = _BLOCK.fullmatch(base)
    inner = _NAMES.get(block[2] if block else base)
    if inner is None or part != "weight":
        return None
    return f"model.layers.{block[1]}.{inner}.weight" if block else f"{inner}.weight"


def unpermuted(values: NDArray[np.float32], num_heads: int) -> NDArray[np.float32]:
    """llama.cpp keeps the two halves that a rotation turns together side by side; Hugging Face keeps them apart.

    GGUF:          x0 y0 x1 y1 …
    Hugging Face:  x0 x1 … y0 y1 …
    """
    rows, columns = values.shape
    pairs = values.reshape(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def tensor_values(tensor: ReaderTensor, heads: Heads) -> NDArray[np.float32]:
    values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    if tensor.name.endswith("attn_q.weight"):
        return unpermuted(values, heads.num_query)
    return unpermuted(values, heads.num_key) if tensor.name.endswith("attn_k.weight") else values


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Round to the nearest, ties to even."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: list[ReaderTensor], heads: Heads, dtype: Dtype) -> None:
    """One file: a header with every tensor's place, then their numbers. https://huggingface.co/docs/safetensors"""
    header: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + int(np.prod(tensor.shape)) * (2 if dtype == "bf16" else 4)
        shape = [int(size) for size in reversed(tensor.shape)]
        header[str(new_name(tensor.name))] = {
            "dtype": dtype.upper(),
            "shape": shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in with_progress(tensors):
            values = tensor_values(tensor, heads)
            file.write((to_bf16(values) if dtype == "bf16" else np.ascontiguousarray(values)).tobytes())
    part.rename(path)


def with_progress(tensors: list[ReaderTensor]) -> Iterator[ReaderTensor]:
    """The tensors one by one, with a bar on a terminal."""
    for number, tensor in enumerate(tensors, start=1):
        yield tensor
        if sys.stdout.isatty():
            percent = number * 100 // len(tensors)
            end = "\n" if number == len(tensors) else ""
            print(f"\r  weights [{'#' * (percent * 30 // 100):<30}] {percent:3d} %", end=end, flush=True)


def model_config(metadata: Metadata, dtype: Dtype, *, is_tied: bool) -> dict[str, Any]:
    width, num_heads = metadata["llama.embedding_length"], metadata["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": metadata["llama.block_count"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_attention_heads": num_heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata.get("llama.attention.key_length", width // num_heads),
        "vocab_size": len(metadata["tokenizer.ggml.tokens"]),
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": metadata.get("llama.rope.freq_base", 10_000.0),
        "tie_word_embeddings": is_tied,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "torch_dtype": "bfloat16" if dtype == "bf16" else "float32",
    }


def tokenizer(metadata: Metadata) -> dict[str, Any]:
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    added = [
        {
            "id": token_id,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == TokenType.CONTROL,
        }
        for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (TokenType.CONTROL, TokenType.USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _CUTTING[metadata["tokenizer.ggml.pre"]],
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {text: token_id for token_id, text in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in metadata["tokenizer.ggml.merges"]],
        },
    }


def tokenizer_config(metadata: Metadata) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": metadata.get("tokenizer.ggml.add_bos_token", False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": metadata["llama.context_length"],
        "chat_template": metadata.get("tokenizer.chat_template"),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = metadata.get(f"tokenizer.ggml.{key}_token_id")
        config[f"{role}_token"] = None if token_id is None else tokens[token_id]
    return config


def main() -> int:
    parser = argparse.ArgumentParser(description="Convert a GGUF file of the Llama architecture to safetensors.")
    parser.add_argument("model", nargs="?", help="the GGUF file; without one the bundled model")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--dtype", choices=("bf16", "f32"), default="bf16", help="numbers of the weights (bf16)")
    options = parser.parse_args()
    try:
        convert(resolve(options.model).path, options.out, options.dtype)
    except (StartupError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
