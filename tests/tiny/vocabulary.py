"""Tokenizer files of tiny models: a byte-level BPE as GPT-2 and Qwen have it, and one of pieces as Gemma has it."""

import json
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

NUM_TOKENS = 512

CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
USER_DEFINED = ("<tool_call>", "</tool_call>", "<think>", "</think>")  # visible, as in Qwen 3
CHATML = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

TURN_CONTROL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
TURNS = """\
{{- bos_token }}
{%- for message in messages %}
{%- set role = 'model' if message['role'] == 'assistant' else message['role'] %}
{{- '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<start_of_turn>model\\n' }}
{%- endif %}
"""

_CORPUS = (
    "The river runs to the sea, and the sea runs to the sky.",
    "What is the capital of France? The capital of France is Paris.",
    "Once upon a time there was a small cat that sat on a mat and waited for the rain to end.",
    'def main() -> None:\n    print("hello, world")\n    return None\n',
    '{"name": "search", "arguments": {"query": "weather in Paris", "days": 3}}',
    "One two three four five six seven eight nine ten 1 2 3 4 5 6 7 8 9 10.",
    "user\nassistant\nsystem\nYou are a helpful assistant. Answer in one sentence.\n",
    "Grüße aus Köln. Ça va? ¿Qué tal? 日本語 中文 русский язык 😀",
)


def write_byte_tokenizer(folder: Path) -> None:
    """ChatML over 512 tokens; every byte has one."""
    (folder / "tokenizer.json").write_text(_byte_tokenizer())
    _write_settings(folder, eos="<|im_end|>", pad="<|endoftext|>", bos=None, template=CHATML)


def write_piece_tokenizer(folder: Path) -> None:
    """Gemma's turns over 512 tokens: `▁` for a space, `<0xNN>` for a byte no piece has, a BOS before every prompt."""
    (folder / "tokenizer.json").write_text(_piece_tokenizer())
    _write_settings(folder, eos="<eos>", pad="<pad>", bos="<bos>", template=TURNS)


def _write_settings(folder: Path, *, eos: str, pad: str, bos: str | None, template: str) -> None:
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": bos is not None,
        "bos_token": bos,
        "eos_token": eos,
        "pad_token": pad,
        "clean_up_tokenization_spaces": False,
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))


@cache
def _byte_tokenizer() -> str:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    num_added = len(CONTROL) + len(USER_DEFINED)
    trainer = trainers.BpeTrainer(
        vocab_size=NUM_TOKENS - num_added,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in USER_DEFINED])
    return tokenizer.to_str(pretty=True)


@cache
def _piece_tokenizer() -> str:
    vocabulary = {text: index for index, text in enumerate(TURN_CONTROL)}
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=NUM_TOKENS - len(vocabulary), show_progress=False)
    trained.train_from_iterator(_CORPUS, trainer)
    model = json.loads(trained.to_str())["model"]
    for text in sorted(model["vocab"], key=model["vocab"].__getitem__):
        vocabulary.setdefault(text, len(vocabulary))
    merges = [(left, right) for left, right in model["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", vocabulary["<bos>"])]
    )
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in TURN_CONTROL])
    return tokenizer.to_str(pretty=True)
