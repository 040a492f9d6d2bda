"""Which of several candidates are answered: those whose tokens the model found likeliest on average."""

from collections.abc import Sequence

from proxy_inference_engine.output.events import Ended


def best(candidates: Sequence[Ended], num_wanted: int) -> list[int]:
    """The numbers of the best candidates, the best first; equally good ones in their own order."""
    return sorted(range(len(candidates)), key=lambda number: -_mean(candidates[number]))[:num_wanted]


def _mean(ended: Ended) -> float:
    """A mean, so that a long answer is not worse for its length. An answer without tokens has nothing against it."""
    return 0.0 if ended.mean_logprob is None else ended.mean_logprob
