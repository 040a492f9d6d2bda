"""POST /v1/completions. The client's types know no null in logprobs and streams, so some calls are not strict."""

from itertools import chain
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types import Completion

from proxy_inference_engine.runners.fake import FakeRunner
from tests.api.running import MODEL, Running, on_every_runner, running

ASK: dict[str, Any] = {"model": MODEL, "prompt": "Once", "seed": 1, "max_tokens": 20}


def ask(client: OpenAI, **fields: Any) -> Completion:
    extra = fields.pop("extra", {})
    answer: Completion = client.completions.create(**{**ASK, **fields}, extra_body=extra)
    return answer


def texts(answer: Completion) -> list[str]:
    assert [choice.index for choice in answer.choices] == list(range(len(answer.choices)))
    return [choice.text for choice in answer.choices]


@on_every_runner
def test_an_answer_is_complete(client: OpenAI, server: Running) -> None:
    answer = ask(client)
    assert answer.id.startswith("cmpl-") and answer.object == "text_completion"
    assert answer.usage and answer.usage.prompt_tokens == len(server.ids("Once"))
    assert answer.usage.completion_tokens <= 20
    assert answer.choices[0].logprobs is None and answer.choices[0].text


@on_every_runner
def test_the_default_limit_is_sixteen(client: OpenAI) -> None:
    answer = ask(client, max_tokens=None, extra={"ignore_eos": True})
    assert answer.usage and answer.usage.completion_tokens == 16


@on_every_runner
def test_every_prompt_is_answered_in_order(client: OpenAI, server: Running) -> None:
    prompts = ["Once", "upon", "a time", ""[:0] + "there"]
    alone = [texts(ask(client, prompt=prompt, n=2)) for prompt in prompts]
    together = ask(client, prompt=prompts, n=2)
    assert texts(together) == list(chain(*alone))
    assert together.usage and together.usage.prompt_tokens == sum(len(server.ids(prompt)) for prompt in prompts)


@on_every_runner
def test_ids_and_text_are_the_same_prompt(client: OpenAI, server: Running) -> None:
    ids = server.ids("Once")
    assert texts(ask(client, prompt=ids)) == texts(ask(client))
    assert texts(ask(client, prompt=[ids, ids])) == texts(ask(client, prompt=["Once", "Once"]))


def test_special_tokens_are_read_in_a_text(client: OpenAI) -> None:
    """The prompt is the caller's own, as on other servers."""
    ids = [257, *b"user\nHi", 258]
    text = "<|im_start|>user\nHi<|im_end|>"
    assert texts(ask(client, prompt=text)) == texts(ask(client, prompt=ids))
    inert = ask(client, prompt=text, extra={"parse_special": False})
    assert texts(inert) == texts(ask(client, prompt=list(text.encode())))


def test_a_bos_comes_once_or_not_at_all() -> None:
    with running(FakeRunner(has_bos=True)) as live, live.openai() as client:
        with_bos = texts(ask(client, prompt=[256, *b"Once"]))
        assert texts(ask(client)) == texts(ask(client, prompt="<|bos|>Once")) == with_bos
        without = ask(client, extra={"add_special_tokens": False})
        assert texts(without) == texts(ask(client, prompt=list(b"Once"))) != with_bos


@pytest.mark.parametrize(
    ("prompt", "tokens", "offsets"),
    [
        ("a<|im_end|>b", ["<|bos|>", "a", "<|im_end|>", "b"], [0, 0, 1, 11]),
        ("<|bos|>a", ["<|bos|>", "a"], [0, 7]),
        ([256, 97, 258, 98], ["<|bos|>", "a", "<|im_end|>", "b"], [0, 0, 1, 1]),
    ],
)
def test_special_tokens_that_were_written_are_part_of_the_echo(
    prompt: str | list[int], tokens: list[str], offsets: list[int]
) -> None:
    with running(FakeRunner(has_bos=True)) as live, live.openai(is_strict=False) as client:
        choice = ask(client, prompt=prompt, max_tokens=0, echo=True, logprobs=0).choices[0]
        assert choice.text == (prompt if isinstance(prompt, str) else "ab")
        assert choice.logprobs and (choice.logprobs.tokens, choice.logprobs.text_offset) == (tokens, offsets)


@on_every_runner
def test_echo_repeats_the_prompt(client: OpenAI, server: Running) -> None:
    plain = texts(ask(client, n=2))
    assert texts(ask(client, n=2, echo=True)) == ["Once" + text for text in plain]
    assert texts(ask(client, prompt=server.ids("Once"), n=2, echo=True)) == ["Once" + text for text in plain]


