"""Every parameter of text completions with values it must refuse, and the four forms of a prompt."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.shared.fields import validate
from tests.unit.server.apis.shared.refusals import HELLO, NOT_INTS, SHARED, TEXT, refusal

ONLY_TEXT: dict[str, list[Any]] = {
    "max_tokens": NOT_INTS,
    "max_completion_tokens": [5],
    "logprobs": [True, -1, 6, "1", 10**6],
    "echo": [1, "yes"],
    "suffix": [1, ["x"]],
    "messages": [HELLO],
    "prompt": [
        5, True, [], {}, [[]], ["a", 1], [1, "a"], [1.5], [True], [[1], []], [[1], "a"], [["a"]], [[[1]]],
        ["a"] * 129, [[1]] * 129,
    ],
}  # fmt: skip


@pytest.mark.parametrize("param", SHARED | ONLY_TEXT)
def test_completions_refuse_by_name(param: str) -> None:
    for value in (SHARED | ONLY_TEXT)[param]:
        error = refusal(CompletionRequest, {**TEXT, param: value})
        assert error.param is not None and error.param.startswith(param), (value, error.message)


def test_a_missing_prompt_is_named() -> None:
    assert refusal(CompletionRequest, {"model": "m"}).param == "prompt"


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ["a"]),
        ("", [""]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ([-1, 2**40], [[-1, 2**40]]),  # the vocabulary is the model's to check
    ],
)
def test_prompts_have_four_forms(prompt: Any, prompts: list[Any]) -> None:
    assert validate(CompletionRequest, {**TEXT, "prompt": prompt}).prompt == prompts
