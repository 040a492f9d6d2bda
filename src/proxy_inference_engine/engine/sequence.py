"""The mutable life of one choice, and of the request whose choices share a fate. Owned by the engine thread."""

from dataclasses import dataclass, field

import numpy as np

from proxy_inference_engine.cache.disk import Loading
from proxy_inference_engine.engine.speculation import Guesser
from proxy_inference_engine.runners.base import UNREAD_ID, TokenIds, Unread
from proxy_inference_engine.sampling.samplers import Samplers
from proxy_inference_engine.types import FinishReason, ImageSpan, Logprob, Matcher, Request, State, Timings

MAX_JUMP = 32  # pending tokens; more are computed in chunks, like a prompt


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
    num_snapshot: int = 0  # tokens of the last snapshot of its prompt
    stops: tuple[int, ...] = ()  # places of its prompt where a pass ends, so that a snapshot can be taken
    unread: Unread | None = None  # the last token, while only the device knows it
    prompt_logprobs: list[Logprob | None] = field(default_factory=list)
    ends: frozenset[int] = frozenset()  # tokens that end it
    banned: frozenset[int] = frozenset()  # tokens that it never has
    early_banned: frozenset[int] = frozenset()  # the same while it is shorter than asked for
    deferred_states: frozenset[State] = frozenset()  # in which a device chooses its tokens
    max_length: int = 0  # prompt and answer: it ends with so many tokens
    num_tokens: int = 0
    num_prompt: int = 0
    _buffer: TokenIds = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        prompt = np.array(self.request.prompt_ids, np.int32)
        for span in self.request.images:
            prompt[span.start : span.start + span.num_tokens] = _image_ids(span)
        self._buffer = np.concatenate([prompt, np.empty(64, np.int32)])
        self.num_tokens = self.num_prompt = len(prompt)
        self.max_length = self.num_prompt + self.request.limits.max_tokens
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
        """The same, up to the next stop."""
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
    def reusable_ids(self) -> TokenIds:
        """What may come from the cache: every token whose own logits are not needed any more."""
        return self.ids[: len(self.prompt_logprobs) - 1 if self.wants_prompt_logprobs else self.num_tokens - 1]

    def timings(self, now: float) -> Timings:
        """Where the time went, if it ends now."""
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
        """The last token was read."""
        self._buffer[self.num_tokens - 1] = token_id
        self.unread = None

    def whole(self, end: int) -> int:
        """The first place from `end` on that is not inside an image: one is computed in one piece."""
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
