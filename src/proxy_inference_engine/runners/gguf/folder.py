"""A GGUF file of the Llama architecture as a folder in Hugging Face's layout: config, tokenizer, safetensors.

Knows which files would come out wrong, and refuses them.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.gguf.file import LAYOUTS, GgufFile
from proxy_inference_engine.runners.gguf.weights import Numbers, module_name, plain_dtype, quantization, write_weights

_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
# How texts are cut before the merges, by llama.cpp's names for it.
_CUTTING: dict[str, Any] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}
_KNOWN = {
    "general.architecture": ("llama",),
    "tokenizer.ggml.model": ("gpt2",),
    "tokenizer.ggml.pre": tuple(_CUTTING),
}
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens
_TORCH_NAMES = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


def reason_against(file: GgufFile) -> str | None:
    """Why it cannot be converted."""
    for key, known in _KNOWN.items():
        if file.facts.get(key) not in known:
            return f"{key} is {file.facts.get(key)!r}; the converter knows {', '.join(known)}"
    if file.facts.get("llama.rope.scaling.type", "none") != "none" or file.facts.get("llama.expert_count", 0):
        return "the converter knows neither scaled rotary positions nor experts"
    if file.facts.get("split.count", 0) not in (0, 1):
        return "the converter knows no files in several parts"
    for tensor in file.tensors:
        if module_name(tensor) is None:
            return f"the converter does not know the tensor {tensor.name!r}"
        if tensor.kind not in LAYOUTS:
            return f"the tensor {tensor.name!r} is {tensor.kind}; the converter knows {', '.join(LAYOUTS)}"
    return None


def write_folder(
    file: GgufFile,
    out: Path,
    numbers: Numbers,
    generation: Mapping[str, object],
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Write into a folder that is there. `generation` is what generation_config.json says. Raises StartupError."""
    reason = reason_against(file)
    if reason is not None:
        raise StartupError(reason)
    write_weights(file, out / "model.safetensors", numbers, on_progress)
    for name, value in (
        ("config.json", _config(file, numbers)),
        ("generation_config.json", dict(generation)),
        ("tokenizer.json", _tokenizer(file)),
        ("tokenizer_config.json", _tokenizer_config(file)),
    ):
        (out / name).write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def _config(file: GgufFile, numbers: Numbers) -> dict[str, Any]:
    width, num_heads = file.fact("llama.embedding_length"), file.fact("llama.attention.head_count")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "num_hidden_layers": file.fact("llama.block_count"),
        "intermediate_size": file.fact("llama.feed_forward_length"),
        "num_attention_heads": num_heads,
        "num_key_value_heads": file.fact("llama.attention.head_count_kv"),
        "head_dim": file.facts.get("llama.attention.key_length", width // num_heads),
        "vocab_size": len(file.fact("tokenizer.ggml.tokens")),
        "max_position_embeddings": file.fact("llama.context_length"),
        "rms_norm_eps": file.fact("llama.attention.layer_norm_rms_epsilon"),
        "rope_theta": file.facts.get("llama.rope.freq_base", 10_000.0),
        "tie_word_embeddings": all(tensor.name != "output.weight" for tensor in file.tensors),
        "bos_token_id": file.facts.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.fact("tokenizer.ggml.eos_token_id"),
        "torch_dtype": _TORCH_NAMES[plain_dtype(file, numbers)],
    }
    parts = quantization(file) if numbers == "kept" else None
    return config if parts is None else {**config, "quantization": parts}


def _tokenizer(file: GgufFile) -> dict[str, Any]:
    tokens, types = file.fact("tokenizer.ggml.tokens"), file.fact("tokenizer.ggml.token_type")
    added = [
        {
            "id": token_id,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": kind == _CONTROL,
        }
        for token_id, (text, kind) in enumerate(zip(tokens, types, strict=True))
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": _CUTTING[file.fact("tokenizer.ggml.pre")],
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
            "merges": [merge.split(" ") for merge in file.fact("tokenizer.ggml.merges")],
        },
    }


def _tokenizer_config(file: GgufFile) -> dict[str, Any]:
    tokens = file.fact("tokenizer.ggml.tokens")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": file.facts.get("tokenizer.ggml.add_bos_token", False),
        "clean_up_tokenization_spaces": False,
        "model_max_length": file.fact("llama.context_length"),
        "chat_template": file.facts.get("tokenizer.chat_template"),
    }
    for role, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = file.facts.get(f"tokenizer.ggml.{key}_token_id")
        config[f"{role}_token"] = None if token_id is None else tokens[token_id]
    return config
