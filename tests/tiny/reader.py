"""A tiny BERT with random weights, in files as vLLM loads them: it reads texts in small letters and writes none."""

import json
from pathlib import Path

import mlx.core as mx
import numpy as np
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

WIDTH, NUM_LAYERS, CONTEXT = 64, 2, 128
_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,!?[]"
VOCABULARY = (*_SPECIALS, *_LETTERS, *(f"##{letter}" for letter in _LETTERS), "the", "sea", "##ver", "ri")


def write_bert(folder: Path, *, seed: int = 0) -> Path:
    folder.mkdir(parents=True)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "hidden_size": WIDTH,
        "num_hidden_layers": NUM_LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": 2 * WIDTH,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": CONTEXT,
        "type_vocab_size": 2,
        "vocab_size": len(VOCABULARY),
        "pad_token_id": 0,
        "torch_dtype": "float32",
    }
    (folder / "config.json").write_text(json.dumps(config))
    _write_tokenizer(folder)
    draw = np.random.default_rng(seed)
    weights = {name: mx.array(draw.normal(0, 0.3, shape).astype(np.float32)) for name, shape in _shapes().items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "pt"})
    return folder


def _write_tokenizer(folder: Path) -> None:
    """As many such files are, it would pad a text and cut it, if it were let."""
    pieces = {piece: number for number, piece in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(models.WordPiece(pieces, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(_SPECIALS))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    ends = [(name, pieces[name]) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.enable_padding(length=32)
    tokenizer.enable_truncation(32)
    tokenizer.save(str(folder / "tokenizer.json"))
    roles = {f"{name[1:-1].lower()}_token": name for name in _SPECIALS}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True, **roles}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def _shapes() -> dict[str, tuple[int, ...]]:
    """As transformers names the weights of BERT."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(VOCABULARY), WIDTH),
        "embeddings.position_embeddings.weight": (CONTEXT, WIDTH),
        "embeddings.token_type_embeddings.weight": (2, WIDTH),
        **_pair("embeddings.LayerNorm", (WIDTH,)),
    }
    for number in range(NUM_LAYERS):
        layer = f"encoder.layer.{number}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes |= _pair(f"{layer}.attention.{name}", (WIDTH, WIDTH))
        shapes |= _pair(f"{layer}.attention.output.LayerNorm", (WIDTH,))
        shapes |= _pair(f"{layer}.intermediate.dense", (2 * WIDTH, WIDTH))
        shapes |= _pair(f"{layer}.output.dense", (WIDTH, 2 * WIDTH))
        shapes |= _pair(f"{layer}.output.LayerNorm", (WIDTH,))
    return shapes


def _pair(name: str, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