@on_every_runner
def test_no_tokens_are_a_valid_wish(client: OpenAI) -> None:
    answer = ask(client, max_tokens=0, echo=True)
    assert texts(answer) == ["Once"] and answer.choices[0].finish_reason == "length"
    assert answer.usage and answer.usage.completion_tokens == 0
    assert texts(ask(client, max_tokens=0)) == [""]


def test_logprobs_are_parallel_lists(client: OpenAI) -> None:
    choice = ask(client, logprobs=2).choices[0]
    logprobs = choice.logprobs
    assert logprobs and logprobs.tokens and logprobs.token_logprobs and logprobs.top_logprobs and logprobs.text_offset
    assert len({len(values) for values in (logprobs.tokens, logprobs.token_logprobs, logprobs.text_offset)}) == 1
    assert "".join(logprobs.tokens) == choice.text
    assert logprobs.text_offset == list(range(len(choice.text)))
    for token, value, top in zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True):
        assert top[token] == value and 2 <= len(top) <= 3


def test_echoed_logprobs_are_those_of_generating(server: Running) -> None:
    """What lm-evaluation-harness relies on: the same tokens score the same as prompt and as answer."""
    with server.openai(is_strict=False) as client:
        first = ask(client, echo=True, logprobs=1, temperature=0, extra={"ignore_eos": True}).choices[0]
        second = ask(client, prompt=list(first.text.encode()), echo=True, logprobs=1, max_tokens=0).choices[0]
    assert first.logprobs and second.logprobs
    assert second.logprobs.tokens == first.logprobs.tokens
    assert second.logprobs.text_offset == first.logprobs.text_offset
    assert second.logprobs.token_logprobs and first.logprobs.token_logprobs
    assert second.logprobs.token_logprobs[0] is None and second.logprobs.top_logprobs[0] is None
    assert second.logprobs.token_logprobs[1:] == pytest.approx(first.logprobs.token_logprobs[1:], abs=1e-4)


@on_every_runner
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"echo": True},
        {"n": 2, "prompt": ["Once", "upon"]},
        {"echo": True, "logprobs": 2, "n": 2, "prompt": ["Once", "upon"]},
        {"stop": "e"},
        {"max_tokens": 0, "echo": True, "logprobs": 1},
    ],
)
def test_streamed_equals_whole(server: Running, fields: dict[str, Any]) -> None:
    with server.openai(is_strict=False) as client:
        answer = ask(client, **fields)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        chunks: list[Completion] = list(client.completions.create(**{**ASK, **fields, **options}))
    for choice in answer.choices:
        own = [part for chunk in chunks for part in chunk.choices if part.index == choice.index]
        assert "".join(part.text for part in own) == choice.text
        assert own[-1].finish_reason == choice.finish_reason
        assert not any(part.finish_reason for part in own[:-1])
        if choice.logprobs is not None:
            for name, values in choice.logprobs.model_dump().items():
                assert list(chain(*(getattr(part.logprobs, name) for part in own if part.logprobs))) == values
    assert answer.usage and chunks[-1].usage and chunks[-1].usage.total_tokens == answer.usage.total_tokens
    assert chunks[-1].choices == []


@on_every_runner
def test_a_stop_string_is_reported(http: httpx.Client) -> None:
    body = {**ASK, "prompt": "Once", "stop": list("abcdefghij"), "ignore_eos": True}
    choice = http.post("/v1/completions", json=body).json()["choices"][0]
    assert choice["finish_reason"] == "stop" and choice["stop_str"] in "abcdefghij"


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [
        ({"suffix": "end"}, "suffix", "unsupported_parameter"),
        ({"prompt": [-1]}, "prompt", None),
        ({"prompt": [260]}, "prompt", None),
        ({"prompt": [[1], [2**40]]}, "prompt", None),
        ({"prompt": ""}, "prompt", None),
        ({"prompt": "x" * 9000}, "prompt", "context_length_exceeded"),
        ({"prompt": ["x", "x" * 9000]}, "prompt", "context_length_exceeded"),
        ({"min_tokens": 30}, "min_tokens", None),
        ({"max_tokens": None, "min_tokens": 17}, "min_tokens", None),
    ],
)
def test_refuses(client: OpenAI, fields: dict[str, Any], param: str, code: str | None) -> None:
    extra = {name: fields.pop(name) for name in ("min_tokens",) if name in fields}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, **dict(fields), extra=extra)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_a_prompt_may_fill_the_context_when_nothing_is_generated(client: OpenAI) -> None:
    answer = ask(client, prompt="x" * 8192, max_tokens=0)
    assert answer.usage and answer.usage.prompt_tokens == 8192
