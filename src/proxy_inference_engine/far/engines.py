"""The far engines of one model: which are up, how much each has to do, and which one a prompt goes to.

Least outstanding work decides, unless an engine has seen how the prompt begins: its prefix cache has that. Whether one
is up is also said by the monitor's thread; everything else belongs to the event loop.
"""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from proxy_inference_engine.far.connections import Connections, FarAddress
from proxy_inference_engine.far.wire import COMPLETIONS, GENERATE, FarEndpoint
from proxy_inference_engine.types import Request

_log = logging.getLogger(__name__)

_PROMPT_TOKENS = 512  # of a prompt that is still to be computed: as much work as one answer
_BLOCK = 64  # tokens of a prompt that are known or not
_MAX_BLOCKS = 64  # that are looked at: prompts that part later have the same beginning
_MAX_KNOWN = 200_000
_SLACK = 8.0  # so much more work may an engine have that knows a beginning, and be chosen all the same
_MAX_REST_S = 30.0
_MAX_FAILURES = 3


class FarFacts(NamedTuple):
    """What a far engine says of itself."""

    model: str  # its name for the model
    context_tokens: int | None
    version: str
    endpoint: FarEndpoint
    can_generate: bool
    can_embed: bool


class FarLoad(NamedTuple):
    """What a far engine says that it has to do, for all its clients."""

    num_running: int = 0
    num_waiting: int = 0


class FarEngine:
    """One vLLM. It is up when it answered the last time; who is not rests a while, longer each time."""

    def __init__(
        self, address: FarAddress, headers: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.address = address
        self.headers = headers
        self.connections = Connections(address, headers)
        self.facts: FarFacts | None = None
        self.load = FarLoad()
        self.is_up = False
        self.is_silent = False  # it did not even answer when asked whether it lives
        self.work = 0.0
        self._num_failures = self._num_rests = 0  # in a row
        self._has_miscounted = False
        self._rests_until = 0.0
        self._clock = clock

    @property
    def endpoint(self) -> FarEndpoint:
        return GENERATE if self.facts is None else self.facts.endpoint

    @property
    def can_embed(self) -> bool:
        return self.facts is not None and self.facts.can_embed

    def takes(self, request: Request) -> bool:
        """Whether there is a place for all of the request: completions have none for images."""
        return not request.images or self.endpoint == GENERATE

    def compare_counts(self, ours: int, its: int) -> None:
        """Say once if the engine finds another number of tokens in a prompt: then what is told of usage is wrong."""
        if ours != its and not self._has_miscounted:
            self._has_miscounted = True
            _log.warning(
                "the far engine %s counts %d tokens in a prompt that has %d here: both need the same files of the "
                "model, tokenizer.json and preprocessor_config.json",
                self.address, its, ours,
            )  # fmt: skip

    def lacks_endpoint(self) -> None:
        """Note that the engine refused the endpoint that is made for us."""
        if self.facts is not None:
            self.facts = self.facts._replace(endpoint=COMPLETIONS)

    def admit(self) -> None:
        """Note that the engine answers. Call from any thread."""
        self.is_silent = False
        if not self.is_up and self._clock() >= self._rests_until:
            self.is_up = True
            _log.info("the far engine %s answers", self.address)

    def fail(self, reason: str) -> None:
        """A request came to nothing there. Once may be chance; several in a row are not."""
        self._num_failures += 1
        if self._num_failures >= _MAX_FAILURES:
            self.eject(reason)

    def eject(self, reason: str) -> None:
        """Note that the engine is gone: it gets nothing to do until it answers again. Call from any thread."""
        self._num_rests += 1
        self._rests_until = self._clock() + min(_MAX_REST_S, 2.0 ** min(self._num_rests - 2, 8))
        if self.is_up:
            self.is_up = False
            _log.warning("the far engine %s failed (%s): it rests until it answers", self.address, reason)

    def succeed(self) -> None:
        self._num_failures = self._num_rests = 0


class Engines:
    """Those that compute one model, at least one."""

    def __init__(self, engines: Sequence[FarEngine]) -> None:
        self.all = tuple(engines)
        self._known = KnownPrefixes()

    @property
    def up(self) -> list[FarEngine]:
        return [engine for engine in self.all if engine.is_up]

    @property
    def facts(self) -> FarFacts | None:
        """What the first engine says that ever said something; those that are up go before others."""
        by_state = sorted(self.all, key=lambda engine: not engine.is_up)
        return next((engine.facts for engine in by_state if engine.facts is not None), None)

    def choose(self, request: Request, tried: Collection[FarEngine] = ()) -> FarEngine | None:
        """Where a request goes next; None: there is nobody left."""
        up = [engine for engine in self.all if engine.is_up and engine not in tried and engine.takes(request)]
        if len(self.all) == 1 or not up:
            return up[0] if up else None
        keys = prefix_keys(request)
        chosen = min(up, key=lambda engine: engine.work)
        knowing = self._known.find(keys)
        if knowing in up and knowing.work <= 2 * chosen.work + _SLACK:
            chosen = knowing
        self._known.note(keys, chosen)
        return chosen

    def choose_embedder(self, tried: Collection[FarEngine] = ()) -> FarEngine | None:
        """Where texts that become vectors go next: no cache has seen any of them. None: there is nobody left."""
        up = [engine for engine in self.up if engine not in tried and engine.can_embed]
        return min(up, key=lambda engine: engine.work, default=None)


class KnownPrefixes:
    """Which engine has computed which beginning last. The least recently used ones are forgotten."""

    def __init__(self, max_known: int = _MAX_KNOWN) -> None:
        self._engines: OrderedDict[int, FarEngine] = OrderedDict()
        self._max_known = max_known

    def find(self, keys: Sequence[int]) -> FarEngine | None:
        """The engine that knows the longest of these prefixes."""
        return next((self._engines[key] for key in reversed(keys) if key in self._engines), None)

    def note(self, keys: Sequence[int], engine: FarEngine) -> None:
        for key in keys:
            self._engines[key] = engine
            self._engines.move_to_end(key)
        while len(self._engines) > self._max_known:
            self._engines.popitem(last=False)


def prefix_keys(request: Request) -> list[int]:
    """One for each beginning of whole blocks, from the shortest to the longest. Tenants share none."""
    keys: list[int] = []
    key = hash(request.tenant)
    ids = request.prompt_ids
    for start in range(0, min(len(ids) - len(ids) % _BLOCK, _MAX_BLOCKS * _BLOCK), _BLOCK):
        key = hash((key, ids[start : start + _BLOCK]))
        keys.append(key)
    return keys


def prompt_work(request: Request) -> float:
    """What a prompt is to whoever has to compute it."""
    return len(request.prompt_ids) / _PROMPT_TOKENS


def embedding_work(texts: Sequence[Sequence[int]]) -> float:
    """What texts that become vectors are to whoever has to compute them, at least as much as one answer."""
    return max(1.0, sum(map(len, texts)) / _PROMPT_TOKENS)
