"""The values that travel between the layers: a checked Request in, Outputs back.

Nothing here validates (the edge did) and nothing here knows HTTP, text or tensors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import PieError

FinishReason = Literal["stop", "length"]

IDLE_PRIORITY = 1_000_000  # a request of this priority, or a larger one, fills time that nobody else wants

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
    typical_p: float = 1.0
    top_n_sigma: float = 0.0  # 0: off
    dynatemp_range: float = 0.0  # around the temperature
    dynatemp_exponent: float = 1.0
    mirostat: int = 0  # version 1 or 2; 0: off
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    takes_any_seed: bool = False  # nobody asked for this one


# Fields of Sampling that say how a step is done, and mean nothing while another field leaves that step out.
STEP_PARAMETERS = (
    *("repetition_window", "dry_base", "dry_allowed_length", "dry_breakers", "xtc_threshold"),
    *("dynatemp_exponent", "mirostat_tau", "mirostat_eta", "takes_any_seed"),
)


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

    @property
    def grammar(self) -> str | None:
        """The grammar of the answer as llguidance compiles it, for an engine that is elsewhere; None: there is none.

        Marker tokens stand in it by their ids in this model's vocabulary. The bounds of reasoning are not in it.
        """
        ...

    @property
    def min_reasoning_tokens(self) -> int: ...

    @property
    def budget(self) -> "ReasoningBudget | None":
        """None: the reasoning has no largest number of tokens."""
        ...

    def start(self) -> Matcher: ...


class ReasoningBudget(Protocol):
    """Reasoning that ends by force, for an engine that is elsewhere and cannot be told so."""

    @property
    def rest(self) -> str:
        """The grammar of what comes then, the end of the reasoning first."""
        ...

    def start(self) -> Matcher:
        """Counts the tokens of one choice; what it forces is the end that is due. It binds nothing else."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Image:
    """A decoded image. Equal images have equal digests."""

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
    """What the engine runs: checked at the edge, frozen, in token ids."""

    id: str
    tenant: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    limits: Limits
    num_choices: int = 1
    num_top_logprobs: int | None = None  # None: no log-probabilities; 0: the chosen token's only
    marks_forced: bool = False  # log-probabilities say which tokens the grammar forced
    num_prompt_logprobs: int | None = None  # of every prompt token (echo); None: none; 0: that token's only
    constraint: Constraint | None = None
    draft_ids: tuple[int, ...] = ()  # the client's guess of the answer, to be checked several tokens at a time
    state_sampling: Mapping[State, Sampling] = field(default_factory=lambda: MappingProxyType({}))
    pin_seconds: float = 0.0  # how long the KV of the prompt is kept before others, once it is computed
    images: tuple[ImageSpan, ...] = ()  # from the first to the last; `prompt_ids` has the family's image token there
    adapter: str | None = None  # the name of a LoRA adapter that was loaded with the model
    priority: int = 0  # smaller ones are served first


class Shortcut:
    """A fast way that honours some fields of a Sampling or Request, and is taken where all others have their defaults.

    So a field that is added later closes every shortcut that was not taught it, instead of being ignored there.
    """

    def __init__(self, *honoured: str) -> None:
        self._honoured = frozenset(honoured)
        self._others: dict[type, tuple[tuple[str, object], ...]] = {}  # the defaults of fields that are not honoured

    def takes(self, value: Sampling | Request) -> bool:
        return all(getattr(value, name) == default for name, default in self._others_of(type(value)))

    def closing(self, value: Sampling | Request) -> Iterator[str]:
        """The names of the fields that keep a value from being taken."""
        yield from (name for name, default in self._others_of(type(value)) if getattr(value, name) != default)

    def _others_of(self, kind: type[Sampling | Request]) -> tuple[tuple[str, object], ...]:
        if kind not in self._others:
            assert self._honoured <= {each.name for each in fields(kind)}, f"{kind.__name__} has no such field"
            others = [each for each in fields(kind) if each.name not in self._honoured]
            self._others[kind] = tuple((each.name, _default(each)) for each in others)
        return self._others[kind]


def _default(of: Field[Any]) -> object:
    """The default of a field. MISSING where it has none: equal to nothing, so that such a field has to be honoured."""
    return of.default if of.default_factory is MISSING else of.default_factory()


@dataclass(frozen=True, slots=True)
class Logprob:
    """Log-probability of one token under the model's own distribution, with the likeliest others."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()
    is_forced: bool | None = None  # whether the grammar left no choice; None: nobody asked


@dataclass(frozen=True, slots=True)
class Prefilled:
    """The prompt is computed. Comes once per choice, before its first token."""

    num_cached_tokens: int
    prompt_logprobs: tuple[Logprob | None, ...] | None = None  # one per prompt token, None for the first
    queued_ms: float = field(default=0.0, compare=False)  # before anything of it was computed


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
    num_cached_tokens: int = 0  # of the prompt, where that is known only in the end


@dataclass(frozen=True, slots=True)
class Failed:
    error: PieError


# Per choice: Prefilled, (Drafted | Token)*, then exactly one of Finished or Failed (Failed may come at any time).
Output = Prefilled | Drafted | Token | Finished | Failed
