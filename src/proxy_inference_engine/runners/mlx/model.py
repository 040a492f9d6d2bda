"""A model in a folder of safetensors, loaded through mlx-lm's architectures. Runs no code of a model's repository.

Of a model that also takes images, this is the part for text; `vision/` loads the image tower.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import ModelInfo
from proxy_inference_engine.runners.checkpoint import (
    CONFIG,
    Json,
    read_chat_template,
    read_object,
    read_tool_template,
    weight_files,
)
from proxy_inference_engine.runners.mlx import library
from proxy_inference_engine.runners.mlx.shape import (
    context_tokens,
    kv_bytes_per_token,
    num_logits,
    num_parameters,
    text_config,
)
from proxy_inference_engine.runners.tokenizer_json import JsonVocabulary, load_vocabulary

_TYPE = re.compile(r"\w+")
_SAMPLE_BYTES, _NUM_SAMPLES = 1 << 16, 16  # of each file of weights, for the fingerprint
_DTYPES = {mx.bfloat16: "bf16", mx.float16: "f16", mx.float32: "f32"}


@dataclass(frozen=True, slots=True, eq=False)
class MlxModel:
    """A loaded model. `end_ids` and everything else about tokens is `vocabulary`'s."""

    path: Path
    config: Json  # as mlx-lm used it
    model: nn.Module
    vocabulary: JsonVocabulary
    info: ModelInfo

    @property
    def end_ids(self) -> frozenset[int]:
        return self.vocabulary.end_ids


def load_model(path: Path, name: str) -> MlxModel:
    """Load a folder with config.json, model*.safetensors and tokenizer.json. Raises StartupError."""
    _refuse_code(path, read_object(path / CONFIG))
    files = weight_files(path)
    model, config = _load(path)
    weights: dict[str, mx.array] = dict(tree_flatten(model.parameters()))
    vocabulary = load_vocabulary(path, num_logits(config, weights))
    info = ModelInfo(
        name=name,
        architecture=config["model_type"],
        description=f"{_rounded(num_parameters(model, weights))} {_precision(config, weights)}",
        context_tokens=context_tokens(config, model),
        chat_template=read_chat_template(path),
        fingerprint=_fingerprint(path, files),
        num_parameters=num_parameters(model, weights),
        weight_bytes=sum(values.nbytes for values in weights.values()),
        kv_bytes_per_token=kv_bytes_per_token(config, model, weights),
        tool_template=read_tool_template(path),
    )
    return MlxModel(path, config, model, vocabulary, info)


def _refuse_code(path: Path, config: Json) -> None:
    """Refuse, before a weight is read, what would need code of its repository or what mlx-lm does not know."""
    if config.get("model_file") is not None:
        raise StartupError(f"model {str(path)!r} brings its own code ('model_file'), which is never run")
    kind = config.get("model_type")
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise StartupError(f"model file {str(path / CONFIG)!r}: 'model_type' should be the name of an architecture")
    if not library.has_architecture(config):
        code = "; code that a model brings ('auto_map') is never run" if config.get("auto_map") else ""
        raise StartupError(f"model {str(path)!r} is a {kind!r}, which {library.version()} does not know{code}")


def _load(path: Path) -> tuple[nn.Module, Json]:
    try:
        return library.load(path)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RuntimeError, OSError) as error:
        reason = (str(error).splitlines() or [repr(error)])[0][:300]
        raise StartupError(f"mlx-lm cannot load {str(path)!r}: {type(error).__name__}: {reason}") from error


def _rounded(number: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return str(number)


def _precision(config: Json, weights: dict[str, mx.array]) -> str:
    quantization = config.get("quantization") or text_config(config).get("quantization")
    if isinstance(quantization, dict) and "bits" in quantization:
        return f"{quantization['bits']}-bit"
    largest = max(weights.values(), key=lambda values: values.nbytes)
    return _DTYPES.get(largest.dtype, str(largest.dtype).rpartition(".")[2])


def _fingerprint(path: Path, files: list[Path]) -> str:
    """A digest of the files' names, sizes and some of their bytes: reading all of a large model would take minutes."""
    digest = hashlib.sha256(library.version().encode())
    for name in (CONFIG, "tokenizer.json", "tokenizer_config.json"):
        digest.update(_bytes(path / name))
    for template in (read_chat_template(path), read_tool_template(path)):
        digest.update((template or "").encode())
    for file in files:
        digest.update(f"{file.name} {file.stat().st_size}\n".encode())
        for sample in _samples(file):
            digest.update(sample)
    return "fp_" + digest.hexdigest()[:12]


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        for index in range(_NUM_SAMPLES):
            file.seek(index * size // _NUM_SAMPLES)
            yield file.read(_SAMPLE_BYTES)
