"""What the tokenizer's routes refuse, and by what name."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.tokens.schema import DetokenizeRequest, TokenizeRequest
from tests.unit.server.apis.shared.refusals import HELLO, refusal


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"prompt": "x", "messages": HELLO}, "messages"),
        ({"prompt": 5}, "prompt"),
        ({"prompt": "x", "add_special_tokens": 1}, "add_special_tokens"),
        ({"prompt": "x", "foo": 1}, "foo"),
        ({"messages": HELLO, "tools": [{}]}, "tools[0]"),
        ({"messages": HELLO, "chat_template_kwargs": []}, "chat_template_kwargs"),
    ],
)
def test_tokenize_refuses(body: dict[str, Any], param: str) -> None:
    assert refusal(TokenizeRequest, body).param == param


@pytest.mark.parametrize("tokens", [None, 5, ["1"], [1.5], [True], [-1], "x"])
def test_detokenize_refuses(tokens: Any) -> None:
    param = refusal(DetokenizeRequest, {"tokens": tokens}).param
    assert param is not None and param.startswith("tokens")
