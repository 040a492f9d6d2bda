"""Tiny models that take images, random weights: a GGUF file for text, and an mmproj file for images."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFWriter, TokenType
from numpy.typing import NDArray

from tests.model.gguf_files import finish

WIDTH, NUM_HEADS, NUM_LAYERS, HIDDEN, CONTEXT = 32, 4, 2, 64, 2048
EYE_WIDTH, EYE_HIDDEN, EYE_PATCH, EYE_SIDE = 32, 48, 4, 32
WINDOW = 48  # of the sliding attention of Gemma 3

QWEN = ["<|image_pad|>", "<|vision_start|>", "<|vision_end|>"]
MARKERS = {
    "gemma3": ["<start_of_image>", "<end_of_image>"],
    "idefics3": [
        "<image>",
        "<fake_token_around_image>",
        "<global-img>",
        *[f"<row_{row}_col_{column}>" for row in (1, 2) for column in (1, 2)],
    ],
    "qwen2vl_merger": QWEN,
    "qwen2.5vl_merger": QWEN,
    "qwen3vl_merger": QWEN,
    "mlp": ["<image>"],
}
READERS = {
    "gemma3": "gemma3",
    "idefics3": "llama",
    "qwen2vl_merger": "qwen2vl",
    "qwen2.5vl_merger": "qwen2vl",
    "qwen3vl_merger": "qwen3vl",
    "mlp": "llama",
}
TEMPLATE = (
    "{% for message in messages %}{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}MARKER{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}\n{% endfor %}"
)

Tensor = tuple[str, NDArray[np.float32]]


def write_model(folder: Path, kind: str) -> Path:
    """Both files of a kind of projector; the path of the one that reads."""
    folder.mkdir(parents=True, exist_ok=True)
    write_mmproj(folder / "mmproj-tiny-f16.gguf", kind)
    return write_reader(folder / "tiny.gguf", kind)


def write_reader(path: Path, kind: str) -> Path:
    architecture = READERS[kind]
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(NUM_LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(NUM_HEADS)
    writer.add_head_count_kv(NUM_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture.startswith("qwen"):
        writer.add_rope_dimension_sections([2, 1, 1, 0])
    if architecture == "qwen3vl":
        writer.add_num_deepstack_layers(1)
    elif architecture == "gemma3":
        writer.add_sliding_window(WINDOW)
        writer.add_key_length(WIDTH // NUM_HEADS)
        writer.add_value_length(WIDTH // NUM_HEADS)
    names = MARKERS[kind]
    writer.add_chat_template(TEMPLATE.replace("MARKER", _written(kind)))
    tokens = ["<unk>", "<s>", "</s>", *[f"<0x{byte:02X}>" for byte in range(256)], "\n\n", *names]
    types = [TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.BYTE] * 256, TokenType.NORMAL]
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_types([*types, *[TokenType.CONTROL] * len(names)])
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    finish(writer, _reader_tensors(architecture, len(tokens)))
    return path


def write_mmproj(path: Path, kind: str, *, width: int = WIDTH) -> Path:
    """`width` is that of the vectors it makes."""
    writer = GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", kind)
    numbers = {
        "embedding_length": EYE_WIDTH,
        "attention.head_count": 2,
        "feed_forward_length": EYE_HIDDEN,
        "block_count": NUM_LAYERS,
        "projection_dim": width,
        "image_size": EYE_SIDE,
        "patch_size": EYE_PATCH,
        "projector.scale_factor": 2,
        "preproc_image_size": 2 * EYE_SIDE,
    }
    for key, value in numbers.items():
        writer.add_uint32(f"clip.vision.{key}", value)
    if kind == "qwen2.5vl_merger":
        writer.add_uint32("clip.vision.n_wa_pattern", 2)
        writer.add_uint32("clip.vision.window_size", 4 * EYE_PATCH)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.5] * 3)
    writer.add_array("clip.vision.image_std", [0.5] * 3)
    writer.add_bool("clip.use_gelu", True)
    finish(writer, _eye_tensors(kind, width))
    return path


def _written(kind: str) -> str:
    """What a template writes for an image."""
    marker, *around = MARKERS[kind]
    return f"{around[0]}{marker}{around[1]}" if kind.startswith("qwen") else marker


def _reader_tensors(architecture: str, num_tokens: int) -> Iterator[Tensor]:
    draw = _draw(5)
    yield "token_embd.weight", draw(num_tokens, WIDTH)
    yield "output_norm.weight", _ones(WIDTH)
    yield "output.weight", draw(num_tokens, WIDTH)
    norms = {"attn_norm": WIDTH, "ffn_norm": WIDTH}
    if architecture in ("gemma3", "qwen3vl"):
        norms |= {"attn_q_norm": WIDTH // NUM_HEADS, "attn_k_norm": WIDTH // NUM_HEADS}
    if architecture == "gemma3":
        norms |= {"post_attention_norm": WIDTH, "post_ffw_norm": WIDTH}
    for layer in range(NUM_LAYERS):
        for name, size in norms.items():
            yield f"blk.{layer}.{name}.weight", _ones(size)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            yield f"blk.{layer}.{name}.weight", draw(WIDTH, WIDTH)
        if architecture == "qwen2vl":
            for name in ("attn_q", "attn_k", "attn_v"):
                yield f"blk.{layer}.{name}.bias", draw(WIDTH)
        yield f"blk.{layer}.ffn_gate.weight", draw(HIDDEN, WIDTH)
        yield f"blk.{layer}.ffn_up.weight", draw(HIDDEN, WIDTH)
        yield f"blk.{layer}.ffn_down.weight", draw(WIDTH, HIDDEN)


def _eye_tensors(kind: str, width: int) -> Iterator[Tensor]:
    draw = _draw(7)
    yield "v.patch_embd.weight", draw(EYE_WIDTH, 3, EYE_PATCH, EYE_PATCH)
    if kind.startswith("qwen"):
        yield "v.patch_embd.weight.1", draw(EYE_WIDTH, 3, EYE_PATCH, EYE_PATCH)
    if not kind.startswith("qwen2"):
        yield "v.patch_embd.bias", draw(EYE_WIDTH)
        yield "v.position_embd.weight", draw((EYE_SIDE // EYE_PATCH) ** 2, EYE_WIDTH)
    yield from _norm("v.post_ln")
    attention = {"attn_q": EYE_WIDTH, "attn_k": EYE_WIDTH, "attn_v": EYE_WIDTH}
    if kind == "qwen3vl_merger":
        attention = {"attn_qkv": 3 * EYE_WIDTH}
    for layer in range(NUM_LAYERS):
        for name, size in (attention | {"attn_out": EYE_WIDTH, "ffn_up": EYE_HIDDEN}).items():
            yield f"v.blk.{layer}.{name}.weight", draw(size, EYE_WIDTH)
            yield f"v.blk.{layer}.{name}.bias", draw(size)
        yield f"v.blk.{layer}.ffn_down.weight", draw(EYE_WIDTH, EYE_HIDDEN)
        yield f"v.blk.{layer}.ffn_down.bias", draw(EYE_WIDTH)
        yield from _norm(f"v.blk.{layer}.ln1")
        yield from _norm(f"v.blk.{layer}.ln2")
    yield from _projection(kind, width, draw)


def _projection(kind: str, width: int, draw: Callable[..., NDArray[np.float32]]) -> Iterator[Tensor]:
    merged = 4 * EYE_WIDTH if kind.startswith("qwen") else EYE_WIDTH
    if kind == "gemma3":
        yield "mm.input_projection.weight", draw(EYE_WIDTH, width)
        yield "mm.soft_emb_norm.weight", _ones(EYE_WIDTH)
    elif kind == "idefics3":
        yield "mm.model.fc.weight", draw(width, 4 * EYE_WIDTH)
    else:
        yield "mm.0.weight", draw(merged, merged)
        yield "mm.0.bias", draw(merged)
        yield "mm.2.weight", draw(width, merged)
        yield "mm.2.bias", draw(width)
    if kind == "qwen3vl_merger":
        yield from _norm("v.deepstack.0.norm", merged)
        for name, size in (("fc1", merged), ("fc2", width)):
            yield f"v.deepstack.0.{name}.weight", draw(size, merged)
            yield f"v.deepstack.0.{name}.bias", draw(size)


def _norm(name: str, size: int = EYE_WIDTH) -> Iterator[Tensor]:
    yield f"{name}.weight", _ones(size)
    yield f"{name}.bias", np.zeros(size, np.float32)


def _ones(size: int) -> NDArray[np.float32]:
    return np.ones(size, np.float32)


def _draw(seed: int) -> Callable[..., NDArray[np.float32]]:
    numbers = np.random.default_rng(seed)
    return lambda *shape: numbers.normal(0.0, 0.3, shape).astype(np.float32)
