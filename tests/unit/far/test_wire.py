"""What goes to vLLM and what comes back, as bytes."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from proxy_inference_engine.far.wire import (
    COMPLETIONS,
    GENERATE,
    AskedChoice,
    FarChunk,
    FarEndpoint,
    FarFailure,
    as_lark,
    only_token,
    read_event,
    read_failure,
)
from proxy_inference_engine.types import Image, ImageSpan, Limits, Logprob, Request, Sampling

ENDS = frozenset({2, 0})
REQUEST = Request("r", "me", (5, 6, 7), Sampling(seed=11, temperature=0.5), Limits(9))


class Bound:
    """A constraint that is only text."""

    grammar = json.dumps({"grammars": [{"name": "main", "lark_grammar": 'start: "a"'}]})
    min_reasoning_tokens = 0
    budget = None

    def start(self) -> Any:
        raise AssertionError("nothing walks it here")


def body(request: Request, endpoint: FarEndpoint = GENERATE, choice: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(AskedChoice(request, choice, "there", ENDS).body(endpoint))
    return found


def params(request: Request, **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = body(request, **more)["sampling_params"]
    return found


def test_token_ids_and_sampling_go_there() -> None:
    said = body(REQUEST)
    assert said["token_ids"] == [5, 6, 7] and said["model"] == "there" and said["stream"] is True
    sampling = said["sampling_params"]
    assert (sampling["max_tokens"], sampling["temperature"], sampling["seed"]) == (9, 0.5, 11)
    assert sampling["stop_token_ids"] == [0, 2] and sampling["detokenize"] is False
    assert "structured_outputs" not in sampling and "logprobs" not in sampling


def test_each_image_is_one_token_there() -> None:
    """Where vLLM puts as many as it counts. What was said so far stands behind all of them."""
    image = Image(bytes(32), np.zeros((2, 2, 3), np.uint8))
    prompt, spans = (5, 9, 9, 9, 6, 9, 9, 7), (ImageSpan(1, 3, image), ImageSpan(5, 2, image))
    request = replace(REQUEST, prompt_ids=prompt, images=spans)
    asked = AskedChoice(request, 0, "there", ENDS, said=(8, 9), num_cuts=1, image_urls=("data:a", "data:b"))
    said = json.loads(asked.body(GENERATE))
    assert said["token_ids"] == [5, 9, 6, 9, 7, 8, 9]
    assert said["content_parts"] == [{"type": "image_url", "url": f"data:{name}"} for name in "ab"]
    assert "content_parts" not in body(REQUEST)


def test_every_choice_has_an_id_and_a_seed_of_its_own() -> None:
    assert [body(REQUEST, choice=number)["request_id"] for number in range(3)] == ["r-0", "r-1", "r-2"]
    assert [params(REQUEST, choice=number)["seed"] for number in range(3)] == [11, 12, 13]
    assert "seed" not in params(replace(REQUEST, sampling=Sampling(seed=11, takes_any_seed=True)))
    largest = replace(REQUEST, sampling=Sampling(seed=(1 << 63) - 1))
    assert params(largest, choice=1)["seed"] == 0
    assert "seed" not in params(replace(REQUEST, sampling=Sampling(seed=1, temperature=0.0)))


def test_ends_are_not_chosen_where_they_are_to_be_ignored() -> None:
    open_ended = replace(REQUEST, limits=Limits(9, ignore_eos=True, stop_token_ids=frozenset({4})))
    said = params(open_ended)
    assert said["ignore_eos"] and said["stop_token_ids"] == [4] and said["logit_bias"] == {"0": -100.0, "2": -100.0}
    bound = params(replace(open_ended, constraint=Bound()))
    assert not bound["ignore_eos"] and bound["stop_token_ids"] == [0, 2, 4]


def test_what_vllm_takes_otherwise() -> None:
    assert params(replace(REQUEST, limits=Limits(0)))["max_tokens"] == 1
    assert 0 < params(replace(REQUEST, sampling=Sampling(seed=1, top_p=0.0)))["top_p"] < 1e-6
    for asked, sent in ((0, 1), (3, 4), (19, 20), (20, 20), (50, 50)):
        assert params(replace(REQUEST, num_top_logprobs=asked))["logprobs"] == sent


def test_tenants_have_salts_of_their_own() -> None:
    mine, yours = body(REQUEST)["cache_salt"], body(replace(REQUEST, tenant="you"))["cache_salt"]
    assert mine != yours and mine == body(replace(REQUEST, id="other"))["cache_salt"] and "me" not in mine


def test_completions_are_asked_for_the_same() -> None:
    said = body(replace(REQUEST, constraint=Bound()), COMPLETIONS)
    assert said["prompt"] == [5, 6, 7] and said["return_token_ids"] and said["return_tokens_as_token_ids"]
    assert said["max_tokens"] == 9 and said["structured_outputs"] == {"grammar": 'start: "a"'}


def test_a_clients_grammar_stands_where_it_is_named() -> None:
    main = 'start: r1\nr0: @g0\nr1: "@g0" r0\nr2: "x: @g0"'
    text = json.dumps(
        {"grammars": [{"name": "main", "lark_grammar": main}, {"name": "g0", "lark_grammar": "start: X"}]}
    )
    assert as_lark(text) == 'start: r1\nr0: %lark {\nstart: X\n}\nr1: "@g0" r0\nr2: "x: @g0"'


def chunk(**choice: Any) -> bytes:
    written = {"index": 0, "finish_reason": None, "stop_reason": None, "token_ids": [1, 2], "logprobs": None, **choice}
    return json.dumps({"request_id": "r", "usage": None, "choices": [written]}, separators=(",", ":")).encode()


def test_tokens_come_back() -> None:
    assert read_event(chunk(), None) == FarChunk([1, 2])
    assert read_event(chunk().replace(b":", b": "), None) == FarChunk([1, 2]), "however it is spaced"
    assert read_event(chunk(finish_reason="stop"), None) == FarChunk([1, 2], None, "stop")
    assert read_event(b"[DONE]", None) is None
    usage = {"prompt_tokens_details": {"cached_tokens": 7}}
    assert read_event(json.dumps({"choices": [], "usage": usage}).encode(), None) == FarChunk([], num_cached_tokens=7)
    assert read_event(json.dumps({"choices": [], "usage": {}}).encode(), None) == FarChunk([])


def test_one_token_that_comes_alone_is_read_at_once() -> None:
    """Whatever else may come goes the longer way."""
    one = b"data: " + chunk(token_ids=[31]) + b"\n\n"
    assert only_token(one) == 31
    last = b"data: " + chunk(token_ids=[31], finish_reason="stop") + b"\n\n"
    two = b"data: " + chunk(token_ids=[31, 32]) + b"\n\n"
    usage = b'data: {"choices":[],"usage":{}}\n\n'
    for other in (
        last,
        two,
        one + one,
        one + last,
        one[:-1],
        one[1:],
        one + one[:9],
        usage + one,
        b"data: [DONE]\n\n",
        b"",
    ):
        assert only_token(other) is None, other


def test_log_probabilities_come_back_in_either_shape() -> None:
    top = [{"token_id": 1, "logprob": -2.0}, {"token_id": 8, "logprob": -0.5}, {"token_id": 9, "logprob": -1.0}]
    content = {"content": [{"token_id": 1, "logprob": -2.0, "top_logprobs": top}]}
    expected = [Logprob(1, -2.0, ((8, -0.5), (9, -1.0)))]
    assert read_event(chunk(token_ids=[1], logprobs=content), 2) == FarChunk([1], expected)
    spelled = {
        "tokens": ["token_id:1"],
        "token_logprobs": [-2.0],
        "top_logprobs": [{"token_id:1": -2.0, "token_id:8": -0.5, "token_id:9": -1.0}],
    }
    assert read_event(chunk(token_ids=[1], logprobs=spelled), 2) == FarChunk([1], expected)


def test_what_went_wrong_is_told() -> None:
    with pytest.raises(FarFailure) as told:
        read_event(b'{"error": {"message": "no", "code": 400}}', None)
    assert (told.value.status, told.value.message) == (400, "no")
    for said, message in (
        (b'{"error": {"message": "no"}}', "no"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b"<html>", "status 502"),
        (b"[]", "status 502"),
    ):
        assert read_failure(502, said).message == message
