"""Writes the bundled model, which is a GGUF file, as a folder of safetensors in Hugging Face's layout.

    python scripts/convert_gguf.py --out folder [--dtype bf16|f32]

MLX and most other servers do not read GGUF: the tests and benchmarks give them this folder. The script knows that one
model, a Llama with a byte-level BPE. config.json comes last: a folder that has it is whole.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, dequantize, quantize
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary

CONTROL = 3  # type of a token
TORCH_NAMES = {"f32": "float32", "bf16": "bfloat16"}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
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

Facts = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the bundled model as a folder of safetensors.")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write")
    parser.add_argument("--dtype", choices=TORCH_NAMES, default="bf16", help="numbers of the weights (bf16)")
    options = parser.parse_args()
    path = resolve(None).path
    reader = GGUFReader(path)
    facts = {name: field.contents() for name, field in reader.fields.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    write_weights(options.out / "model.safetensors", reader, facts, options.dtype)
    tokenizer(facts).save(str(options.out / "tokenizer.json"))
    # llama.cpp ends an answer at more tokens than the file names; every engine shall end at the same ones.
    ends = sorted(Vocabulary(Model(path, vocab_only=True)).end_ids)
    for name, value in (
        ("tokenizer_config.json", tokenizer_config(facts)),
        ("generation_config.json", {"eos_token_id": ends}),
        ("config.json", config(facts, options.dtype)),
    ):
        (options.out / name).write_text(json.dumps(value, ensure_ascii=False, indent=2), encoding="utf-8")


def write_weights(path: Path, reader: GGUFReader, facts: Facts, dtype: str) -> None:
    """A header with every array's place, then their numbers: https://huggingface.co/docs/safetensors"""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    kind, end, arrays = GGMLQuantizationType[dtype.upper()], 0, []
    for tensor in reader.tensors:
        values = in_halves(tensor.name, dequantize(tensor.data, tensor.tensor_type), facts)
        arrays.append(quantize(values, kind))
        start, end = end, end + arrays[-1].nbytes
        place = {"dtype": dtype.upper(), "shape": list(values.shape), "data_offsets": [start, end]}
        header[module_name(tensor.name)] = place
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # readers map the numbers as they lie
    with path.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for array in arrays:
            out.write(array.tobytes())


def module_name(name: str) -> str:
    """`blk.7.attn_q.weight` in Hugging Face's words."""
    match = re.fullmatch(r"(?:blk\.(?P<layer>\d+)\.)?(?P<name>\w+)\.weight", name)
    assert match is not None
    layer = "" if match["layer"] is None else f"model.layers.{match['layer']}."
    return f"{layer}{NAMES[match['name']]}.weight"


def in_halves(name: str, values: NDArray[np.float32], facts: Facts) -> NDArray[np.float32]:
    """What a rotation turns together is side by side in GGUF (x0 y0 x1 y1 …) and in two halves at Hugging Face
    (x0 x1 … y0 y1 …). That concerns two matrices of each layer."""
    keys = {"attn_q": "llama.attention.head_count", "attn_k": "llama.attention.head_count_kv"}
    key = keys.get(name.removesuffix(".weight").rpartition(".")[2])
    if key is None:
        return values
    pairs = values.reshape(facts[key], -1, 2, values.shape[1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def tokenizer(facts: Facts) -> Tokenizer:
    tokens, types = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in facts["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({text: token_id for token_id, text in enumerate(tokens)}, merges))
    digits, bytes_ = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_])
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([text for text, kind in zip(tokens, types, strict=True) if kind == CONTROL])
    return made


def tokenizer_config(facts: Facts) -> dict[str, object]:
    tokens = facts["tokenizer.ggml.tokens"]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": facts["llama.context_length"],
        "chat_template": facts["tokenizer.chat_template"],
        "bos_token": tokens[facts["tokenizer.ggml.bos_token_id"]],
        "eos_token": tokens[facts["tokenizer.ggml.eos_token_id"]],
        "unk_token": tokens[facts["tokenizer.ggml.unknown_token_id"]],
        "pad_token": tokens[facts["tokenizer.ggml.padding_token_id"]],
    }


def config(facts: Facts, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": facts["llama.embedding_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_attention_heads": facts["llama.attention.head_count"],
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.rope.dimension_count"],
        "vocab_size": facts["llama.vocab_size"],
        "max_position_embeddings": facts["llama.context_length"],
        "rms_norm_eps": facts["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": facts["llama.rope.freq_base"],
        "tie_word_embeddings": True,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "torch_dtype": TORCH_NAMES[dtype],
    }


if __name__ == "__main__":
    main()
