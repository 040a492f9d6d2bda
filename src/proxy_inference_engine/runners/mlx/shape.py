"""Sizes of a model, from its config and its weights: logits, context, KV. Knows nothing of files."""

import mlx.core as mx
from mlx import nn

from proxy_inference_engine.runners.checkpoint import Json
from proxy_inference_engine.runners.mlx import library

_LENGTHS = ("max_position_embeddings", "max_seq_len", "max_sequence_length", "seq_length", "n_positions", "n_ctx")
_HEADS = ("lm_head.weight", "embed_tokens.weight", "wte.weight", "tok_embeddings.weight", "word_embeddings.weight")
_UNSAID_CONTEXT = 4096


def text_config(config: Json) -> Json:
    """The part about text in the config of a model that also takes images; else all of it."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def num_logits(config: Json, weights: dict[str, mx.array]) -> int | None:
    """How many numbers the last layer gives: files pad it, so it may be more than there are tokens."""
    for ending in _HEADS:
        for name, values in weights.items():
            if name.endswith(ending):
                return int(values.shape[0])
    size = text_config(config).get("vocab_size")
    return size if isinstance(size, int) else None


def num_parameters(model: nn.Module, weights: dict[str, mx.array]) -> int:
    """How many numbers there were before quantisation, which packs several into one word of 32 bits."""
    packed = {path: module.bits for path, module in model.named_modules() if hasattr(module, "bits")}
    total = 0
    for name, values in weights.items():
        owner, _, part = name.rpartition(".")
        if owner not in packed or part == "bias":
            total += values.size
        elif part == "weight":
            total += values.size * 32 // packed[owner]
    return total


def context_tokens(config: Json, model: nn.Module) -> int:
    """The longest text a model knows: what the config says, else what the architecture takes for granted."""
    for source in (text_config(config), config, *_arguments(model)):
        for key in _LENGTHS:
            value = source.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return _UNSAID_CONTEXT


def kv_bytes_per_token(config: Json, model: nn.Module, weights: dict[str, mx.array]) -> int:
    """K and V of one token in all layers that keep them; where layers see a window only, the most it can be."""
    sizes: Json = {}
    for source in (*reversed(list(_arguments(model))), text_config(config)):
        sizes |= {key: value for key, value in source.items() if value is not None}
    num_heads = sizes.get("num_attention_heads") or 1
    width = sizes.get("head_dim") or sizes.get("hidden_size", 0) // num_heads
    num_kv_heads = sizes.get("num_key_value_heads") or num_heads
    return int(2 * library.num_attention_layers(model) * num_kv_heads * width * _number_bytes(weights))


def _arguments(model: nn.Module) -> list[Json]:
    """What an architecture was built with, defaults included: of the text part first."""
    parts = (getattr(model, "language_model", None), model)
    return [vars(part.args) for part in parts if part is not None and hasattr(part, "args")]


def _number_bytes(weights: dict[str, mx.array]) -> int:
    """The size of the numbers a layer computes with: those of the embedding, or of its scales where it is quantised."""
    floats = {name: values for name, values in weights.items() if mx.issubdtype(values.dtype, mx.floating)}
    embeddings = (values for name, values in floats.items() if "embed" in name or "wte" in name)
    return int(next(embeddings, next(iter(floats.values()))).dtype.size)
