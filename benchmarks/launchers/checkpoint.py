"""Writes a llama-architecture GGUF as a folder with safetensors in bfloat16: `checkpoint.py model.gguf folder`.

For servers that do not read GGUF. Runs in an environment of its own, so it imports nothing of ours.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, dequantize
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

_CONTROL = 3  # kind of a token
_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_norm": "input_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_norm": "post_attention_layernorm",
}


def main() -> None:
    reader, folder = GGUFReader(sys.argv[1]), Path(sys.argv[2])
    facts = {name: field.contents() for name, field in reader.fields.items()}
    if facts["general.architecture"] != "llama" or facts["tokenizer.ggml.model"] != "gpt2":
        sys.exit("error: only llama models with a byte-level BPE vocabulary are converted")
    folder.mkdir(parents=True, exist_ok=True)
    tensors = _tensors(reader, facts)
    _write_tensors(folder / "model.safetensors", tensors)
    _write(folder / "config.json", _config(facts, is_tied="lm_head.weight" not in tensors))
    _write_tokenizer(folder, facts)


def _tensors(reader: Any, facts: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    tensors = {}
    for tensor in reader.tensors:
        block, _, name = tensor.name.removesuffix(".weight").rpartition(".")
        values = dequantize(tensor.data, tensor.tensor_type)
        if name in heads:  # llama.cpp keeps the two halves of a rotary pair side by side
            shape = (heads[name], values.shape[0] // heads[name] // 2, 2, values.shape[1])
            values = values.reshape(shape).swapaxes(1, 2).reshape(values.shape)
        number = re.fullmatch(r"blk\.(\d+)", block)
        prefix = f"model.layers.{number[1]}." if number else ""
        tensors[f"{prefix}{_NAMES[name]}.weight"] = values
    return tensors


def _write_tensors(path: Path, tensors: dict[str, NDArray[np.float32]]) -> None:
    """https://github.com/huggingface/safetensors#format"""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, values in tensors.items():
        start, end = end, end + 2 * values.size
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [start, end]}
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for values in tensors.values():
            bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
            rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to the nearest, ties to even
            file.write(rounded.astype("<u2").tobytes())


def _config(facts: dict[str, Any], *, is_tied: bool) -> dict[str, object]:
    num_heads, size = facts["llama.attention.head_count"], facts["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": size,
        "head_dim": size // num_heads,
        "intermediate_size": facts["llama.feed_forward_length"],
        "max_position_embeddings": facts["llama.context_length"],
        "num_attention_heads": num_heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "num_hidden_layers": facts["llama.block_count"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": is_tied,
        "torch_dtype": "bfloat16",
        "vocab_size": len(facts["tokenizer.ggml.tokens"]),
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
    }


def _write_tokenizer(folder: Path, facts: dict[str, Any]) -> None:
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ", 1)) for merge in facts["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "chat_template": facts["tokenizer.chat_template"],
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "model_max_length": facts["llama.context_length"],
    }
    _write(folder / "tokenizer_config.json", settings)


def _write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1))


if __name__ == "__main__":
    main()
