"""Requests for tests: what a test does not name is filled in, greedy unless it says otherwise."""

from collections.abc import Sequence

from proxy_inference_engine.types import Limits, Request, Sampling

GREEDY = Sampling(seed=1, temperature=0.0)


def make_request(
    prompt: str | Sequence[int] = "hello",
    *,
    id: str = "r",
    tenant: str = "local",
    max_tokens: int = 8,
    limits: Limits | None = None,
    sampling: Sampling = GREEDY,
    num_choices: int = 1,
    num_top_logprobs: int | None = None,
    num_prompt_logprobs: int | None = None,
    adapter: str | None = None,
    priority: int = 0,
) -> Request:
    """`prompt` is text for the byte tokenizer, or ids. `limits` replaces `max_tokens`."""
    return Request(
        id=id,
        tenant=tenant,
        prompt_ids=tuple(prompt.encode() if isinstance(prompt, str) else prompt),
        sampling=sampling,
        limits=limits or Limits(max_tokens),
        num_choices=num_choices,
        num_top_logprobs=num_top_logprobs,
        num_prompt_logprobs=num_prompt_logprobs,
        adapter=adapter,
        priority=priority,
    )


def random_draws(seed: int) -> Sampling:
    """Plain sampling at temperature 1."""
    return Sampling(seed=seed, temperature=1.0)
