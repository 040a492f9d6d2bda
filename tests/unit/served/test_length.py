"""What is too long is refused for its length or its beginning, and what might fit is not."""

import pytest

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.served.request import (
    MAX_COUNTED_CHARS,
    check_countable,
    check_text,
    cut_hopeless,
    least_tokens,
)


class Words(ByteTokenizer):
    """Has a token of very many characters, as real vocabularies do, and notes how much it has to cut."""

    def __init__(self) -> None:
        super().__init__(defined=[" " * 100])
        self.num_cut = 0

    def encode(self, text: str) -> list[int]:
        self.num_cut += len(text)
        blanks, rest = divmod(text.count(" "), 100)
        return [260] * blanks + [32] * rest + list(text.replace(" ", "").encode())


@pytest.mark.parametrize(
    ("texts", "is_refused", "num_cut"),
    [
        (["x" * 1600], False, 0),
        (["x" * 1601], True, 1600),
        (["x" * 1_000_000], True, 0),  # for its length alone
        (["x" * 30_000], True, 1600),
        (["x" * 100] * 300, True, 1600),
        ([" " * 9000], False, 1600),  # ninety tokens
        ([" " * 1600 + "x" * 300], False, 1600),  # its beginning does not tell: it is cut, and refused then
        ([], False, 0),
    ],
)
def test_as_little_is_cut_as_has_to_be(texts: list[str], is_refused: bool, num_cut: int) -> None:
    """A prompt of 31 MB took 26 seconds of processor time and 2.9 GB before it was refused."""
    tokenizer = Words()
    if is_refused:
        with pytest.raises(ContextLengthExceeded, match="maximum context length is 100 tokens") as caught:
            check_text(texts, tokenizer, 100, "prompt")
        assert caught.value.param == "prompt" and str(sum(map(len, texts))) in caught.value.message
    else:
        check_text(texts, tokenizer, 100, "prompt")
        assert least_tokens(texts, tokenizer, 100) == 0
    assert tokenizer.num_cut in (num_cut, 2 * num_cut)


def test_what_is_only_counted_has_a_limit_too() -> None:
    check_countable(MAX_COUNTED_CHARS, 8192, "prompt")
    check_countable(16 * 1_000_000, 1_000_000, "prompt")
    with pytest.raises(InvalidRequest, match=f"'prompt' has {MAX_COUNTED_CHARS + 1} characters"):
        check_countable(MAX_COUNTED_CHARS + 1, 8192, "prompt")


def test_a_guess_is_cut_before_it_is_cut_into_tokens() -> None:
    assert cut_hopeless("x" * 2000, 100) == "x" * 1600
