"""Tiny random models of real architectures, written as Hugging Face style folders when a test wants them."""

from tests.tiny.models import (
    write_gemma3_text,
    write_lfm2,
    write_llama,
    write_quantised,
    write_qwen3,
    write_qwen3_moe,
    write_qwen3_next,
)
from tests.tiny.vocabulary import write_byte_tokenizer, write_piece_tokenizer

__all__ = [
    "write_byte_tokenizer",
    "write_gemma3_text",
    "write_lfm2",
    "write_llama",
    "write_piece_tokenizer",
    "write_quantised",
    "write_qwen3",
    "write_qwen3_moe",
    "write_qwen3_next",
]
