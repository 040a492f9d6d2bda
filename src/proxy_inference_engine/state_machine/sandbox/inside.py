"""The sandbox from inside: makes the model's words of what it is sent, then says of one grammar after the other whether
it compiles and walks within the limits. Imports as little as it can: it is started anew whenever a grammar ended it.
"""

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
from typing import IO, Any

from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar, Lexicon, compile_grammar
from proxy_inference_engine.state_machine.probe import probe
from proxy_inference_engine.state_machine.sandbox.frames import read_frame, write_frame

try:
    import resource
except ImportError:  # Windows has no such limits; the time is bounded from outside
    resource = None  # type: ignore[assignment]

OUT_OF_MEMORY = 77  # exit status
STACK_BYTES = 64 << 20  # llguidance follows references by recursion, deeper than most stacks are
_WATCH_S = 0.02


def main() -> None:
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # to whoever owns this; it ends when its pipe does
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    source, sink = sys.stdin.buffer, _own_output()
    limits = GrammarLimits(**json.loads(read_frame(source) or b"{}"))
    lexicon = Lexicon.unpack(read_frame(source) or b"")
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=_work, args=(jobs, sink, lexicon, limits), daemon=True).start()
    while (grammar := read_frame(source)) is not None:
        jobs.put(grammar)
    os._exit(0)  # whatever is being compiled: nobody waits for it


def _own_output() -> IO[bytes]:
    """Where replies go, and nothing else that somebody might print."""
    sink = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)
    return sink


def _work(jobs: "queue.SimpleQueue[bytes]", sink: IO[bytes], lexicon: Lexicon, limits: GrammarLimits) -> None:
    judge = _Judge(lexicon, limits)
    memory = _Memory(limits.max_bytes)
    write_frame(sink, b"{}")  # ready
    while True:
        reply = judge.reply(jobs.get().decode())
        write_frame(sink, json.dumps({**reply, "is_worn": memory.is_worn}).encode())


class _Judge:
    def __init__(self, lexicon: Lexicon, limits: GrammarLimits) -> None:
        self._limits = limits
        self._end_ids = lexicon.end_ids
        self._tokenizer = lexicon.greedy_tokenizer()
        self.reply('start: "a"')  # what the first one of all loads is no grammar's cost

    def reply(self, grammar: str) -> dict[str, Any]:
        began = time.thread_time()
        try:
            matcher = compile_grammar(self._tokenizer, grammar, self._limits)
            spent = time.thread_time() - began
            probe(matcher, self._end_ids)
        except InvalidGrammar as error:
            return {"error": str(error)}
        except MemoryError:
            os._exit(OUT_OF_MEMORY)
        except BaseException as error:  # a panic of the library's is no Exception, and the grammar's doing
            return {"error": f"it does not compile ({type(error).__name__})"}
        return {"seconds": spent}


class _Memory:
    """Bounds what may be taken beyond what there is now. Where the system does not, this looks often."""

    def __init__(self, max_bytes: int) -> None:
        self._num_now = _num_mapped()
        self._max_bytes = max_bytes
        if resource is None:
            return
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if self._num_now is None:
            threading.stack_size(0)
            threading.Thread(target=_watch, args=(max_bytes,), daemon=True).start()
            return
        with contextlib.suppress(ValueError, OSError):
            hard = resource.getrlimit(resource.RLIMIT_AS)[1]
            resource.setrlimit(resource.RLIMIT_AS, (self._num_now + max_bytes, hard))

    @property
    def is_worn(self) -> bool:
        """Whether so much is left in pieces that a grammar would be blamed for the ones before it."""
        num_mapped = _num_mapped()
        if self._num_now is None or num_mapped is None:
            return False
        return num_mapped > self._num_now + self._max_bytes // 4


def _num_mapped() -> int | None:
    """Bytes of address space; None where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


def _watch(max_bytes: int) -> None:
    unit = 1 if sys.platform == "darwin" else 1024
    now = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    while True:
        time.sleep(_WATCH_S)
        if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit > now + max_bytes:
            os._exit(OUT_OF_MEMORY)
