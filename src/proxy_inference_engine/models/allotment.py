"""What a model will take of memory, read off its files before a byte of its weights is loaded."""

from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile, find_mmproj, resolve, weight_bytes
from proxy_inference_engine.runners.checkpoint import CONFIG, Json, read_object, read_optional, weight_files
from proxy_inference_engine.runners.llama_cpp.header import GgufHeader, read_header
from proxy_inference_engine.runners.llama_cpp.weights import MAX_GROWTH, is_slow_layout

_WIDE_TOKENS = 2048  # of a short slot
_LEAST_TOKENS = 2048  # of KV, however little memory there is
_KV_SHARE = 4  # at most this part of what the weights leave of the budget is one model's KV
_CACHE_SHARE = 20
_MAX_CACHE_BYTES = 4 << 30
_BUFFER_BYTES = 96 << 20  # for one pass, beside its logits
_LOGIT_ROWS = 256


class ModelFacts(NamedTuple):
    """What the files say."""

    weight_bytes: int
    values_per_token: int  # numbers that a token leaves in K, and as many in V
    context_tokens: int
    vocabulary: int

    @property
    def buffer_bytes(self) -> int:
        """What a pass needs beside weights and KV."""
        return _BUFFER_BYTES + self.vocabulary * 4 * _LOGIT_ROWS

    def token_bytes(self, *, is_exact: bool) -> int:
        """KV of one token: two bytes a number; exact mode keeps K in 34 bytes per 32 numbers."""
        return int(self.values_per_token * (2 + 34 / 32 if is_exact else 4))


class WordFacts(NamedTuple):
    """What the files say of a model whose weights are elsewhere."""

    context_tokens: int
    num_dimensions: int


class Allotment(NamedTuple):
    """The memory of one model among others, in bytes."""

    weights: int
    kv: int
    cache: int
    buffers: int

    @property
    def num_bytes(self) -> int:
        return sum(self)


def allot(config: Config, max_bytes: int) -> Allotment:
    """What one model gets of a budget for all: what is configured, else what it can use, up to a share.

    Raises StartupError where its files are no good.
    """
    return allot_by(read_facts(config), config, max_bytes)


def allot_by(facts: ModelFacts, config: Config, max_bytes: int) -> Allotment:
    """The context, slots and bytes that a model gets whose facts are known."""
    token_bytes = facts.token_bytes(is_exact=config.exact)
    context = min(config.context or facts.context_tokens, facts.context_tokens)
    wanted = (config.slots * min(_WIDE_TOKENS, context) + context) * token_bytes
    share = max(0, max_bytes - facts.weight_bytes) // _KV_SHARE
    least = min(context, _LEAST_TOKENS) * 2 * token_bytes
    kv = config.kv_memory or max(min(wanted, share), least)
    cache = config.cache_memory
    if cache is None:
        cache = min(_MAX_CACHE_BYTES, max_bytes // _CACHE_SHARE)
    return Allotment(facts.weight_bytes, kv, cache, facts.buffer_bytes)


def read_facts(config: Config) -> ModelFacts:
    """What the files of the configured model say, with adapters, image encoder and draft model. Raises StartupError."""
    file = resolve(config.model, config.cache_dir)
    facts = _of_file(file, can_convert=config.convert_weights == "auto")
    further = 0
    mmproj = find_mmproj(config.mmproj, file) if file.kind == "gguf" else None
    if mmproj is not None:
        further += mmproj.path.stat().st_size
    for adapter in (config.adapters or {}).values():
        files = adapter.glob("*.safetensors") if adapter.is_dir() else [adapter]
        further += sum(path.stat().st_size for path in files if path.is_file())
    values = facts.values_per_token
    if config.draft_model is not None:
        draft = _of_file(resolve(config.draft_model, config.cache_dir), can_convert=config.convert_weights == "auto")
        further += draft.weight_bytes
        values += draft.values_per_token
    return facts._replace(weight_bytes=facts.weight_bytes + further, values_per_token=values)


def read_words(file: ModelFile) -> WordFacts:
    """What a model's files say beside its weights, which are not looked at. Raises StartupError."""
    if file.kind == "safetensors":
        whole = read_optional(file.path / CONFIG)
        config = whole["text_config"] if isinstance(whole.get("text_config"), dict) else whole
        return WordFacts(
            int(config.get("max_position_embeddings") or _LEAST_TOKENS), int(config.get("hidden_size") or 0)
        )
    header = read_header(file.path)
    architecture = header.word("general.architecture") or ""
    context, width = (header.number(f"{architecture}.{key}") or 0 for key in ("context_length", "embedding_length"))
    return WordFacts(context or _LEAST_TOKENS, width)


def _of_file(file: ModelFile, *, can_convert: bool) -> ModelFacts:
    return _of_gguf(file.path, can_convert=can_convert) if file.kind == "gguf" else _of_folder(file.path)


def _of_gguf(path: Path, *, can_convert: bool) -> ModelFacts:
    try:
        return gguf_facts(read_header(path), weight_bytes(path), can_convert=can_convert)
    except (OSError, ValueError) as error:
        raise StartupError(f"model {path.name!r} cannot be read: {error}") from None


def gguf_facts(header: GgufHeader, num_bytes: int, *, can_convert: bool) -> ModelFacts:
    """What the header of a GGUF file of so many bytes says."""
    if can_convert and is_slow_layout(header, num_bytes):
        num_bytes = int(num_bytes * MAX_GROWTH)
    architecture = header.word("general.architecture") or ""

    def number(key: str) -> int:
        return header.number(f"{architecture}.{key}") or 0

    heads = max(1, number("attention.head_count"))
    width = number("attention.key_length") or number("embedding_length") // heads
    values = number("block_count") * (number("attention.head_count_kv") or heads) * width
    vocabulary = header.length("tokenizer.ggml.tokens") or number("vocab_size")
    return ModelFacts(num_bytes, values, number("context_length") or _LEAST_TOKENS, vocabulary)


def _of_folder(folder: Path) -> ModelFacts:
    return folder_facts(read_object(folder / CONFIG), sum(path.stat().st_size for path in weight_files(folder)))


def folder_facts(whole: Json, num_bytes: int) -> ModelFacts:
    """What the config.json of safetensors of so many bytes says."""
    config = whole["text_config"] if isinstance(whole.get("text_config"), dict) else whole

    def number(key: str, default: int = 0) -> int:
        value = config.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else default

    heads = number("num_attention_heads", 1)
    width = number("head_dim") or number("hidden_size") // heads
    values = number("num_hidden_layers") * number("num_key_value_heads", heads) * width
    return ModelFacts(num_bytes, values, number("max_position_embeddings", _LEAST_TOKENS), number("vocab_size"))
