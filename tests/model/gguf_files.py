"""Tiny GGUF models with random weights, written when a test wants them: every kind the bundled model is not."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, PoolingType, TokenType
from numpy.typing import NDArray

WIDTH = 32
NUM_HEADS = 4
NUM_LAYERS = 2
HIDDEN = 64
CONTEXT = 512
WORDS = ("the", "a", "cat", "dog", "sat", "on", "mat", "river", "bank", "money", "paris", "is", "capital", "of")

Tensor = tuple[str, NDArray[np.float32]]


class _Vocabulary(NamedTuple):
    model: str
    tokens: list[str]
    types: list[TokenType]
    scores: list[float]
    specials: dict[str, int]


def write_llama(
    path: Path,
    *,
    pooling: PoolingType | None = None,
    adds_eos: bool = False,
    adds_sep: bool = False,
    facts: Mapping[str, str | float] = MappingProxyType({}),
    seed: int = 5,
) -> Path:
    """A causal model over bytes. With a pooling it calls itself an embedding model. `facts` go into its metadata."""
    writer = GGUFWriter(path, "llama")
    for key, value in facts.items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_float32(key, value)
    _write_sizes(writer)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // NUM_HEADS)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    vocabulary = _byte_vocabulary()
    _write_vocabulary(writer, vocabulary)
    writer.add_add_eos_token(adds_eos)
    writer.add_add_sep_token(adds_sep)
    finish(writer, _llama_tensors(len(vocabulary.tokens), seed))
    return path


def write_quantised_llama(
    path: Path, kind: GGMLQuantizationType, pack: Callable[[NDArray[np.float32]], NDArray[np.uint8]]
) -> Path:
    """A causal model over bytes, of one layer, whose rows are as wide as the widest block; norms are not packed."""
    writer, width = GGUFWriter(path, "llama"), 256
    writer.add_block_count(1)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(width)
    writer.add_feed_forward_length(width)
    writer.add_head_count(NUM_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    vocabulary, draw = _byte_vocabulary(), np.random.default_rng(5)
    _write_vocabulary(writer, vocabulary)
    layer = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    num_rows = dict.fromkeys(("token_embd", "output"), len(vocabulary.tokens))
    for name, rows in {**num_rows, **{f"blk.0.{each}": width for each in layer}}.items():
        writer.add_tensor(f"{name}.weight", pack(_random(draw, rows, width) * np.float32(0.3)), raw_dtype=kind)
    norms = ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm")
    finish(writer, ((f"{name}.weight", np.ones(width, np.float32)) for name in norms))
    return path


def write_adapter(path: Path, *, rank: int = 4, seed: int = 0) -> Path:
    """A LoRA adapter for the causal model, strong enough to change what it says."""
    writer = GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))
    draw = np.random.default_rng(seed)
    tensors = []
    for layer in range(NUM_LAYERS):
        for name in ("attn_q", "attn_v"):
            tensors.append((f"blk.{layer}.{name}.weight.lora_a", _random(draw, rank, WIDTH)))
            tensors.append((f"blk.{layer}.{name}.weight.lora_b", _random(draw, WIDTH, rank)))
    finish(writer, iter(tensors))
    return path


def write_bert(path: Path, *, pooling: PoolingType = PoolingType.MEAN, seed: int = 0) -> Path:
    """An encoder over a few words; with rank pooling it has the head of a reranker."""
    writer = GGUFWriter(path, "bert")
    _write_sizes(writer)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    vocabulary = _word_vocabulary()
    _write_vocabulary(writer, vocabulary)
    writer.add_token_type_count(2)
    finish(writer, _bert_tensors(len(vocabulary.tokens), pooling == PoolingType.RANK, seed))
    return path


def write_split_llama(folder: Path, max_tensors: int = 8) -> list[Path]:
    """The causal model in several parts, in the order of their numbers."""
    writer = GGUFWriter(folder / "split.gguf", "llama", split_max_tensors=max_tensors)
    _write_sizes(writer)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // NUM_HEADS)
    vocabulary = _byte_vocabulary()
    _write_vocabulary(writer, vocabulary)
    finish(writer, _llama_tensors(len(vocabulary.tokens)))
    return sorted(folder.glob("split-*-of-*.gguf"))


def _write_sizes(writer: GGUFWriter) -> None:
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_HEADS)


def _byte_vocabulary() -> _Vocabulary:
    tokens = ["<unk>", "<s>", "</s>", "<sep>", *[f"<0x{byte:02X}>" for byte in range(256)]]
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 3, *[TokenType.BYTE] * 256]
    return _Vocabulary("llama", tokens, types, [0.0] * len(tokens), {"unk": 0, "bos": 1, "eos": 2, "sep": 3})


def _word_vocabulary() -> _Vocabulary:
    """llama.cpp marks the beginning of a word, where BERT's own files mark what goes on."""
    letters = "abcdefghijklmnopqrstuvwxyz.?,"
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = [
        *specials,
        *[f"▁{word}" for word in WORDS],
        *letters,
        *[f"▁{letter}" for letter in letters if letter != "a"],
    ]
    types = [TokenType.CONTROL] * len(specials) + [TokenType.NORMAL] * (len(tokens) - len(specials))
    ids = {"pad": 0, "unk": 1, "bos": 2, "sep": 3, "eos": 3, "mask": 4}
    return _Vocabulary("bert", tokens, types, [0.0] * len(tokens), ids)


