"""Other servers' words: what each becomes, that neutral values ask for nothing, and that contradictions are refused."""

from typing import Any

import pytest

from proxy_inference_engine.errors import InvalidRequest
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.responses.schema import ResponseRequest
from proxy_inference_engine.server.apis.shared import readings
from proxy_inference_engine.server.apis.shared.fields import CandidateFields, validate
from proxy_inference_engine.server.apis.shared.synonyms import WORDS, Word
from tests.unit.server.apis.shared.refusals import CHAT, TEXT, refusal

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
NAMED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
LARK = 'start: T0\nR0: "yes"\nT0: R0'
CHOICE = {"type": "choice", "choices": ["a", "b"]}
REGEX = {"type": "grammar", "syntax": "regex", "definition": "a+"}
F = {"name": "f", "parameters": SCHEMA}

CHATS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"structured_outputs": {"json": SCHEMA}}, {"response_format": NAMED}),
    ({"structured_outputs": {"choice": ["a", "b"], "whitespace_pattern": None}}, {"response_format": CHOICE}),
    ({"structured_outputs": {"regex": "a+"}}, {"response_format": REGEX}),
    ({"structured_outputs": {"json_object": True}}, {"response_format": {"type": "json_object"}}),
    ({"guided_json": SCHEMA}, {"response_format": NAMED}),
    ({"guided_json": '{"type": "object", "properties": {"a": {"type": "integer"}}}'}, {"response_format": NAMED}),
    ({"guided_regex": "a+"}, {"response_format": REGEX}),
    ({"guided_choice": ["a", "b"]}, {"response_format": CHOICE}),
    (
        {"guided_grammar": 'root ::= "yes"'},
        {"response_format": {"type": "grammar", "syntax": "lark", "definition": LARK}},
    ),
    ({"ebnf": 'root ::= "yes"'}, {"response_format": {"type": "grammar", "syntax": "lark", "definition": LARK}}),
    ({"grammar": 'root ::= "yes"'}, {"response_format": {"type": "grammar", "syntax": "lark", "definition": LARK}}),
    (
        {"guided_grammar": 'start: "a"'},
        {"response_format": {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}},
    ),
    ({"json_schema": SCHEMA}, {"response_format": NAMED}),
    ({"regex": "a+"}, {"response_format": REGEX}),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"response_format": NAMED}),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, {"response_format": NAMED}),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, {"response_format": NAMED}),
    ({"functions": [F]}, {"tools": [{"type": "function", "function": F}], "parallel_tool_calls": False}),
    (
        {"functions": [F], "function_call": {"name": "f"}},
        {
            "tools": [{"type": "function", "function": F}],
            "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "function": {"name": "f"}},
        },
    ),
    (
        {"functions": [F], "function_call": "auto"},
        {"tools": [{"type": "function", "function": F}], "parallel_tool_calls": False, "tool_choice": "auto"},
    ),
    (
        {"tools": [{"type": "function", "function": F}], "tool_choice": "any"},
        {"tools": [{"type": "function", "function": F}], "tool_choice": "required"},
    ),
    ({"n_predict": 5}, {"max_tokens": 5}),
    ({"n_predict": -1}, {}),
    ({"max_tokens": -1}, {}),
    ({"max_completion_tokens": -1}, {}),
    ({"max_new_tokens": 7, "do_sample": False}, {"max_tokens": 7, "temperature": 0}),
    ({"repeat_penalty": 1.1, "repeat_last_n": 64}, {"repetition_penalty": 1.1, "repetition_window": 64}),
    ({"repeat_last_n": -1}, {"repetition_window": 0}),
    ({"top_k": -1}, {"top_k": 0}),
    ({"stop": ["", "x"]}, {"stop": ["x"]}),
    ({"n_probs": 3}, {"logprobs": True, "top_logprobs": 3}),
    ({"logit_bias": [[5, 1.5], [6, False]]}, {"logit_bias": {"5": 1.5, "6": -100}}),
    ({"ban_eos_token": True}, {"ignore_eos": True}),
    ({"lora": [{"id": 0, "scale": 0.0}]}, {}),
    ({"n_cmpl": 2}, {"n": 2}),
    ({"thinking_token_budget": 10}, {"reasoning_budget_tokens": 10}),
    ({"add_special_tokens": False}, {}),
    ({"bad_words": ["tea"]}, {"banned_strings": ["tea"]}),
    ({"min_new_tokens": 3}, {"min_tokens": 3}),
    ({"repetition_penalty_range": 64}, {"repetition_window": 64}),
    ({"penalty_range": 64}, {"repetition_window": 64}),
    ({"typical": 0.5, "mirostat_mode": 2, "nsigma": 1.5}, {"typical_p": 0.5, "mirostat": 2, "top_n_sigma": 1.5}),
    ({"thinking_budget": 10}, {"reasoning_budget_tokens": 10}),
    ({"thinking_budget_tokens": 10}, {"reasoning_budget_tokens": 10}),
    ({"reasoning": {"effort": "high"}}, {"reasoning_effort": "high"}),
    ({"reasoning": {"max_tokens": 10}}, {"reasoning_budget_tokens": 10}),
    ({"thinking": {"type": "enabled", "budget_tokens": 10}}, {"enable_thinking": True, "reasoning_budget_tokens": 10}),
    ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
    ({"reasoning_budget": 10}, {"reasoning_budget_tokens": 10}),
    (
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": False}},
        {"stream": True, "stream_options": {"include_usage": True}},
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), CHATS, ids=lambda each: str(each)[:60])
def test_what_a_chat_may_be_told_in_other_words(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    read = validate(ChatRequest, {**CHAT, **theirs})
    assert dict(read) == dict(validate(ChatRequest, {**CHAT, **ours})) and read.ignored == ()


TEXTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"n_predict": -1}, {"max_tokens": 2**63 - 1}),
    ({"n_probs": 3}, {"logprobs": 3}),
    ({"json_schema": SCHEMA}, {"response_format": NAMED}),
    ({"add_bos_token": False}, {"add_special_tokens": False}),
]


