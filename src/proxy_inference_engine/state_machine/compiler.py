"""Grammar texts to llguidance matchers: compiled once, kept while they are used, bounded in number and size."""

import queue
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import llguidance
import numpy as np

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary

T = TypeVar("T")

_PATIENCE_S = 10.0
_STACK_BYTES = 64 << 20
_INLINE_CHARS = 4000  # nothing in so few leads deep, and waking another thread would take a good part of the time


class InvalidGrammar(Exception):
    """The grammar does not compile, or is too large."""


@dataclass(frozen=True, slots=True)
class GrammarLimits:
    """What one grammar may cost. Fuel is counted in llguidance's units: about 50,000 a millisecond to build a lexer."""

    max_seconds: float = 5.0
    max_chars: int = 1 << 20
    initial_lexer_fuel: int = 10_000_000
    max_grammar_size: int = 500_000
    max_lexer_states: int = 50_000  # up to 2 KB each


class LruCache(Generic[T]):
    """Bounded by entries and by their sizes together. Safe to use from several threads."""

    def __init__(self, max_entries: int, max_size: int) -> None:
        self._max_entries = max_entries
        self._max_size = max_size
        self._entries: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> T | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            self._entries.move_to_end(key)
            return found[0]

    def put(self, key: str, value: T, size: int) -> None:
        with self._lock:
            old = self._entries.pop(key, None)
            self._size += size - (old[1] if old is not None else 0)
            self._entries[key] = (value, size)
            while len(self._entries) > self._max_entries or (self._size > self._max_size and len(self._entries) > 1):
                _, (_, freed) = self._entries.popitem(last=False)
                self._size -= freed


class _Job(NamedTuple):
    work: Callable[[], llguidance.LLMatcher]
    outcome: "Future[llguidance.LLMatcher]"


class _Workshop:
    """A thread of its own: llguidance follows references by recursion, deeper than most stacks are.

    Always the same one, since each new thread's memory would be fresh and slow. It ends with whoever owns this.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        weakref.finalize(self, self._jobs.put, None)

    def put(self, job: _Job) -> None:
        if self._thread is None:
            before = threading.stack_size(_STACK_BYTES)
            try:
                thread = threading.Thread(target=_work, args=(self._jobs,), name="grammar", daemon=True)
                thread.start()
            finally:
                threading.stack_size(before)
            self._thread = thread
        self._jobs.put(job)


def _work(jobs: "queue.SimpleQueue[_Job | None]") -> None:
    while (job := jobs.get()) is not None:
        try:
            job.outcome.set_result(job.work())
        except BaseException as error:
            job.outcome.set_exception(error)
        del job  # or the last one's owner would never be gone


class Compiler:
    """One per model. Cold grammars are compiled one after the other, so that a flood of them takes one core at most."""

    def __init__(self, vocabulary: GrammarVocabulary, limits: GrammarLimits | None = None) -> None:
        self._vocabulary = vocabulary
        self._limits = limits or GrammarLimits()
        self._lock = threading.Lock()
        self._workshop = _Workshop()

    def compile(self, grammar: str) -> llguidance.LLMatcher:
        """A matcher at the start; `deep_copy` it to walk. Raises InvalidGrammar, or Unavailable under a flood."""
        if len(grammar) > self._limits.max_chars:
            raise InvalidGrammar(f"the grammar has {len(grammar)} characters, at most {self._limits.max_chars} can be")
        if not self._lock.acquire(timeout=_PATIENCE_S):
            raise Unavailable("too many grammars are being compiled; try again soon", code="server_is_overloaded")
        if len(grammar) <= _INLINE_CHARS:
            try:
                return self._compile(grammar)
            finally:
                self._lock.release()
        outcome: Future[llguidance.LLMatcher] = Future()
        outcome.add_done_callback(lambda _: self._lock.release())  # not before: the next one would only wait in line
        try:
            self._workshop.put(_Job(partial(self._compile, grammar), outcome))
        except RuntimeError as error:  # the system has no thread for it now
            outcome.set_exception(error)
        try:
            return outcome.result(self._limits.max_seconds)
        except TimeoutError:
            raise InvalidGrammar("it takes too long to compile") from None

    def _compile(self, grammar: str) -> llguidance.LLMatcher:
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=self._limits.initial_lexer_fuel,
            max_grammar_size=self._limits.max_grammar_size,
            max_lexer_states=self._limits.max_lexer_states,
            verbose_errors=False,
        )
        matcher = llguidance.LLMatcher(self._vocabulary.ll, grammar, log_level=0, limits=limits)
        self._try(matcher)  # the first mask is the dearest: taken here, every copy has what it found
        scout = matcher.deep_copy()
        forced = scout.compute_ff_tokens()
        if scout.is_error() or (forced and not (scout.consume_tokens(forced) and scout.is_stopped())):
            self._try(scout)
        return matcher

    def _try(self, matcher: llguidance.LLMatcher) -> None:
        """Take a mask; what is impossible, or too much for one step, shows in it."""
        bits = np.zeros((self._vocabulary.num_tokens + 31) // 32, np.int32)
        if not matcher.is_error():
            matcher.unsafe_compute_mask_ptr(bits.ctypes.data, bits.nbytes)
        if matcher.is_error():
            raise InvalidGrammar(_reason(matcher.get_error()))
        if not bits.any():
            raise InvalidGrammar("nothing at all satisfies it")


def _reason(error: str) -> str:
    """The first line of llguidance's message, without places in a grammar that nobody but us has seen."""
    if not error.strip():
        return "it does not compile"
    return error.strip().splitlines()[0].rpartition("failed to compile JSON schema: ")[2][:300]
