"""A pass of ours over a batch of tokens for models of the common kind, on CUDA: attention, then a gated product, each
after a norm. What mlx-lm's own layers do in thirteen kernels takes five here, or eight with more than one token.

Which models are of that kind is read from their modules, and proved by the trial in lanes.py.
"""

from typing import Any, NamedTuple

import mlx.core as mx
from mlx import nn
from mlx_lm.models.rope_utils import Llama3RoPE

from proxy_inference_engine.runners.mlx.cuda.fusion import fused_weights
from proxy_inference_engine.runners.mlx.cuda.kernels import (
    Kernels,
    Layer,
    PromptWhere,
    Where,
    joined,
    make_span,
    on_device,
    upload,
)
from proxy_inference_engine.runners.mlx.cuda.products import Norm, Products, make_norm, takes
from proxy_inference_engine.runners.mlx.rows import SlotRow

_KINDS = ("mlx_lm.models.llama", "mlx_lm.models.qwen3")
_QKV, _GATE_UP = ("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj")


class _Layer(NamedTuple):
    attention: Layer
    norm: Norm
    qkv: mx.array
    out: mx.array
    inner_norm: Norm
    gate_up: mx.array
    down: mx.array


class _Weights(NamedTuple):
    embedding: nn.Module
    layers: list[_Layer]
    norm: Norm
    head: mx.array
    frequencies: mx.array  # (width / 2,)

    @property
    def products(self) -> list[mx.array]:
        """Weights of matrix products: one at least for every width that inputs have."""
        return [self.head, *(each for layer in self.layers for each in (layer.qkv, layer.out, layer.down))]


class Decoder:
    """The layers of one model, computed by our kernels over one pool."""

    def __init__(self, weights: _Weights, kernels: Kernels) -> None:
        self._weights = weights
        self._kernels = kernels
        self._products = Products(weights.head.dtype, max(each.shape[1] for each in weights.products))
        angles = mx.arange(kernels.shape.tokens, dtype=mx.float32)[:, None] * weights.frequencies
        self._angles = mx.concatenate([mx.cos(angles), mx.sin(angles)], axis=-1)
        mx.eval(self._angles)

    def logits(self, ids: mx.array, where: Where, turns: mx.array, last: mx.array) -> mx.array:
        """Logits of every row of ids (rows, tokens), whose first token has the position `turns`; of all tokens, `last`
        says whose."""
        rows, tokens = ids.shape
        where = where._replace(turns=turns, angles=self._angles)
        hidden = self._weights.embedding(ids.reshape(-1))
        if rows * tokens == 1:
            return self._compute_one(hidden, where)
        normed = self._compute_many(hidden, where, tokens)
        return (normed if tokens == 1 else normed[last]) @ self._weights.head.T

    def prompt(self, row: SlotRow) -> tuple[mx.array, mx.array]:
        """Logits of the last positions of a long row, (num_logits, vocabulary), and what has to be computed for its K
        and V where no logits are wanted."""
        layers, products, kernels = self._weights.layers, self._products, self._kernels
        num_tokens = row.num_tokens
        turn = row.start if row.turn is None else row.turn
        span = make_span(row.slot, row.start, num_tokens, kernels.shape.tokens)
        where = PromptWhere(
            span=span,
            places=upload([(*span[:3], index, *span[3:]) for index in range(len(layers))]),
            turns=on_device(mx.array([turn])),
            angles=self._angles,
        )
        hidden = self._weights.embedding(on_device(row.ids)[:num_tokens])
        normed = mx.fast.rms_norm(hidden, layers[0].norm.weights, layers[0].norm.eps)
        for layer, following in zip(layers, self._following_norms(), strict=True):
            queries = kernels.turn(normed @ layer.qkv.T, layer.attention, where)
            found = kernels.look(queries, layer.attention, where)
            hidden, normed = products.add_norm(hidden, found @ layer.out.T, layer.inner_norm)
            gated = products.gate(normed @ layer.gate_up.T)
            hidden, normed = products.add_norm(hidden, gated @ layer.down.T, following)
        return normed[num_tokens - row.num_logits :] @ self._weights.head.T, normed

    def _following_norms(self) -> list[Norm]:
        """The norm that follows each layer: that of the next one, or the last."""
        return [*(layer.norm for layer in self._weights.layers[1:]), self._weights.norm]

    def _compute_one(self, hidden: mx.array, where: Where) -> mx.array:
        product = self._products.product
        for layer in self._weights.layers:
            qkv = product(hidden, layer.qkv, norm=layer.norm)
            found = self._attend(qkv, layer, where, 1, ahead=layer.out)
            hidden = product(found, layer.out, added=hidden)
            gated = product(hidden, layer.gate_up, norm=layer.inner_norm, is_gated=True)
            hidden = product(gated, layer.down, added=hidden)
        return product(hidden, self._weights.head, norm=self._weights.norm)

    def _compute_many(self, hidden: mx.array, where: Where, tokens: int) -> mx.array:
        """What the head is given, of all tokens."""
        layers, products = self._weights.layers, self._products
        normed = mx.fast.rms_norm(hidden, layers[0].norm.weights, layers[0].norm.eps)
        for layer, following in zip(layers, self._following_norms(), strict=True):
            found = self._attend(normed @ layer.qkv.T, layer, where, tokens)
            hidden, normed = products.add_norm(hidden, found @ layer.out.T, layer.inner_norm)
            gated = products.gate(normed @ layer.gate_up.T)
            hidden, normed = products.add_norm(hidden, gated @ layer.down.T, following)
        return normed

    def _attend(
        self, qkv: mx.array, layer: _Layer, where: Where, tokens: int, ahead: mx.array | None = None
    ) -> mx.array:
        return self._kernels.attend(joined(qkv, tokens, self._kernels.shape), layer.attention, where, ahead)


