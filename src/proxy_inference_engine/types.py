"""The values that travel between the layers: a proved Request in, Outputs back.

Nothing here validates (the edge did) and nothing here knows HTTP, text or tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import PieError

FinishReason = Literal["stop", "length"]

# Where in its answer a choice stands. Sampling may differ from one to the next.
State = Literal["text", "reasoning", "tool_call", "structured"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How one token is chosen. `sampling/sampler.py` documents the order of the steps."""

    seed: int
    temperature: float = 1.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    repetition_window: int = 0  # last tokens of prompt and output that count; 0: all
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_breakers: frozenset[int] = frozenset()  # token ids no repetition runs across
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Limits:
    """When a choice ends."""

    max_tokens: int  # already clamped to what is left of the context; 0: compute the prompt only
    min_tokens: int = 0
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False


class Matcher(Protocol):
    """Walks one choice's output token by token, and says what may come next."""

    @property
    def state(self) -> State: ...

    @property
    def is_complete(self) -> bool:
        """Nothing but an end token can follow."""
        ...

    def prepare(self) -> None:
        """Work out now what `mask` will say: cheaper while the grammar is still in the processor's caches."""
        ...

    def mask(self) -> NDArray[np.bool_] | None:
        """(vocabulary,): True where a token may come next; None where every token may."""
        ...

    def forced(self) -> list[int]:
        """The tokens that come next whatever the model thinks; [] where it has a choice."""
        ...

    def accept(self, token_id: int) -> None:
        """Take a token that `mask` or `forced` allowed, an end token included."""
        ...


class Constraint(Protocol):
    """What binds the answers of a request: compiled once, walked by each choice on its own."""

    def start(self) -> Matcher: ...


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A decoded picture. Equal pictures have equal digests."""

    digest: bytes  # 32 bytes, of the size and the pixels
    pixels: NDArray[np.uint8]  # (height, width, 3), RGB, upright


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Where in a prompt an image stands: the positions that are its own, not the marker texts around them."""

    start: int
    num_tokens: int
    image: Image


@dataclass(frozen=True, slots=True)
class Request:
    """What the engine runs: proved at the edge, frozen, in token ids."""

    id: str
    tenant: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    limits: Limits
    num_choices: int = 1
    num_top_logprobs: int | None = None  # None: no log-probabilities; 0: the chosen token's only
    num_prompt_logprobs: int | None = None  # the same for every prompt token (echo)
    constraint: Constraint | None = None
    draft_ids: tuple[int, ...] = ()  # the client's guess of the answer, to be checked several tokens at a time
    state_sampling: Mapping[State, Sampling] = field(default_factory=lambda: MappingProxyType({}))
    images: tuple[ImageSpan, ...] = ()  # from the first to the last; `prompt_ids` has the family's image token there


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token under the model's own distribution, with the likeliest others."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is computed. Comes once per choice, before its first token."""

    num_cached_tokens: int
    prompt_logprobs: tuple[Logprob | None, ...] | None = None  # one per prompt token, None for the first


class Token(NamedTuple):  # made for every token of every stream: a frozen dataclass takes nearly twice as long to make
    """One generated token. An end token is counted but not visible."""

    id: int
    logprob: Logprob | None = None
    is_visible: bool = True


@dataclass(frozen=True, slots=True)
class Drafted:
    """How many tokens of the client's guess were right so far, and how many were not.

    Comes before the tokens of the step that showed it.
    """

    num_accepted: int
    num_rejected: int


@dataclass(frozen=True, slots=True)
class Timings:
    queued_ms: float
    prompt_ms: float
    predicted_ms: float


@dataclass(frozen=True, slots=True)
class Finished:
    reason: FinishReason
    timings: Timings
    num_accepted: int = 0  # tokens of the client's guess that were right, and that were not
    num_rejected: int = 0


@dataclass(frozen=True, slots=True)
class Failed:
    error: PieError


# Per choice: Prefilled, (Drafted | Token)*, then exactly one of Finished or Failed (Failed may come at any time).
Output = Prefilled | Drafted | Token | Finished | Failed
