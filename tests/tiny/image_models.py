"""Tiny vision models with random weights, in files as Hugging Face has them, with processor files and markers."""

import hashlib
import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

import mlx.core as mx
import numpy as np
from mlx import nn
from mlx.utils import tree_flatten
from mlx_vlm.models import gemma3, qwen3_vl, qwen3_vl_moe
from numpy.typing import NDArray
from PIL import Image as Pillow
from tokenizers import AddedToken, Tokenizer

from proxy_inference_engine.types import Image
from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer, write_piece_tokenizer

Config = dict[str, Any]  # as in config.json

NUM_EMBEDDINGS = NUM_TOKENS + 8
GEMMA_MARKERS = ("<start_of_image>", "<end_of_image>", "<image_soft_token>")
QWEN_MARKERS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")

GEMMA_TURNS = """\
{{- bos_token }}
{%- for message in messages %}
{{- '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' }}
{%- if message['content'] is string %}
{{- message['content'] | trim }}
{%- else %}
{%- for part in message['content'] %}
{{- '<start_of_image>' if part['type'] == 'image' else part['text'] | trim }}
{%- endfor %}
{%- endif %}
{{- '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

QWEN_TURNS = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}
{{- message['content'] }}
{%- else %}
{%- for part in message['content'] %}
{{- '<|vision_start|><|image_pad|><|vision_end|>' if part['type'] == 'image' else part['text'] }}
{%- endfor %}
{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

_TEXT: Config = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": NUM_EMBEDDINGS,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
}


def write_gemma3(folder: Path, *, seed: int = 0) -> Path:
    """Images of 64x64 pixels and 16 tokens; layers 3 and 6 see everything, the others 32 tokens."""
    text = {
        **_TEXT,
        "model_type": "gemma3_text",
        "num_hidden_layers": 6,
        "query_pre_attn_scalar": 16,
        "sliding_window": 32,
        "sliding_window_pattern": 3,
        "rope_local_base_freq": 10_000.0,
        "rope_theta": 1_000_000.0,
        "mm_tokens_per_image": 16,
    }
    tower = {
        "model_type": "siglip_vision_model",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 64,
        "patch_size": 8,
        "vision_use_head": False,
    }
    config = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "boi_token_index": NUM_TOKENS,
        "eoi_token_index": NUM_TOKENS + 1,
        "image_token_index": NUM_TOKENS + 2,
        "mm_tokens_per_image": 16,
        "vocab_size": NUM_EMBEDDINGS,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        "eos_token_id": [1, 5],
        "text_config": text,
        "vision_config": tower,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_piece_tokenizer(folder)
    _add_markers(folder, GEMMA_MARKERS, GEMMA_TURNS)
    processor = {"image_processor_type": "Gemma3ImageProcessor", "processor_class": "Gemma3Processor"}
    _write_processor(folder, {**processor, "size": {"height": 64, "width": 64}, "resample": 2, "do_pan_and_scan": None})
    (folder / "processor_config.json").write_text(json.dumps({"image_seq_length": 16, **processor}))
    whole = gemma3.ModelConfig(
        gemma3.TextConfig.from_dict(text), gemma3.VisionConfig.from_dict(tower), "gemma3", vocab_size=NUM_EMBEDDINGS
    )
    return _write(folder, config, gemma3.Model(whole), seed)


def write_qwen3_vl(folder: Path, *, seed: int = 0, head_dim: int = 16) -> Path:
    """A token is 8x8 pixels, an image has 4 to 64 of them; two layers get deeper features.

    vLLM computes it where a head has 32 dimensions at least.
    """
    return _write_qwen(folder, qwen3_vl, {"head_dim": head_dim}, seed)


def write_qwen3_vl_moe(folder: Path, *, seed: int = 0) -> Path:
    """The same over a mixture of experts: two of four see a token."""
    experts = {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 32,
        "norm_topk_prob": True,
    }
    return _write_qwen(folder, qwen3_vl_moe, experts, seed)


def _write_qwen(folder: Path, module: ModuleType, more: Config, seed: int) -> Path:
    kind = module.__name__.rpartition(".")[2]
    text = {
        **_TEXT,
        **more,
        "model_type": f"{kind}_text",
        "num_hidden_layers": 3,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
    }
    quarter, eighth = text["head_dim"] // 4, text["head_dim"] // 8
    sections = [quarter, eighth, eighth]
    text["rope_scaling"] = {"rope_type": "default", "mrope_section": sections, "mrope_interleaved": True}
    tower = {
        "model_type": kind,
        "hidden_size": 32,
        "intermediate_size": 64,
        "out_hidden_size": 64,
        "depth": 3,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [0, 2],
    }
    config = {
        "model_type": kind,
        "architectures": [
            "Qwen3VLMoeForConditionalGeneration" if "num_experts" in more else "Qwen3VLForConditionalGeneration"
        ],
        "vision_start_token_id": NUM_TOKENS,
        "vision_end_token_id": NUM_TOKENS + 1,
        "image_token_id": NUM_TOKENS + 2,
        "video_token_id": NUM_TOKENS + 3,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": NUM_TOKENS - 5,
        "text_config": text,
        "vision_config": tower,
    }
    folder.mkdir(parents=True, exist_ok=True)
    write_byte_tokenizer(folder)
    _add_markers(folder, QWEN_MARKERS, QWEN_TURNS)
    processor = {"image_processor_type": "Qwen2VLImageProcessorFast", "processor_class": "Qwen3VLProcessor"}
    sizes = {"size": {"shortest_edge": 4 * 64, "longest_edge": 64 * 64}}
    _write_processor(folder, {**processor, **sizes, "patch_size": 4, "temporal_patch_size": 2, "merge_size": 2})
    whole = module.ModelConfig.from_dict(json.loads(json.dumps(config)))
    return _write(folder, config, module.Model(whole), seed)


def make_image(seed: int, width: int, height: int) -> Image:
    """Random blocks of colour, by way of a PNG file."""
    draw = np.random.default_rng(seed)
    coarse = Pillow.fromarray(draw.integers(0, 256, (4, 4, 3), np.uint8))
    file = BytesIO()
    coarse.resize((width, height), Pillow.Resampling.NEAREST).save(file, "PNG")
    pixels = np.asarray(Pillow.open(file).convert("RGB"))
    digest = hashlib.blake2b(f"{width} {height} ".encode() + pixels.tobytes(), digest_size=32).digest()
    return Image(digest, pixels)


def _add_markers(folder: Path, markers: tuple[str, ...], template: str) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in markers])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    names = {"boi_token": markers[0], "eoi_token": markers[1], "image_token": markers[2]}
    settings |= {"chat_template": template, "extra_special_tokens": names}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


def _write_processor(folder: Path, settings: Config) -> None:
    usual = {
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "rescale_factor": 1 / 255,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    }
    (folder / "preprocessor_config.json").write_text(json.dumps({**usual, **settings}, indent=2))


def _write(folder: Path, config: Config, model: nn.Module, seed: int) -> Path:
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": config["eos_token_id"]}))
    draw = np.random.default_rng(seed)
    shapes = sorted((name, values.shape) for name, values in dict(tree_flatten(model.parameters())).items())
    weights = {name: _values(draw, config, name, shape) for name, shape in shapes}
    renamed = dict(_as_published(config, weights))
    mx.save_safetensors(str(folder / "model.safetensors"), renamed, metadata={"format": "pt"})
    return folder


def _values(draw: np.random.Generator, config: Config, name: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Norms near 1, matrices that keep the size of what they map."""
    noise = draw.normal(0.0, 1.0, shape)
    adds_one = config["model_type"] == "gemma3" and not name.startswith("vision_tower")
    if "norm" in name:
        noise = 0.1 * noise + (0.0 if adds_one or name.endswith("bias") else 1.0)
    elif name.endswith("bias"):
        noise *= 0.1
    elif "embed_tokens" in name:
        noise *= 0.2
    elif "patch_embed" in name:
        noise *= 1.5 / np.sqrt(np.prod(shape[1:]))
    elif len(shape) > 1:
        noise *= 1.5 / np.sqrt(shape[0] if "mm_input" in name else shape[-1])
    return noise.astype(np.float32)


def _as_published(config: Config, weights: dict[str, NDArray[np.float32]]) -> Iterator[tuple[str, mx.array]]:
    for name, values in weights.items():
        if "patch_embed" in name and values.ndim > 2:  # colours come second there
            values = np.moveaxis(values, -1, 1)
        if config["model_type"] == "gemma3":
            if name != "language_model.lm_head.weight":
                yield name, mx.array(values)
        else:
            name = name.replace("language_model.model.", "model.language_model.", 1)
            name = name.replace("language_model.lm_head.", "lm_head.", 1)
            yield name.replace("vision_tower.", "model.visual.", 1), mx.array(values)
