"""The servers that the cases ask, by name: the fake model in its varieties, and servers with little room."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import Any

from proxy_inference_engine.config import ApiKey, Config
from proxy_inference_engine.engine.queue import Admission
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.fake import IMAGE_TEMPLATE, MARKER, FakeImageEncoder, FakeRunner
from proxy_inference_engine.store import Store, StoreLimits
from tests.api.running import Running, running
from tests.api.writing import MARKERS, OPENING, Writer, call
from tests.clock import Clock

Server = Callable[[], AbstractContextManager[Running]]

FILLING = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
FAMILIES = ("gemma3", "llama3", "mistral", "deepseek_r1", "glm45", "harmony", "qwen3_coder")
KEYS = (ApiKey("anna", "key-of-anna"), ApiKey("ben", "key-of-ben"))
ADMIN, PROMETHEUS = ApiKey("root", "key-of-root", is_admin=True), ApiKey("metrics", "key-of-prometheus")
ALIASES = {"gpt-*": "default", "claude-*": "default", "gpt-4o": "default"}
# What the scripted model says in its first turn, in its second, and so on: how many turns a case has chooses.
SCRIPT = (
    "Hello, world.",
    "<think>\nLet me see.\n</think>\n\nIt is sunny.",
    "<think>\nI had better call.\n</think>\n\n" + call("get_weather", city="Paris", days=2),
    "I look twice. " + call("get_weather", city="Rome", days=1) + "\n" + call("ping"),
    'Zürich, \u2028 and \x85 and \u2029, 𝄞 and \t"quotes" \\ end.',
    '<tool_call>\n{"name": "nobody", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "get_weather", "argu',
    call("shell", input="ls -l"),
    "<think>\nOnly thoughts, and then nothing.",
    "",
    f'<tool_call>\n{{"name": "deep", "arguments": {{"a": {"[" * 250}{"]" * 250}}}}}\n</tool_call>',
)


def _quick(**fields: Any) -> Config:
    return Config(drain_seconds=0.2, **fields)


def _plain() -> AbstractContextManager[Running]:
    return running()


def _of(**options: Any) -> Server:
    return lambda: running(FakeRunner(**options), _quick())


def _family(name: str) -> Server:
    family = by_name(name)
    return _of(chat_template=family.template, defined_tokens=sorted(family.tokens))


def _images() -> FakeRunner:
    return FakeRunner(chat_template=IMAGE_TEMPLATE, defined_tokens=(MARKER,), image_encoder=FakeImageEncoder())


def _ranking_pairs() -> AbstractContextManager[Running]:
    runner = FakeRunner(pooling="rank")
    runner.embedder.info = runner.embedder.info._replace(pair_template="Q: {query}\nD: {document}\n<|im_end|>")
    return running(runner, _quick())


@contextmanager
def _stored(limits: StoreLimits) -> Iterator[Running]:
    with closing(Store.open(None, limits=limits)) as store, running(store=store) as live:
        yield live


@contextmanager
def _held(num_passes: int) -> Iterator[Running]:
    """Its model computes so many passes and then nothing more before the server ends: what runs is never over.

    Nor does the time for it, however long the cases take.
    """
    gate = threading.Event()
    passes = iter(range(num_passes))

    def wait(_rows: object) -> None:
        if next(passes, None) is None:
            gate.wait()

    with running(FakeRunner(on_forward=wait), _quick(), clock=Clock()) as live:
        try:
            yield live
        finally:
            gate.set()


def _governed() -> AbstractContextManager[Running]:
    """Keys of three kinds, and a page that may call."""
    origins = "https://app.example.com"
    return running(config=_quick(api_keys=(*KEYS, ADMIN), metrics_key=PROMETHEUS, allowed_origins=origins))


class Servers:
    """Those that were asked for, started when they first are. Leaving it ends them all."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._live: dict[str, Running] = {}

    def __enter__(self) -> "Servers":
        return self

    def __exit__(self, *_: object) -> None:
        for live in self._live.values():
            live.server.should_exit = True  # all at once: each takes a moment to notice
        self._stack.close()

    def __getitem__(self, name: str) -> Running:
        if name not in self._live:
            self._live[name] = self._stack.enter_context(SERVERS[name]())
        return self._live[name]


SERVERS: dict[str, Server] = {
    "plain": _plain,
    "thinking": _of(chat_template=by_name("qwen3").template, defined_tokens=MARKERS),
    "opening": _of(chat_template=OPENING, defined_tokens=MARKERS),
    "scripted": lambda: running(Writer(SCRIPT), _quick()),
    "seeing": lambda: running(_images(), _quick(max_images=2, fetch_images=False, max_image_bytes=4096)),
    "fetching": lambda: running(_images(), _quick(max_image_pixels=4096)),
    "ranking": _of(pooling="rank"),
    "ranking pairs": _ranking_pairs,
    "opened by bos": _of(has_bos=True),
    "filling": _of(defined_tokens=FILLING),
    "embedding only": _of(can_generate=False),
    "keyed": lambda: running(config=_quick(api_keys=KEYS, aliases=ALIASES)),
    "governed": _governed,
    "small": _of(lanes=(Lane(2, 128),), end_bias=-100),
    "terse": _of(lanes=(Lane(4, 4096),), end_bias=100),
    "full": lambda: running(admission=Admission(max_waiting=-1000)),
    "broken": _of(poison_id=ord("~")),
    "few rows": lambda: _stored(StoreLimits(max_rows=2)),
    "few bytes": lambda: _stored(StoreLimits(max_bytes=3000)),
    "loaded by hand": lambda: running(),
    "held": lambda: _held(0),
    "halting": lambda: _held(1),
    **{name: _family(name) for name in FAMILIES},
}