def _write_vocabulary(writer: GGUFWriter, vocabulary: _Vocabulary) -> None:
    writer.add_tokenizer_model(vocabulary.model)
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.types)
    writer.add_token_scores(vocabulary.scores)
    for name, token_id in vocabulary.specials.items():
        add: Callable[[int], None] = getattr(writer, f"add_{name}_token_id")
        add(token_id)


def _llama_tensors(num_tokens: int, seed: int = 5) -> Iterator[Tensor]:
    draw = np.random.default_rng(seed)
    yield "token_embd.weight", _random(draw, num_tokens, WIDTH)
    yield "output_norm.weight", np.ones(WIDTH, np.float32)
    yield "output.weight", _random(draw, num_tokens, WIDTH)
    for layer in range(NUM_LAYERS):
        yield f"blk.{layer}.attn_norm.weight", np.ones(WIDTH, np.float32)
        yield f"blk.{layer}.ffn_norm.weight", np.ones(WIDTH, np.float32)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", _random(draw, WIDTH, WIDTH)
        yield f"blk.{layer}.ffn_gate.weight", _random(draw, HIDDEN, WIDTH)
        yield f"blk.{layer}.ffn_up.weight", _random(draw, HIDDEN, WIDTH)
        yield f"blk.{layer}.ffn_down.weight", _random(draw, WIDTH, HIDDEN)


def _bert_tensors(num_tokens: int, has_head: bool, seed: int) -> Iterator[Tensor]:
    draw = np.random.default_rng(seed)
    yield "token_embd.weight", _random(draw, num_tokens, WIDTH)
    yield "token_types.weight", _random(draw, 2, WIDTH)
    yield "position_embd.weight", _random(draw, CONTEXT, WIDTH)
    yield from _norm("token_embd_norm")
    for layer in range(NUM_LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", _random(draw, WIDTH, WIDTH)
            yield f"blk.{layer}.{name}.bias", np.zeros(WIDTH, np.float32)
        yield f"blk.{layer}.ffn_up.weight", _random(draw, HIDDEN, WIDTH)
        yield f"blk.{layer}.ffn_up.bias", np.zeros(HIDDEN, np.float32)
        yield f"blk.{layer}.ffn_down.weight", _random(draw, WIDTH, HIDDEN)
        yield f"blk.{layer}.ffn_down.bias", np.zeros(WIDTH, np.float32)
        yield from _norm(f"blk.{layer}.attn_output_norm")
        yield from _norm(f"blk.{layer}.layer_output_norm")
    if has_head:
        yield "cls.weight", _random(draw, WIDTH, WIDTH)
        yield "cls.bias", np.zeros(WIDTH, np.float32)
        yield "cls.output.weight", _random(draw, 1, WIDTH)
        yield "cls.output.bias", np.zeros(1, np.float32)


def _norm(name: str) -> Iterator[Tensor]:
    yield f"{name}.weight", np.ones(WIDTH, np.float32)
    yield f"{name}.bias", np.zeros(WIDTH, np.float32)


def _random(draw: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return draw.normal(0.0, 0.4, shape).astype(np.float32)


def finish(writer: GGUFWriter, tensors: Iterator[Tensor]) -> None:
    """Write all of it."""
    for name, values in tensors:
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
