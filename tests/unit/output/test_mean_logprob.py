"""The mean log-probability that a choice ends with: what the best of several candidates are chosen by."""

from proxy_inference_engine.output.events import Ended
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.runners.fake import ByteTokenizer
from proxy_inference_engine.types import Finished, Logprob, Output, Prefilled, Timings, Token

TIMINGS = Timings(1.0, 2.0, 3.0)


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
