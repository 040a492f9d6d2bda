"""Running requests through a StepEngine to the end, and what came out."""

import random
from dataclasses import dataclass, field

from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.runners.base import Runner
from proxy_inference_engine.types import Failed, Finished, Limits, Logprob, Prefilled, Request, Sampling, Token

TEXTS = [
    "The history of the bicycle begins in",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "The three most important things to know about bread are",
    "Dear Sir or Madam, I am writing to",
    "In mathematics, a prime number is",
    "The weather in Norway",
    "A list of animals: cat, dog,",
]
LONG = "It was a bright cold day in April, and the clocks were striking thirteen. " * 6


@dataclass(slots=True)
class Answer:
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[Logprob | None] = field(default_factory=list)
    prompt_logprobs: tuple[Logprob | None, ...] | None = None
    num_cached_tokens: int = 0
    reason: str = ""


def make_requests(runner: Runner, *, max_tokens: int = 24, temperature: float = 0.0) -> list[Request]:
    """Eight prompts, half of them over one long prefix."""
    requests = []
    for index, text in enumerate(TEXTS):
        prompt = LONG + text if index % 2 else text
        requests.append(
            Request(
                id=f"r{index}",
                tenant="test",
                prompt_ids=tuple(runner.tokenizer.encode(prompt)),
                sampling=Sampling(seed=index, temperature=temperature),
                limits=Limits(max_tokens, ignore_eos=True),
                num_top_logprobs=1,
            )
        )
    return requests


def run_alone(runner: Runner, request: Request) -> Answer:
    """The reference: nobody else, nothing cached."""
    return run(StepEngine(runner, max_cache_bytes=0), [request])[request.id]


def run(
    engine: StepEngine,
    requests: list[Request],
    *,
    rng: random.Random | None = None,
    answers: dict[str, Answer] | None = None,
) -> dict[str, Answer]:
    """All requests to their end, arriving at once or, with `rng`, at random steps; adds to `answers` if given."""
    answers = answers if answers is not None else {}
    answers |= {request.id: Answer() for request in requests}
    waiting = list(requests)
    while waiting or engine.has_work:
        while waiting and (rng is None or rng.random() < 0.4):
            engine.add(waiting.pop(0))
        step(engine, answers)
        engine.check()
    return answers


def _note(answer: Answer, output: object) -> None:
    match output:
        case Prefilled():
            answer.num_cached_tokens = output.num_cached_tokens
            answer.prompt_logprobs = output.prompt_logprobs
        case Token():
            answer.token_ids.append(output.id)
            answer.logprobs.append(output.logprob)
        case Finished():
            answer.reason = output.reason
        case Failed():
            raise output.error


def step(engine: StepEngine, answers: dict[str, Answer]) -> None:
    for request_id, _, output in engine.step():
        _note(answers[request_id], output)
