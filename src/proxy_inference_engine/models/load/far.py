"""From a configuration to a model that vLLM computes: its words are read here, its engines looked for at their URLs."""

import hashlib
import importlib.util
from typing import NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.far.connections import FarAddress
from proxy_inference_engine.far.engines import FarEngine
from proxy_inference_engine.far.model import FarLimits, FarModel, FarWords
from proxy_inference_engine.far.monitor import Monitor
from proxy_inference_engine.models.allotment import read_words
from proxy_inference_engine.models.resolve import ModelFile, resolve_words
from proxy_inference_engine.models.watcher import Watcher
from proxy_inference_engine.runners.base import EmbeddingInfo, ModelInfo, Tokenizer
from proxy_inference_engine.runners.checkpoint import CONFIG, read_chat_template, read_optional, read_tool_template
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.vision.grid import Cutter, QwenImageEncoder
from proxy_inference_engine.runners.vision.pixels import read_settings

_SLOTS = 256  # what vLLM computes at once, unless it is started otherwise
# Settings that would have to be honoured where the model is computed.
_ELSEWHERE = {
    "adapters": "start vLLM with --lora-modules, and give each adapter a [models.NAME] with far_model",
    "state_sampling": "vLLM samples every state of an answer alike",
    "exact": "start vLLM with VLLM_BATCH_INVARIANT=1",
    "draft_model": "start vLLM with --speculative-config",
    "mmproj": "vLLM has no use for it",
}
# Models of which it is known here how many tokens vLLM makes of an image.
_QWEN_VISION = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe")


def is_far(config: Config) -> bool:
    """Whether the model is computed elsewhere. Raises StartupError where the settings do not say where."""
    if config.engine != "vllm":
        if config.url:
            raise StartupError("url needs engine vllm: --engine vllm")
        return False
    if not config.url:
        raise StartupError("engine vllm needs url: where vLLM listens, such as --url http://127.0.0.1:8000")
    if config.model is None:
        raise StartupError(
            "engine vllm needs model: a folder with tokenizer.json, owner/model in the Hugging Face cache or a GGUF "
            "file, from which the words of the model are read; its weights need not be there"
        )
    for name, advice in _ELSEWHERE.items():
        if getattr(config, name):
            raise StartupError(f"{name} is not possible with engine vllm: {advice}")
    return True


def load_far(config: Config, watcher: Watcher) -> FarModel:
    """The model, whether its engines answer or not. Raises StartupError."""
    words = _load_words(config, resolve_words(config.model, config.cache_dir))
    engines = make_engines(config)
    monitor = Monitor(engines, config.far_model)
    admission = Admission(config.max_waiting, config.max_waiting_per_key, config.max_waiting_tokens)
    num_slots = config.slots if "slots" in config.model_fields_set else _SLOTS
    limits = FarLimits(config.context, num_slots, config.far_timeout_seconds)
    model = FarModel(words, engines, monitor, admission, limits)
    monitor.start()
    for engine in engines:
        if not engine.is_up:
            watcher.say(f"{engine.address} does not answer yet: requests get 503 until it does")
    return model


def make_engines(config: Config) -> list[FarEngine]:
    """Raises StartupError for what is no URL."""
    headers = {} if config.far_key is None else {"Authorization": f"Bearer {config.far_key}"}
    try:
        addresses = list(dict.fromkeys(map(FarAddress.parse, config.url)))
    except ValueError as error:
        raise StartupError(f"url: {error}") from None
    return [FarEngine(address, headers) for address in addresses]


class _Read(NamedTuple):
    tokenizer: Tokenizer
    chat_template: str | None
    architecture: str
    prefix: tuple[int, ...]  # around a text that is embedded
    suffix: tuple[int, ...]
    tool_template: str | None
    image_encoder: QwenImageEncoder | None = None


def _load_words(config: Config, file: ModelFile) -> FarWords:
    read = _read_gguf(config, file) if file.kind == "gguf" else _read_folder(file)
    facts = read_words(file)
    generation = read_optional(file.path / "generation_config.json") if file.kind == "safetensors" else {}
    said = "\0".join((*config.url, config.far_model or "", read.chat_template or "", read.tool_template or ""))
    info = ModelInfo(
        name=file.name,
        architecture=read.architecture,
        description="vLLM",
        context_tokens=facts.context_tokens,
        chat_template=read.chat_template,
        fingerprint=f"fp_{hashlib.sha256(said.encode()).hexdigest()[:10]}",
        num_parameters=0,
        weight_bytes=0,
        kv_bytes_per_token=0,
        generation=generation,
        tool_template=read.tool_template,
    )
    embedding = EmbeddingInfo("last", facts.num_dimensions, facts.context_tokens, read.prefix, (), read.suffix)
    return FarWords(read.tokenizer, info, embedding, read.image_encoder)


def _read_gguf(config: Config, file: ModelFile) -> _Read:
    model = Model(file.path, vocab_only=True, library=start(config.llama_library))
    tokenizer = Vocabulary(model)
    prefix = () if tokenizer.bos_id is None else (tokenizer.bos_id,)
    return _Read(tokenizer, model.chat_template, model.architecture, prefix, (), model.tool_template)


def _read_folder(file: ModelFile) -> _Read:
    if importlib.util.find_spec("tokenizers") is None:
        raise StartupError(
            f"{file.name!r} needs a library to read tokenizer.json: pip install 'proxy-inference-engine[vllm]'; "
            "a GGUF file of the same model can be read without it"
        )
    from proxy_inference_engine.runners.tokenizer_json import load_vocabulary

    tokenizer = load_vocabulary(file.path)
    architecture = str(read_optional(file.path / CONFIG).get("model_type", ""))
    templates = read_chat_template(file.path), read_tool_template(file.path)
    image_encoder = _read_vision(file, tokenizer, architecture)
    return _Read(tokenizer, templates[0], architecture, *tokenizer.frame, templates[1], image_encoder)


def _read_vision(file: ModelFile, tokenizer: Tokenizer, architecture: str) -> QwenImageEncoder | None:
    settings = read_settings(file.path)
    if architecture not in _QWEN_VISION or "patch_size" not in settings:
        return None
    try:
        image_encoder = QwenImageEncoder(tokenizer, Cutter.of(settings, None))
        image_encoder.tokens(64, 64)
    except (TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise StartupError(
            f"the image processor of {file.name!r} is described in a way that is not understood: {error!r}"
        ) from error
    return image_encoder
