"""Asks far engines, again and again, whether they live and what they have to do, in threads of its own.

What it finds are single values of each `FarEngine`, which the event loop reads.
"""

import http.client
import json
import logging
import re
import ssl
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from proxy_inference_engine.far.engines import FarEngine, FarFacts, FarLoad
from proxy_inference_engine.far.failures import is_our_own
from proxy_inference_engine.far.wire import COMPLETIONS, GENERATE, FarEndpoint

_log = logging.getLogger(__name__)

INTERVAL_S = 1.0
PATIENCE_S = 5.0
_LOOKS_PER_LOAD = 5  # every so many looks, what the engine has to do is read too
_LOOKS_TO_SILENCE = 3  # in a row without an answer
_MAX_BYTES = 8 << 20
_EMBEDDINGS = "/v1/embeddings"
_GAUGE = re.compile(r"^vllm:(num_requests_running|num_requests_waiting)(?:\{[^}]*\})? (\S+)$", re.M)


class NoAnswer(Exception):
    """The engine did not answer as one that lives."""


class FarAnswer(NamedTuple):
    status: int
    body: bytes

    def json(self) -> Mapping[str, Any]:
        try:
            value = json.loads(self.body)
        except ValueError:
            raise NoAnswer("it does not speak JSON") from None
        if not isinstance(value, dict):
            raise NoAnswer("it does not speak as vLLM does")
        return value


class Monitor:
    """`model`: by what name the engines are asked for the model; None: the first that each of them lists.

    Each engine has a thread: one that does not answer keeps nobody from looking at the others.
    """

    def __init__(self, engines: Iterable[FarEngine], model: str | None, interval_s: float = INTERVAL_S) -> None:
        self._watches = [_Watch(engine, model) for engine in engines]
        self._interval_s = interval_s
        self._is_ended = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Returns when every engine was looked at once."""
        looked = [threading.Event() for _ in self._watches]
        for watch, event in zip(self._watches, looked, strict=True):
            thread = threading.Thread(target=self._run, args=(watch, event), name="far", daemon=True)
            thread.start()
            self._threads.append(thread)
        for event in looked:
            event.wait()

    def stop(self) -> None:
        """Does not wait for an engine that does not answer."""
        self._is_ended.set()

    def _run(self, watch: "_Watch", looked: threading.Event) -> None:
        while not self._is_ended.is_set():
            try:
                watch.look()
            except Exception:
                _log.exception("looking at a far engine failed and is tried again")
            looked.set()
            self._is_ended.wait(self._interval_s)


class _Watch:
    """Over one engine."""

    def __init__(self, engine: FarEngine, model: str | None) -> None:
        self._engine = engine
        self._model = model
        self._num_looks = self._num_silent = 0

    def look(self) -> None:
        engine = self._engine
        try:
            self._look()
        except (NoAnswer, OSError, http.client.HTTPException) as error:
            if is_our_own(error):
                return
            self._num_silent += 1
            engine.is_silent = self._num_silent >= _LOOKS_TO_SILENCE
            # One that is only slow has much to do.
            if engine.is_up and (engine.is_silent or not isinstance(error, TimeoutError)):
                engine.eject(str(error) or type(error).__name__)
        self._num_looks += 1

    def _look(self) -> None:
        engine = self._engine
        if (status := ask(engine, "GET", "/health").status) != 200:
            raise NoAnswer(f"its health is {status}")
        self._num_silent = 0
        if not engine.is_up or engine.facts is None:
            engine.facts = read_facts(engine, self._model)
            engine.admit()
        if self._num_looks % _LOOKS_PER_LOAD == 0:
            engine.load = read_load(ask(engine, "GET", "/metrics").body.decode(errors="replace"))


def ask(engine: FarEngine, method: str, path: str, body: bytes | None = None) -> FarAnswer:
    """One request on a connection of its own. Raises OSError, HTTPException or NoAnswer."""
    address = engine.address
    if address.is_tls:
        context = ssl.create_default_context()
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address.host, address.port, timeout=PATIENCE_S, context=context
        )
    else:
        connection = http.client.HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
    try:
        connection.request(method, address.path + path, body, {"Content-Type": "application/json", **engine.headers})
        answer = connection.getresponse()
        return FarAnswer(answer.status, answer.read(_MAX_BYTES))
    finally:
        connection.close()


def read_facts(engine: FarEngine, model: str | None) -> FarFacts:
    """What an engine serves. Raises as `ask` does."""
    answer = ask(engine, "GET", "/v1/models")
    if answer.status in (401, 403):
        raise NoAnswer("it wants another key: set far_key")
    listed = answer.json().get("data")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise NoAnswer("it lists no models")
    found = next((each for each in listed if model is None or each.get("id") == model), None)
    if found is None:
        raise NoAnswer("it serves no model" if model is None else f"it serves no model {model!r}")
    length = found.get("max_model_len")
    # No route is asked in earnest: one that is there does not take GET.
    has = {path: ask(engine, "GET", path).status == 405 for path in (COMPLETIONS, _EMBEDDINGS)}
    return FarFacts(
        model=str(found["id"]),
        context_tokens=length if isinstance(length, int) else None,
        version=_version(engine),
        endpoint=_endpoint(engine),
        can_generate=has[COMPLETIONS],
        can_embed=has[_EMBEDDINGS],
    )


def _version(engine: FarEngine) -> str:
    answer = ask(engine, "GET", "/version")
    return str(answer.json().get("version", "")) if answer.status == 200 else ""


def _endpoint(engine: FarEngine) -> FarEndpoint:
    """A server has the better one unless it says so: an empty request is refused as such where it is there."""
    return GENERATE if ask(engine, "POST", GENERATE, b"{}").status in (400, 422) else COMPLETIONS


def read_load(metrics: str) -> FarLoad:
    """The load of all engines behind one address together."""
    found: dict[str, list[float]] = {}
    for name, value in _GAUGE.findall(metrics):
        found.setdefault(name, []).append(float(value))
    return FarLoad(
        num_running=int(sum(found.get("num_requests_running", ()))),
        num_waiting=int(sum(found.get("num_requests_waiting", ()))),
    )
