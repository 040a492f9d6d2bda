"""Which candidates are answered, and the mean that decides it."""

import math

import pytest

from proxy_inference_engine.output.events import Ended, PromptRead, TextDelta, TokenLogprob
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.server.candidates import best
from proxy_inference_engine.server.convert.chat import ChatAnswer, ChatShape
from proxy_inference_engine.server.convert.completions import CompletionAnswer, Shape
from proxy_inference_engine.server.convert.head import Head
from proxy_inference_engine.server.convert.usage import Tally
from proxy_inference_engine.server.generation import Step
from proxy_inference_engine.server.record import Record
from proxy_inference_engine.types import Finished, Logprob, Output, Prefilled, Timings, Token

TIMINGS = Timings(1.0, 2.0, 3.0)
HEAD = Head("id-1", "model", "fp", 123)


def ended(mean: float | None, num_tokens: int = 3) -> Ended:
    return Ended("stop", None, num_tokens, TIMINGS, mean_logprob=mean)


@pytest.mark.parametrize(
    ("means", "num_wanted", "numbers"),
    [
        ([-1.0, -0.5, -2.0], 1, [1]),
        ([-1.0, -0.5, -2.0], 2, [1, 0]),
        ([-1.0, -0.5, -2.0], 3, [1, 0, 2]),
        ([-1.0, -1.0, -1.0], 2, [0, 1]),
        ([-math.inf, -9.0], 1, [1]),
        ([None, None], 1, [0]),
    ],
)
def test_the_likeliest_come_first(means: list[float | None], num_wanted: int, numbers: list[int]) -> None:
    assert best([ended(mean) for mean in means], num_wanted) == numbers


def end_of(outputs: list[Token], **options: list[str]) -> Ended:
    pipeline = Pipeline(ByteTokenizer(), **options)  # type: ignore[arg-type]
    everything: list[Output] = [Prefilled(0), *outputs, Finished("stop", TIMINGS)]
    last = [event for output in everything for event in pipeline.feed(output)][-1]
    assert isinstance(last, Ended)
    return last


def token(id_: int, logprob: float | None, *, is_visible: bool = True) -> Token:
    return Token(id_, None if logprob is None else Logprob(id_, logprob), is_visible)


def test_the_mean_is_over_every_token_also_the_end() -> None:
    assert end_of([token(97, -1.0), token(98, -2.0), token(258, -6.0, is_visible=False)]).mean_logprob == -3.0


def test_without_log_probabilities_there_is_no_mean() -> None:
    assert end_of([token(97, None)]).mean_logprob is None
    assert end_of([]).mean_logprob is None


def test_a_stop_string_leaves_a_mean() -> None:
    stopped = end_of([token(97, -1.0), token(98, -3.0)], stop=["b"])
    assert (stopped.stop_str, stopped.mean_logprob) == ("b", -2.0)


# Two prompts with three candidates each.
MEANS = [-3.0, -1.0, -2.0, -0.1, -0.3, -0.2]


def steps() -> list[Step]:
    entry = TokenLogprob("x", -1.0, b"x", (), 120)
    return [
        [(index, PromptRead(0, None)), (index, TextDelta(f"text {index}", (entry,))), (index, ended(mean))]
        for index, mean in enumerate(MEANS)
    ]


def test_chat_answers_the_best_of_each_conversation() -> None:
    shape = ChatShape(2, has_logprobs=False, include_usage=False, num_candidates=3)
    answer = ChatAnswer(HEAD, Tally([5, 7], 3, Record("r")), shape, shape)
    for step in steps():
        answer.feed(step)
    body = answer.finish()
    assert [(choice["index"], choice["message"]["content"]) for choice in body["choices"]] == [
        (0, "text 1"),
        (1, "text 2"),
        (2, "text 3"),
        (3, "text 5"),
    ]
    assert all(choice["logprobs"] is None for choice in body["choices"])
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (12, 18)


def test_completions_answer_the_best_of_each_prompt() -> None:
    answer = CompletionAnswer(HEAD, Tally([5, 7], 3, Record("r")), Shape(1, (None, None), True, num_candidates=3))
    for step in steps():
        answer.feed(step)
    body = answer.finish()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [(0, "text 1"), (1, "text 3")]
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-1.0]
    assert body["usage"]["completion_tokens"] == 18
