"""The sandbox's process: it judges, it is ended and started again, it takes no more than it may, and leaves nothing."""

import gc
import os
import select
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.state_machine.compilation import GrammarLimits, InvalidGrammar
from proxy_inference_engine.state_machine.sandbox import process
from proxy_inference_engine.state_machine.sandbox.inside import OUT_OF_MEMORY
from proxy_inference_engine.state_machine.sandbox.process import GrammarSandbox
from proxy_inference_engine.state_machine.vocabulary import GrammarVocabulary
from tests.polling import HANG_S, wait_until
from tests.unit.state_machine.hostile_grammars import LARGE, ROOM, SLOW
from tests.unit.state_machine.vocabularies import PieceTokenizer

WORDS = GrammarVocabulary(PieceTokenizer(pieces=["ab", "\n\n"]), []).lexicon


def make(max_seconds: float = HANG_S, max_bytes: int = 256 << 20) -> GrammarSandbox:
    return GrammarSandbox(WORDS.pack, GrammarLimits(max_seconds=max_seconds, max_bytes=max_bytes))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[GrammarSandbox]:
    shared = make()
    yield shared
    shared.close()


def pid_of(sandbox: GrammarSandbox) -> int:
    assert sandbox.pid is not None
    return sandbox.pid


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_compiles_has_a_time(sandbox: GrammarSandbox) -> None:
    assert 0.0 < sandbox.check('start: "ab" | /c+/') < HANG_S


@pytest.mark.parametrize("grammar", ["start: /(/", "start: x", "", "start: T\nT: /a/ & /b/", 'start: "é😀'])
def test_what_does_not_compile_has_a_reason(sandbox: GrammarSandbox, grammar: str) -> None:
    with pytest.raises(InvalidGrammar) as caught:
        sandbox.check(grammar)
    assert str(caught.value) and "\n" not in str(caught.value)


def test_one_process_serves_all(sandbox: GrammarSandbox) -> None:
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    for number in range(20):
        sandbox.check(f'start: "{number}"')
    assert sandbox.pid == pid


def test_it_starts_when_it_is_needed_or_told_to() -> None:
    sandbox = make()
    assert sandbox.pid is None
    sandbox.start()
    sandbox.check('start: "a"')
    assert is_alive(pid_of(sandbox))
    sandbox.close()


def test_what_takes_too_long_is_ended_and_the_next_one_works() -> None:
    sandbox = make(max_seconds=0.5, max_bytes=ROOM)
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    with pytest.raises(InvalidGrammar, match="too long"):
        sandbox.check(SLOW)
    assert sandbox.check('start: "a"') > 0.0
    assert sandbox.pid != pid and not is_alive(pid)
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="address space is bounded on Linux; elsewhere it is looked at")
def test_what_takes_too_much_memory_ends_there_and_the_next_one_works() -> None:
    sandbox = make(max_bytes=24 << 20)
    with pytest.raises(InvalidGrammar, match="memory"):
        sandbox.check(LARGE)
    assert sandbox.check('start: "a"') > 0.0
    sandbox.close()


def test_what_leads_too_deep_ends_there() -> None:
    sandbox = make()
    deep = "start: " + "(" * 200_000 + '"a"' + ")" * 200_000
    with pytest.raises(InvalidGrammar):
        sandbox.check(deep)
    assert sandbox.check('start: "a"') > 0.0
    sandbox.close()


def test_a_process_that_somebody_ended_is_started_again() -> None:
    sandbox = make()
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    os.kill(pid, signal.SIGKILL)
    assert sandbox.check('start: "b"') > 0.0
    assert sandbox.pid != pid
    sandbox.close()


def test_ended_in_the_middle_of_a_grammar_it_tries_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_MAX_STARVED", 2 * HANG_S)
    sandbox = make(max_seconds=0.5, max_bytes=ROOM)
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    os.kill(pid, signal.SIGSTOP)  # or it might end by itself before

    def end() -> None:
        wait_until(lambda: sandbox._child._asked_at_s is not None)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=end)
    killer.start()
    with pytest.raises(InvalidGrammar, match="too long"):
        sandbox.check(SLOW)
    killer.join()
    assert sandbox.check('start: "b"') > 0.0
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is seen on Linux")
def test_what_the_next_process_takes_to_start_is_not_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar would be refused for what it did not take, if somebody ended the process that was at it."""
    monkeypatch.setattr(process, "_MAX_STARVED", 2 * HANG_S)
    sandbox = make(max_seconds=0.5)
    sandbox.check('start: "a"')
    pid, found = pid_of(sandbox), list[float]()
    os.kill(pid, signal.SIGSTOP)
    thread = threading.Thread(target=lambda: found.append(sandbox.check('start: "b"')))
    thread.start()
    wait_until(lambda: sandbox._child._asked_at_s is not None)
    busy = "import time\nwhile time.process_time() < 1.0: pass\n"  # twice its time
    monkeypatch.setattr(process, "_COMMAND", busy + process._COMMAND)
    os.kill(pid, signal.SIGKILL)
    thread.join(HANG_S)
    assert found and sandbox.pid != pid
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is seen on Linux")
def test_what_others_compute_is_not_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a grammar would be refused for what it did not take."""
    monkeypatch.setattr(process, "_MAX_STARVED", 2 * HANG_S)
    sandbox = make(max_seconds=0.5)
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    os.kill(pid, signal.SIGSTOP)
    going_on = threading.Timer(1.0, os.kill, (pid, signal.SIGCONT))  # twice its time
    going_on.start()
    assert sandbox.check('start: "b"') > 0.0
    going_on.join()
    assert sandbox.pid == pid
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processor time is seen on Linux")
def test_nor_does_it_wait_for_ever_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = make(max_seconds=0.5)
    sandbox.check('start: "a"')
    os.kill(pid_of(sandbox), signal.SIGSTOP)
    monkeypatch.setattr(process, "_MAX_STARVED", 1)
    with pytest.raises(InvalidGrammar, match="too long"):
        sandbox.check('start: "b"')
    sandbox.close()


