"""The mutable life of one choice, what it is granted of a step, and the request whose choices share a fate.

Owned by the engine thread.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from proxy_inference_engine.cache.disk.tier import Loading
from proxy_inference_engine.engine.drafts.speculation import NO_DRAFT, Guesser
from proxy_inference_engine.runners.base import UNREAD_ID, Logits, Row, TokenIds, Unread
from proxy_inference_engine.sampling.logprobs import logprob_of, prompt_logprobs
from proxy_inference_engine.sampling.sampler import Allowed, InvalidLogits, Sampler
from proxy_inference_engine.types import (
    IDLE_PRIORITY,
    FinishReason,
    ImageSpan,
    Logprob,
    Matcher,
    Request,
    Sampling,
    Shortcut,
    State,
    Timings,
)

# What a request may want while its tokens are forced, or chosen by a device, and nobody here sees their logits.
UNSEEN = Shortcut(
    *("id", "tenant", "prompt_ids", "images", "sampling", "state_sampling", "limits", "num_choices"),
    *("num_prompt_logprobs", "constraint", "draft_ids", "pin_seconds", "adapter", "priority"),
)
MAX_JUMP = 32  # pending tokens; more are computed in chunks, like a prompt


class Samplers:
    """The sampler of one choice, or several where sampling differs from state to state.

    Every sampler that counts tokens takes in every one, so that the penalties of each state know the whole text.
    """

    __slots__ = ("_by_state", "_counting", "_default")

    def __init__(self, request: Request, choice: int, num_tokens: int) -> None:
        def make(sampling: Sampling) -> Sampler:
            return Sampler(sampling, choice=choice, prompt_ids=request.prompt_ids, num_tokens=num_tokens)

        self._default = make(request.sampling)
        self._by_state = {state: make(sampling) for state, sampling in request.state_sampling.items()}
        self._counting = [each for each in (self._default, *self._by_state.values()) if each.counts]

    def sample(
        self,
        logits: Logits,
        position: int,
        banned: Collection[int] = (),
        allowed: Allowed | None = None,
        state: State = "text",
    ) -> int:
        return self.of(state).sample(logits, position, banned, allowed)

    def of(self, state: State) -> Sampler:
        """The sampler that chooses the tokens of a state."""
        return self._by_state.get(state, self._default) if self._by_state else self._default

    def accept(self, token_id: int) -> None:
        for sampler in self._counting:
            sampler.accept(token_id)


@dataclass(slots=True, eq=False)
class Sequence:
    """Stored: the tokens, how many of them have KV in `slot`, and where the choice stands.

    0 ............ num_computed ............ num_tokens
    | KV in the slot |      still to compute      |
    """

    request: Request
    choice: int
    samplers: Samplers
    arrival: int  # order among all sequences; a smaller one is older
    arrived_at: float
    matcher: Matcher | None = None
    drafter: Guesser | None = None  # None: nothing is guessed ahead
    num_computed: int = 0
    slot: int | None = None
    num_cached_tokens: int | None = None  # restored at first admission, for usage
    loading: Loading | None = None  # from the disk, once it was asked
    started_at: float | None = None
    prefilled_at: float | None = None
    is_over: bool = False
    num_prompt_steps: int = 0  # in which its prompt could be computed
    num_snapshot: int = 0  # tokens of the last snapshot of its prompt
    stops: tuple[int, ...] = ()  # places of its prompt where a pass ends, so that a snapshot can be taken
    unread: Unread | None = None  # the last token, while only the device knows it
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)
    ends: frozenset[int] = frozenset()  # tokens that end it
    banned: frozenset[int] = frozenset()  # tokens that it never has
    early_banned: frozenset[int] = frozenset()  # tokens that it does not have while it is shorter than asked for
    deferred_states: frozenset[State] = frozenset()  # in which a device chooses its tokens
    wants_logits: bool = False  # of each of its tokens, for their log-probabilities
    fills_idle: bool = False  # it is computed where nobody else is kept waiting by it
    max_length: int = 0  # prompt and answer: it ends with so many tokens
    num_tokens: int = 0
    num_prompt: int = 0
    root: str = ""  # whose cached prefixes are its own: an adapter's KV is another than the model's
    _buffer: TokenIds = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        self.root = self.tenant if self.request.adapter is None else f"{self.tenant}\0{self.request.adapter}"
        prompt = np.array(self.request.prompt_ids, np.int32)
        for span in self.request.images:
            prompt[span.start : span.start + span.num_tokens] = _image_ids(span)
        self._buffer = np.concatenate([prompt, np.empty(64, np.int32)])
        self.num_tokens = self.num_prompt = len(prompt)
        self.max_length = self.num_prompt + self.request.limits.max_tokens
        self.wants_logits = not UNSEEN.takes(self.request)
        self.fills_idle = self.request.priority >= IDLE_PRIORITY
        if self.request.num_prompt_logprobs is not None:
            self.prompt_logprobs.append(None)  # nothing predicts the first token

    @property
    def ids(self) -> TokenIds:
        return self._buffer[: self.num_tokens]

    def ids_from(self, start: int, count: int) -> TokenIds:
        return self._buffer[start : start + count]

    @property
    def num_generated(self) -> int:
        return self.num_tokens - self.num_prompt

    @property
    def num_pending(self) -> int:
        return self.num_tokens - self.num_computed

    @property
    def num_until_stop(self) -> int:
        """Tokens to compute up to its next stop, or all that are pending where none comes."""
        return next((stop - self.num_computed for stop in self.stops if stop > self.num_computed), self.num_pending)

    @property
    def is_prefilled(self) -> bool:
        return self.prefilled_at is not None

    @property
    def is_decoding(self) -> bool:
        """Whether only its newest tokens are left to compute: the last one, or a jump."""
        num_pending = self.num_tokens - self.num_computed
        return num_pending == 1 or (self.prefilled_at is not None and num_pending <= MAX_JUMP)

    @property
    def is_spent(self) -> bool:
        """Whether all it may say is chosen, and only has to be read."""
        return self.unread is not None and self.num_tokens >= self.max_length

    @property
    def end_reason(self) -> FinishReason | None:
        """Why it ends here: its grammar is complete, or its limit is reached."""
        if self.matcher is not None and self.matcher.is_complete:
            return "stop"
        return "length" if self.num_tokens >= self.max_length else None

    @property
    def wants_prompt_logprobs(self) -> bool:
        return self.request.num_prompt_logprobs is not None and len(self.prompt_logprobs) < self.num_prompt

    @property
    def tenant(self) -> str:
        return self.request.tenant

    @property
    def priority(self) -> int:
        return self.request.priority

    @property
    def reusable_ids(self) -> TokenIds:
        """What may come from the cache: every token whose own logits are not needed any more."""
        return self.ids[: len(self.prompt_logprobs) - 1 if self.wants_prompt_logprobs else self.num_tokens - 1]

    def timings(self, now: float) -> Timings:
        """Where the time of the choice went, if it ends now."""
        started = now if self.started_at is None else self.started_at
        prefilled = now if self.prefilled_at is None else self.prefilled_at
        return Timings(
            queued_ms=(started - self.arrived_at) * 1000,
            prompt_ms=(prefilled - started) * 1000,
            predicted_ms=(now - prefilled) * 1000,
        )

    def append(self, token_id: int) -> None:
        if self.num_tokens == len(self._buffer):
            self._buffer = np.concatenate([self._buffer, np.empty(len(self._buffer), np.int32)])
        self._buffer[self.num_tokens] = token_id
        self.num_tokens += 1

    def append_unread(self, unread: Unread) -> None:
        self.append(UNREAD_ID)
        self.unread = unread

    def settle(self, token_id: int) -> None:
        """The id of the last token, now that it was read."""
        self._buffer[self.num_tokens - 1] = token_id
        self.unread = None

    def add_prompt_logprobs(self, first: int, logits: Logits) -> None:
        """Take in a pass over the prompt: row i of the logits stands at position first + i and predicts the next token.

        Raises InvalidLogits.
        """
        num_known, num_top = len(self.prompt_logprobs), self.request.num_prompt_logprobs
        assert num_top is not None
        logits = logits[num_known - (first + 1) :]  # a preempted prompt repeats known positions
        targets = self.ids[num_known : self.num_prompt][: len(logits)]
        if np.isnan(logits[: len(targets), 0]).any():
            raise InvalidLogits
        self.prompt_logprobs.extend(prompt_logprobs(logits[: len(targets)], targets, num_top))

    def whole(self, end: int) -> int:
        """The first place from `end` on that is not inside an image, which is computed in one piece."""
        for span in self.request.images:
            if span.start < end < span.start + span.num_tokens:
                return span.start + span.num_tokens
        return end

    def whole_before(self, end: int) -> int:
        """The last place up to `end` that is not inside an image."""
        for span in self.request.images:
            if span.start < end < span.start + span.num_tokens:
                return span.start
        return end


def _image_ids(span: ImageSpan) -> TokenIds:
    """Ids that no other image has, below UNREAD_ID: what compares tokens then tells images apart."""
    digest = np.frombuffer(span.image.digest, np.uint32).astype(np.uint64)
    places = np.arange(span.num_tokens, dtype=np.uint64)
    mixed = (digest[places % digest.size] + places * np.uint64(0x9E3779B1)) & np.uint64(0x7FFFFFFF)
    return -2 - (mixed % np.uint64(0x7FFFFFF0)).astype(np.int64).astype(np.int32)


@dataclass(slots=True, eq=False)
class Group:
    """All choices of one request: one failing fails them all, and the request is over when the last one is."""

    request: Request
    sequences: list[Sequence]

    @property
    def is_over(self) -> bool:
        return all(sequence.is_over for sequence in self.sequences)


class Grant(NamedTuple):
    """What a sequence may compute in a step: so many of its own tokens; after the last, a guess of what may follow."""

    sequence: Sequence
    num_tokens: int
    draft_ids: TokenIds = NO_DRAFT


def make_row(grant: Grant) -> Row:
    """A sequence's part of the forward pass that computes its grant."""
    sequence, num_tokens, draft_ids = grant
    slot, start = sequence.slot, sequence.num_computed
    assert slot is not None
    ids = sequence.ids_from(start, num_tokens)
    num_logits = 1 if start + num_tokens == sequence.num_tokens else 0
    if len(draft_ids):
        ids, num_logits = np.concatenate([ids, draft_ids]), 1 + len(draft_ids)
    elif sequence.prompt_logprobs and sequence.wants_prompt_logprobs:
        num_logits = num_tokens
    return Row(slot, start, ids, num_logits, sequence.request.images, sequence.unread, sequence.request.adapter)


