"""Two prompts with three candidates each, for the writers that answer the best of them."""

from proxy_inference_engine.output.events import Ended, PromptRead, TextDelta, TokenLogprob
from proxy_inference_engine.served.stream import Step
from tests.unit.served.scripted import TIMINGS

MEANS = [-3.0, -1.0, -2.0, -0.1, -0.3, -0.2]


def candidate_steps() -> list[Step]:
    entry = TokenLogprob("x", -1.0, b"x", (), 120)
    return [
        [
            (index, PromptRead(0, None)),
            (index, TextDelta(f"text {index}", (entry,))),
            (index, Ended("stop", None, 3, TIMINGS, mean_logprob=mean)),
        ]
        for index, mean in enumerate(MEANS)
    ]