def test_signals_are_for_its_owner() -> None:
    """Ctrl-C and a service manager reach every process; the owner drains, and needs it meanwhile."""
    sandbox = make()
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    sandbox.check('start: "b"')
    assert sandbox.pid == pid
    assert os.getpgid(pid) != os.getpgid(0) and os.getsid(pid) != os.getsid(0)
    sandbox.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are seen in /proc")
def test_it_has_no_file_of_its_owner() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    sandbox = make()
    sandbox.check('start: "a"')
    targets = {os.readlink(entry) for entry in Path(f"/proc/{pid_of(sandbox)}/fd").iterdir()}
    assert not any("socket" in target for target in targets)
    assert os.readlink(f"/proc/self/fd/{writing}") not in targets
    sandbox.close()
    os.close(reading)
    os.close(writing)


def test_closed_while_it_starts_it_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C soon after a start left a line about it on the terminal."""
    monkeypatch.setattr(process, "_COMMAND", "import time\ntime.sleep(600)")
    sandbox = make()
    sandbox.start()
    wait_until(lambda: sandbox.pid)
    sandbox.close()
    assert sandbox._thread is not None and not sandbox._thread.is_alive()
    assert not caplog.records


def test_closing_leaves_no_process() -> None:
    sandbox = make()
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    sandbox.close()
    assert not is_alive(pid) and sandbox.pid is None
    with pytest.raises(Unavailable):
        sandbox.check('start: "a"')
    sandbox.close()


def test_closing_ends_what_is_being_compiled() -> None:
    sandbox = make()
    sandbox.check('start: "a"')
    errors: list[BaseException] = []

    def work() -> None:
        try:
            sandbox.check(SLOW)
        except (Unavailable, InvalidGrammar) as error:
            errors.append(error)

    pid = pid_of(sandbox)
    os.kill(pid, signal.SIGSTOP)  # or the grammar might end before
    thread = threading.Thread(target=work)
    thread.start()
    sandbox.close()
    thread.join(HANG_S)
    assert not thread.is_alive() and not is_alive(pid)
    assert isinstance(errors[0], Unavailable)


def test_it_ends_with_its_owner_gone() -> None:
    sandbox = make()
    sandbox.check('start: "a"')
    pid, thread, gone = pid_of(sandbox), sandbox._thread, weakref.ref(sandbox)
    del sandbox
    gc.collect()
    assert gone() is None and thread is not None
    thread.join(HANG_S)
    assert not is_alive(pid)


OWNER = """
import sys
from tests.unit.state_machine.sandbox.test_process import make
sandbox = make()
sandbox.check('start: "a"')
print(sandbox.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a stranger's end is waited for with a pidfd")
def test_it_never_outlives_its_process() -> None:
    root = Path(__file__).parents[4]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        watched = os.pidfd_open(pid)
        owner.kill()
    assert select.select([watched], [], [], HANG_S)[0], "it still runs"
    os.close(watched)


def test_where_no_process_can_start_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sandbox = make()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Unavailable):
        sandbox.check('start: "a"')
    monkeypatch.undo()
    assert sandbox.check('start: "a"') > 0.0
    sandbox.close()


@pytest.mark.skipif(sys.platform != "linux", reason="address space is seen on Linux")
def test_a_process_that_a_grammar_left_large_is_replaced() -> None:
    """Or a grammar would be blamed for what the ones before it took."""
    sandbox = make(max_bytes=80 << 20)
    sandbox.check('start: "a"')
    pid = pid_of(sandbox)
    sandbox.check('start: %json {"type": "integer", "multipleOf": 99991}')
    sandbox.check('start: "b"')
    assert sandbox.pid != pid
    sandbox.close()


WATCHED = """
from proxy_inference_engine.state_machine.sandbox import inside
inside._num_mapped = lambda: None
memory = inside._Memory(16 << 20)
assert not memory.is_worn
held = [bytearray(1 << 20) for _ in range(256)]
import threading
threading.Event().wait(60)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="what is taken is seen on POSIX")
def test_where_the_system_does_not_bound_memory_it_is_looked_at() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4] / "src")}
    # Through a shell: Linux counts what a process had before `exec`, here all of pytest's memory, as its own.
    command = ["sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, WATCHED]
    done = subprocess.run(command, env=environment, timeout=HANG_S, check=False)
    assert done.returncode == OUT_OF_MEMORY