@pytest.mark.parametrize(("theirs", "ours"), TEXTS, ids=lambda each: str(each)[:60])
def test_what_a_completion_may_be_told_in_other_words(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    read, said = (validate(CompletionRequest, {**TEXT, **words}) for words in (theirs, ours))
    assert dict(read) == dict(said)


FLAT = {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}}
RESPONSES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"structured_outputs": {"json": SCHEMA}}, {"text": FLAT}),
    ({"guided_json": SCHEMA, "text": {"verbosity": "low"}}, {"text": {**FLAT, "verbosity": "low"}}),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, {"text": FLAT}),
    ({"structured_outputs": {"json_object": True}}, {"text": {"format": {"type": "json_object"}}}),
    ({"n_predict": 5}, {"max_output_tokens": 5}),
    ({"n_predict": -1}, {}),
    ({"n_probs": 3}, {"top_logprobs": 3}),
    ({"reasoning": {"max_tokens": 10}}, {"reasoning_budget_tokens": 10}),
]


@pytest.mark.parametrize(("theirs", "ours"), RESPONSES, ids=lambda each: str(each)[:60])
def test_what_a_response_may_be_told_in_other_words(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    read, said = (validate(ResponseRequest, {"input": "Hi", **words}) for words in (theirs, ours))
    assert dict(read) == dict(said) and read.ignored == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_json": SCHEMA, "text": {"format": {"type": "text"}}}, "guided_json"),
        ({"guided_json": SCHEMA, "structured_outputs": {"json_object": True}}, "structured_outputs"),
        ({"guided_regex": "a+"}, "guided_regex"),
        ({"guided_json": []}, "guided_json"),
        ({"n_predict": 5, "max_output_tokens": 6}, "n_predict"),
    ],
)
def test_a_response_refuses_the_rest_by_the_clients_own_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        validate(ResponseRequest, {"input": "Hi", **fields})
    assert caught.value.param == param


# Values of fields that are ours too, where they are as good as nothing.
OWN_NEUTRAL = {"stop": "", "typical_p": 1, "mirostat": 0, "top_n_sigma": -1, "banned_strings": []}


@pytest.mark.parametrize("schema", [ChatRequest, CompletionRequest])
def test_a_value_that_asks_for_nothing_is_accepted_whatever_its_name(schema: type[CandidateFields]) -> None:
    body = CHAT if schema is ChatRequest else TEXT
    plain = validate(schema, body)
    for word in WORDS.values():
        if word.name == "add_special_tokens" and schema is CompletionRequest:
            continue  # which has it: there it asks for something
        for value in word.neutral:
            read = validate(schema, {**body, word.name: value})
            assert dict(read) == dict(plain) and read.ignored == (), word
    for name, value in OWN_NEUTRAL.items():
        validate(schema, {**body, name: value})


@pytest.mark.parametrize(
    "word", [word for word in WORDS.values() if word.read is readings.refuse], ids=lambda w: w.name
)
def test_a_wish_that_is_not_granted_is_refused_at_every_other_value(word: Word) -> None:
    schema, body = (CompletionRequest, TEXT) if word.name in ChatRequest.model_fields else (ChatRequest, CHAT)
    if word.name not in schema.model_fields:
        assert refusal(schema, {**body, word.name: "another"}).param == word.name


@pytest.mark.parametrize("word", [word for word in WORDS.values() if word.read is readings.skip], ids=lambda w: w.name)
def test_a_wish_that_has_no_meaning_here_is_named_at_every_other_value(word: Word) -> None:
    assert validate(ChatRequest, {**CHAT, word.name: "another"}).ignored == (word.name,)


def test_what_changes_nothing_here_is_named() -> None:
    theirs = {"id_slot": 3, "cache_prompt": False, "samplers": ["top_k"], "guided_decoding_backend": "xgrammar"}
    assert validate(ChatRequest, {**CHAT, **theirs}).ignored == tuple(theirs)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"use_beam_search": True}, "use_beam_search"),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
        ({"lora": [{"id": 0, "scale": 0}, {"id": 1, "scale": 1}]}, "lora"),
        ({"add_special_tokens": True}, "add_special_tokens"),
        ({"skip_special_tokens": False}, "skip_special_tokens"),
        ({"use_beam_search": 0}, "use_beam_search"),
        ({"guided_json": SCHEMA, "guided_regex": "a"}, "guided_regex"),
        ({"guided_json": SCHEMA, "response_format": {"type": "text"}}, "guided_json"),
        ({"n_predict": 5, "max_tokens": 6}, "n_predict"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"backend": "xgrammar"}}, "structured_outputs"),
        ({"grammar": "root ::= nothing"}, "grammar"),
        ({"functions": [{"name": "a b"}]}, "functions"),
        ({"n_predict": 5, "tempratur": 1}, "tempratur"),
        ({"echo": True}, "echo"),
        ({"add_bos_token": False}, "add_bos_token"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_the_clients_own_name(fields: dict[str, Any], param: str) -> None:
    assert refusal(ChatRequest, {**CHAT, **fields}).param == param


def test_a_grammar_is_refused_with_its_line() -> None:
    with pytest.raises(InvalidRequest, match="line 2: there is no rule 'b'"):
        validate(ChatRequest, {**CHAT, "grammar": "root ::= a\na ::= b"})
