"""Bodies of chat and of text completions alike: null is nothing, and candidates are enough and unseen."""

from typing import Any

import pytest

from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate
from tests.unit.server.apis.shared.refusals import CHAT, TEXT, refusal


@pytest.mark.parametrize(("schema", "body"), [(ChatRequest, CHAT), (CompletionRequest, TEXT)])
def test_null_equals_absent(schema: type[RequestSchema], body: dict[str, Any]) -> None:
    optional = {name: None for name in schema.model_fields if name not in body}
    assert len(optional) > 30
    assert validate(schema, {**body, **optional}) == validate(schema, body)


@pytest.mark.parametrize(("schema", "body"), [(ChatRequest, CHAT), (CompletionRequest, TEXT)])
@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"n": 2, "best_of": 1}, "at least n"),
        ({"n": 16, "best_of": 15}, "at least n"),
        ({"best_of": 2, "stream": True}, "streamed"),
    ],
)
def test_candidates_have_to_be_enough_and_unseen(
    schema: type[RequestSchema], body: dict[str, Any], fields: dict[str, Any], reason: str
) -> None:
    error = refusal(schema, {**body, **fields})
    assert error.param == "best_of" and reason in error.message
