"""What is asked of a served model, whoever asks: a prompt, wishes, and what the answer has to look like.

Plain values. Nothing here is checked against a model yet, and nothing here knows a wire format.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from proxy_inference_engine.interaction import Interaction
from proxy_inference_engine.state_machine.demand import AnyText, Demand, InvalidDemand

# What work beside the text counts for, in characters: DRY looks at the whole vocabulary, a grammar is compiled.
_VOCABULARY_CHARS = _COMPILING_CHARS = 1 << 18

Turns = Sequence[Interaction]
# How whoever asks calls a parameter, and what a refused demand is about.
ParamNamer = Callable[[str], str]
DemandNamer = Callable[[InvalidDemand, Demand], str]

ANYTHING = Demand()


@dataclass(frozen=True, slots=True)
class SamplingWishes:
    """How tokens are to be chosen; None: as the model's own defaults have it. `types.Sampling` explains the fields."""

    seed: int | None = None  # None: a random one
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    repetition_window: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_sequence_breakers: Sequence[str] | None = None  # None: the usual ones
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Mapping[int, float] | None = None


@dataclass(frozen=True, slots=True)
class LimitWishes:
    """When the answer is to end."""

    max_tokens: int | None = None  # None: all that is left of the context
    min_tokens: int = 0
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False


class TemplateArguments(TypedDict):
    variables: Mapping[str, Any]
    add_generation_prompt: bool
    continue_final: bool


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, to be written down with the model's chat template."""

    turns: Turns
    variables: Mapping[str, Any] = field(default_factory=dict)  # for the template
    add_generation_prompt: bool = True
    continue_final: bool = False  # the answer goes on with the last turn
    can_shorten: bool = False  # the oldest turns may be left out where all of them do not fit

    @property
    def num_chars(self) -> int:
        """All that the template goes through."""
        return sum(map(_num_chars, self.turns))

    @property
    def has_images(self) -> bool:
        return any(turn.images for turn in self.turns)

    @property
    def template_arguments(self) -> TemplateArguments:
        return {
            "variables": self.variables,
            "add_generation_prompt": self.add_generation_prompt,
            "continue_final": self.continue_final,
        }


def _num_chars(turn: Interaction) -> int:
    calls = sum(len(call.arguments) for call in turn.calls)
    return sum(len(part.text) for part in turn.content) + len(turn.metadata.get("reasoning_content", "")) + calls


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """Text or token ids as they are. With a suffix, the answer is to fill the gap between the two.

    A text is its writer's own, so special tokens are read in it, but not around a gap: there it is somebody's code.
    """

    content: str | Sequence[int]
    suffix: str = ""
    reads_specials: bool = True
    adds_bos: bool = True
    begun: str = ""  # how the gap begins

    @property
    def num_chars(self) -> int:
        return len(self.content) + len(self.suffix) + len(self.begun)

    @property
    def texts(self) -> tuple[str, ...]:
        """What is cut into tokens."""
        rest = (self.suffix, self.begun)
        return (self.content, *rest) if isinstance(self.content, str) else rest

    @property
    def has_images(self) -> bool:
        return False


def _name_subject(error: InvalidDemand, _demand: Demand) -> str:
    return error.subject


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to answer, once or several times."""

    id: str
    tenant: str
    prompt: ChatPrompt | RawPrompt
    sampling: SamplingWishes = SamplingWishes()
    limits: LimitWishes = LimitWishes()
    demand: Demand = ANYTHING
    num_choices: int = 1
    num_top_logprobs: int | None = None  # None: no log-probabilities; 0: the chosen token's only
    num_prompt_logprobs: int | None = None
    marks_forced: bool = False  # log-probabilities say which tokens the grammar forced
    num_writings: int = 1  # how often the answer has each of them
    prediction: str = ""  # the client's guess of the answer
    priority: int = 0  # smaller ones are served first
    pin_seconds: float = 0.0  # how long the prompt is to stay in the prefix cache, where others can give way
    name_param: ParamNamer = str  # errors below say "messages" for the prompt; this has the name that the client uses
    name_demand: DemandNamer = _name_subject

    @property
    def is_bound(self) -> bool:
        """Whether a grammar is compiled for it."""
        return bool(self.demand.tools) or not isinstance(self.demand.output, AnyText)

    @property
    def work_chars(self) -> int:
        """How much there is to do before it can be submitted, in characters of text gone through."""
        return self.reading_chars + (_COMPILING_CHARS if self.is_bound else 0)

    @property
    def reading_chars(self) -> int:
        """The same where its grammar is known."""
        scanning = _VOCABULARY_CHARS if self.sampling.dry_multiplier else 0
        return self.prompt.num_chars + len(self.prediction) + scanning


class NotCompiled(Exception):
    """A grammar is not known yet, and making it may take long."""