def make_decoder(model: nn.Module, kernels: Kernels) -> Decoder | None:
    """A decoder for a model; None where the model is not of the common kind."""
    weights = _read(model, kernels.shape.width) if type(model).__module__ in _KINDS else None
    if weights is None:
        return None
    is_alike = all(each.dtype == kernels.pool.dtype for each in weights.products)
    if not is_alike or not takes(kernels.pool.dtype, (each.shape[1] for each in weights.products)):
        return None
    return Decoder(weights, kernels)


def _read(model: Any, width: int) -> _Weights | None:
    body = model.model
    layers = [_read_layer(index, layer) for index, layer in enumerate(body.layers)]
    frequencies = _frequencies(body.layers[0].self_attn.rope, width)
    head = _plain(model.lm_head.inner) if "lm_head" in model else body.embed_tokens.inner.weight
    if frequencies is None or head is None or type(body.embed_tokens.inner) is not nn.Embedding:
        return None
    read = [layer for layer in layers if layer is not None]
    return _Weights(body.embed_tokens, read, _norm(body.norm), head, frequencies) if len(read) == len(layers) else None


def _read_layer(index: int, layer: Any) -> _Layer | None:
    attention, inner = layer.self_attn, layer.mlp
    qkv, gate_up = fused_weights(attention, _QKV), fused_weights(inner, _GATE_UP)
    out, down = _plain(attention.o_proj), _plain(inner.down_proj)
    if qkv is None or gate_up is None or out is None or down is None:
        return None
    weights, eps = (None, None), 0.0
    if "q_norm" in attention:
        weights, eps = (attention.q_norm.weight, attention.k_norm.weight), attention.q_norm.eps
    return _Layer(
        attention=Layer(index, attention.scale, *weights, eps),
        norm=_norm(layer.input_layernorm),
        qkv=qkv,
        out=out,
        inner_norm=_norm(layer.post_attention_layernorm),
        gate_up=gate_up,
        down=down,
    )


def _plain(module: nn.Module) -> mx.array | None:
    """The weights of a linear layer without a bias; None for any other module."""
    return module.weight if type(module) is nn.Linear and "bias" not in module else None


def _norm(module: Any) -> Norm:
    return make_norm(module.weight, module.eps)


def _frequencies(rope: Any, width: int) -> mx.array | None:
    """How much a position turns each pair; None where more is done than turning halves of whole heads."""
    if type(rope) not in (nn.RoPE, Llama3RoPE) or rope.traditional or rope.dims != width:
        return None
    if type(rope) is nn.RoPE:
        frequencies = rope.scale * rope.base ** (-mx.arange(0, width, 2, dtype=mx.float32) / width)
    else:
        frequencies = 1 / rope._freqs.astype(mx.float32)
    found: mx.array = frequencies
    return found
