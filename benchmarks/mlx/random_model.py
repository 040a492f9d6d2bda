"""A model of a given shape with random weights, made on the device: nothing has to be downloaded or read."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama

from proxy_inference_engine.runners.base import ModelInfo
from proxy_inference_engine.runners.mlx.model import MlxModel
from proxy_inference_engine.runners.tokenizer_json import JsonVocabulary


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a Llama; the defaults are those of the 8B one."""

    hidden: int = 4096
    layers: int = 32
    inner: int = 14336
    heads: int = 32
    kv_heads: int = 8
    vocabulary: int = 128256

    @classmethod
    def tiny(cls) -> "Shape":
        return cls(hidden=256, layers=2, inner=512, heads=8, kv_heads=2, vocabulary=1000)

    def config(self) -> dict[str, Any]:
        return {
            "model_type": "llama",
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "intermediate_size": self.inner,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "vocab_size": self.vocabulary,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        }


class Numbers:
    """A vocabulary of which only the size matters. Implements `base.Tokenizer`."""

    bos_id = None
    end_ids: frozenset[int] = frozenset()
    control_ids: frozenset[int] = frozenset()

    def __init__(self, num_tokens: int) -> None:
        self.num_tokens = num_tokens
        self.specials: dict[str, int] = {}

    def encode(self, text: str) -> list[int]:
        return [ord(character) % self.num_tokens for character in text]

    def token_bytes(self, token_id: int) -> bytes:
        return b"%d " % token_id


def make_model(shape: Shape) -> MlxModel:
    config = shape.config()
    model = llama.Model(llama.ModelArgs.from_dict(config))
    model.update(tree_map(_random, model.parameters()))
    mx.eval(model.parameters())
    weights = dict(tree_flatten(model.parameters()))
    info = ModelInfo(
        name="random",
        architecture="llama",
        description="random weights",
        context_tokens=8192,
        chat_template=None,
        fingerprint="fp_random",
        num_parameters=sum(each.size for each in weights.values()),
        weight_bytes=sum(each.nbytes for each in weights.values()),
        kv_bytes_per_token=2 * shape.layers * shape.kv_heads * (shape.hidden // shape.heads) * 2,
    )
    return MlxModel(Path(), config, model, cast(JsonVocabulary, Numbers(shape.vocabulary)), info)


def _random(weights: mx.array) -> mx.array:
    if weights.ndim == 1:
        return mx.ones(weights.shape, mx.bfloat16)
    return (mx.random.normal(weights.shape, dtype=mx.bfloat16) * 0.02).astype(mx.bfloat16)