class Work(NamedTuple):
    """What a pass computes, as the pace counts it."""

    num_decoding: int  # rows
    num_prompt_tokens: int


def plain_work(grants: Iterable[Grant]) -> Work | None:
    """The work of a pass; None where a decoding row of it computes more than its one token."""
    num_decoding = num_prompt_tokens = 0
    for sequence, num_tokens, draft_ids in grants:
        num_pending = sequence.num_tokens - sequence.num_computed
        if len(draft_ids) or (num_pending > 1 and sequence.is_decoding):
            return None
        if num_pending == 1:
            num_decoding += 1
        else:
            num_prompt_tokens += num_tokens
    return Work(num_decoding, num_prompt_tokens)


_NOTHING: frozenset[int] = frozenset()


class Choosing:
    """Knows the model's end tokens, and nothing of any one choice."""

    def __init__(self, end_ids: frozenset[int]) -> None:
        self._end_ids = end_ids

    def ends(self, request: Request) -> frozenset[int]:
        """The tokens that end an answer to a request."""
        if request.limits.ignore_eos:
            return request.limits.stop_token_ids
        return self._end_ids | request.limits.stop_token_ids if request.limits.stop_token_ids else self._end_ids

    def prepare(self, sequence: Sequence) -> None:
        """Work out what would be the same at every token."""
        request, limits = sequence.request, sequence.request.limits
        sequence.ends = self.ends(request) if sequence.matcher is None else self.ends(request) | self._end_ids
        sequence.banned = self._end_ids if limits.ignore_eos else _NOTHING
        if limits.min_tokens > 0:
            sequence.early_banned = self.ends(request) | sequence.banned

    def choose(self, sequence: Sequence, logits: Logits) -> int:
        """A sequence's next token, from its logits (vocabulary,). Raises InvalidLogits."""
        matcher, banned = sequence.matcher, banned_ids(sequence)
        if matcher is None:
            return sequence.samplers.sample(logits, sequence.num_tokens, banned)
        # Where each token needs its logits, forced ones were not appended at once, and are found here one by one.
        if sequence.wants_logits and (forced := matcher.forced()):
            return forced[0]
        return sequence.samplers.sample(logits, sequence.num_tokens, banned, matcher.mask(), matcher.state)


def scored(sequence: Sequence, token_id: int, logits: Logits) -> Logprob | None:
    """The log-probability of a token that was chosen and not yet accepted; None where nobody wants to know."""
    request, matcher = sequence.request, sequence.matcher
    if request.num_top_logprobs is None:
        return None
    found = logprob_of(logits, token_id, request.num_top_logprobs)
    if not request.marks_forced:
        return found
    return replace(found, is_forced=matcher is not None and matcher.forced()[:1] == [token_id])


def banned_ids(sequence: Sequence) -> frozenset[int]:
    """The tokens that may not come next."""
    is_early = sequence.num_generated < sequence.request.limits.min_tokens
    return sequence.early_banned if is_early else sequence.banned
