"""What is set apart is looked at again only when a model has gone."""

import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator

import pytest

from proxy_inference_engine.pool.garbage import give_back, set_apart
from proxy_inference_engine.pool.loader import EngineLoader
from proxy_inference_engine.served.model import Threads
from proxy_inference_engine.server.app import image_loader
from tests.unit.served.scripted import ScriptedEngine, served


class Ring:
    """Holds itself."""

    def __init__(self) -> None:
        self.own = self


@pytest.fixture
def apart() -> Iterator["weakref.ref[Ring]"]:
    """What a server had at its start, and nobody holds any more."""
    ring = Ring()
    found = weakref.ref(ring)
    set_apart()
    del ring
    yield found
    gc.unfreeze()


def test_the_collector_passes_over_what_was_there(apart: "weakref.ref[Ring]") -> None:
    later = weakref.ref(Ring())
    gc.collect()
    assert apart() is not None and later() is None


def test_what_a_model_held_goes_with_it(apart: "weakref.ref[Ring]") -> None:
    give_back()
    assert apart() is None and gc.get_freeze_count()


async def test_an_unload_ends_the_engine_and_gives_back_what_it_held(apart: "weakref.ref[Ring]") -> None:
    engine = ScriptedEngine()
    await EngineLoader(None, Threads(), image_loader).unload(served(engine))
    assert not engine.is_ready and apart() is None


def test_where_nothing_is_apart_nothing_becomes_it() -> None:
    gc.unfreeze()
    give_back()
    assert not gc.get_freeze_count()


SERVER = """
import gc, os, socket
from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.engine.worker import Worker
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.process import serve

def started():
    print(gc.get_freeze_count(), flush=True)
    os._exit(0)

worker = Worker(StepEngine(FakeRunner(), max_cache_bytes=0))
worker.start()
sock = socket.socket()
sock.bind(("127.0.0.1", 0))
serve([ServedModel.of(worker, Config())], Config(), sock, on_start=started)
"""


def test_a_server_begins_so() -> None:
    said = subprocess.run([sys.executable, "-c", SERVER], capture_output=True, text=True, check=True).stdout
    assert int(said) > 10_000
