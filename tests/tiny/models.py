"""Tiny text models with random weights in files as mlx-lm loads them. The same seed gives the same numbers."""

import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes
from numpy.typing import NDArray

from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer, write_piece_tokenizer

WIDTH = 64
CONTEXT = 4096
WINDOW = 32

Config = dict[str, Any]  # as in config.json

_PLAIN: Config = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": NUM_TOKENS,
    "max_position_embeddings": CONTEXT,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
}


def write_llama(folder: Path, *, seed: int = 0, head_dim: int = 16) -> Path:
    """Plain attention. vLLM computes it where a head has 32 dimensions at least."""
    config = {**_PLAIN, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "head_dim": head_dim}
    return _write(folder, config, seed)


def write_qwen3(folder: Path, *, seed: int = 0) -> Path:
    """Plain attention with normalised queries and keys; the vocabulary of the logits is larger than the tokenizer's."""
    config = {**_PLAIN, "model_type": "qwen3", "vocab_size": NUM_TOKENS + 16}
    return _write(folder, {**config, "architectures": ["Qwen3ForCausalLM"]}, seed)


def write_gemma3_text(folder: Path, *, seed: int = 0) -> Path:
    """Five layers with a window of 32 tokens, and the third sees everything."""
    config = {
        **_PLAIN,
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "num_hidden_layers": 6,
        "num_key_value_heads": 1,
        "query_pre_attn_scalar": 16,
        "sliding_window": WINDOW,
        "sliding_window_pattern": 3,
        "rope_local_base_freq": 10_000.0,
        "rope_theta": 1_000_000.0,
        "tie_word_embeddings": True,
        "eos_token_id": [1, 5],
    }
    return _write(folder, config, seed)


def write_qwen3_moe(folder: Path, *, seed: int = 0) -> Path:
    """A mixture of experts: two of eight see a token."""
    config = {
        **_PLAIN,
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    }
    return _write(folder, config, seed)


def write_lfm2(folder: Path, *, seed: int = 0) -> Path:
    """A hybrid: short convolutions that remember their last inputs, and attention in two of five layers."""
    config = {
        **_PLAIN,
        "model_type": "lfm2",
        "architectures": ["Lfm2ForCausalLM"],
        "num_hidden_layers": 5,
        "norm_eps": 1e-6,
        "conv_bias": False,
        "conv_L_cache": 3,
        "block_dim": WIDTH,
        "block_multiple_of": 16,
        "block_ffn_dim_multiplier": 1.0,
        "block_auto_adjust_ff_dim": False,
        "block_ff_dim": 128,
        "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"],
        "tie_word_embeddings": True,
    }
    return _write(folder, config, seed)


def write_qwen3_next(folder: Path, *, seed: int = 0) -> Path:
    """A hybrid whose linear attention keeps a state that every token changes; one layer of three sees everything."""
    config = {
        **_PLAIN,
        "model_type": "qwen3_next",
        "architectures": ["Qwen3NextForCausalLM"],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 32,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
        "partial_rotary_factor": 0.5,
        "full_attention_interval": 3,
    }
    return _write(folder, config, seed)


def write_quantised(folder: Path, *, seed: int = 0) -> Path:
    """The Llama in 4 bits, as mlx-lm writes it."""
    quantization = {"group_size": 32, "bits": 4, "mode": "affine"}
    config = {**_PLAIN, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    model = _random_model(config, seed)
    nn.quantize(model, group_size=32, bits=4)
    _write_files(folder, {**config, "quantization": quantization, "quantization_config": quantization})
    _write_weights(folder, model)
    return folder


def _write(folder: Path, config: Config, seed: int) -> Path:
    _write_files(folder, config)
    _write_weights(folder, _random_model(config, seed))
    return folder


def _write_files(folder: Path, config: Config) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if config["model_type"] == "gemma3_text":
        write_piece_tokenizer(folder)
        ends = config["eos_token_id"]
    else:
        write_byte_tokenizer(folder)
        ends = [NUM_TOKENS - 5, NUM_TOKENS - 7]  # <|im_end|>, <|endoftext|>
    (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": ends[0]}, indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}, indent=2))


def _random_model(config: Config, seed: int) -> nn.Module:
    model_class, args_class = _get_classes(config)
    model: nn.Module = model_class(args_class.from_dict(config))
    if config["tie_word_embeddings"] and "lm_head" in model:
        model.pop("lm_head")
    draw = np.random.default_rng(seed)
    parameters: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    shapes = sorted((name, values.shape) for name, values in parameters.items())
    model.load_weights([(name, mx.array(_values(draw, config, name, shape))) for name, shape in shapes])
    return model


def _values(draw: np.random.Generator, config: Config, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Norms near 1, matrices that keep the size of what they map: nothing vanishes and nothing explodes."""
    noise = draw.normal(0.0, 1.0, shape)
    is_gemma = config["model_type"].startswith("gemma")
    if "norm" in name:
        noise = 0.1 * noise + (1.0 if "post_" in name or not is_gemma else 0.0)  # Gemma adds 1 itself
    elif name.endswith("embed_tokens.weight"):  # larger, and what is tied says its input again and again
        noise *= 0.03 if is_gemma else 0.2 if config["tie_word_embeddings"] else 0.5
    elif len(shape) > 1:
        noise *= 1.5 / np.sqrt(shape[1] if "conv" in name else shape[-1])
    return noise.astype(np.float32)


def _write_weights(folder: Path, model: nn.Module) -> None:
    weights = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
