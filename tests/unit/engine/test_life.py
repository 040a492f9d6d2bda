"""When silence is a reason to worry: slow and starved threads are left alone, stuck ones noticed in bounded time."""

import threading
import time
from dataclasses import dataclass

import pytest

from proxy_inference_engine.engine.life import Pulse, PulseWatch
from tests.clock import Clock
from tests.polling import wait_until


@dataclass
class Scripted:
    """A thread that shows what a test says."""

    num_beats: int = 0
    longest_s: float = 0.0
    cpu_s: float = 0.0


class Watching:
    """A watch that looks every half second of its clock."""

    def __init__(self, longest_s: float = 0.0) -> None:
        self.clock, self.signs = Clock(), Scripted(longest_s=longest_s)
        self.watch = PulseWatch(self.signs, self.clock)
        self.watch.look()

    def wait(self, seconds: float, *, cpu_share: float = 0.0) -> None:
        """Silence, in which the thread has a processor for some share of the time."""
        for _ in range(round(2 * seconds)):
            self.clock.sleep(0.5)
            self.signs.cpu_s += 0.5 * cpu_share
            self.watch.look()

    def times(self, *, cpu_share: float = 0.0) -> tuple[int, int]:
        """After how many seconds of silence it is late, and lost."""
        late = None
        for second in range(1, 2000):
            self.wait(1, cpu_share=cpu_share)
            late = late or (second if self.watch.is_late else None)
            if self.watch.is_lost:
                assert late is not None
                return late, second
        raise AssertionError("never lost")


@pytest.mark.parametrize(
    ("longest_s", "cpu_share", "late", "lost"),
    [
        (0.0, 0.0, 10, 30),
        (1.0, 0.0, 10, 30),
        (5.0, 0.0, 40, 120),  # eight of its longest turns
        (1000.0, 0.0, 300, 900),  # bounded, however long they were
        (0.0, 0.04, 10, 30),
        (0.0, 0.06, 60, 180),  # it gets on, on a machine that does other things
        (0.0, 1.0, 60, 180),  # a loop without end is noticed too
        (20.0, 1.0, 160, 480),
    ],
)
def test_how_much_silence_is_too_much(longest_s: float, cpu_share: float, late: int, lost: int) -> None:
    assert Watching(longest_s).times(cpu_share=cpu_share) == (late, lost)


def test_a_beat_ends_the_worry_at_once() -> None:
    watching = Watching()
    watching.wait(20)
    assert watching.watch.is_late
    watching.signs.num_beats += 1
    assert not watching.watch.is_late and not watching.watch.is_lost
    watching.wait(9)
    assert not watching.watch.is_late
    assert watching.times()[0] <= 2


def test_time_in_which_the_watcher_did_not_run_does_not_count() -> None:
    """The process was stopped, or the machine asleep: the engine had no chance either."""
    watching = Watching()
    watching.clock.sleep(3600)
    watching.watch.look()
    assert watching.watch.quiet_s == 1.0 and not watching.watch.is_late


def test_passes_that_a_starved_machine_makes_slow_keep_it_ready() -> None:
    """Two loops beside it on two cores: each pass takes 12 s of which the thread has a third, then 25 s."""
    watching = Watching()
    for turn_s in (12, 12, 25, 12):
        for _ in range(turn_s):
            watching.wait(1, cpu_share=1 / 3)
            assert not watching.watch.is_late
        watching.signs.num_beats += 1
        watching.signs.longest_s = max(watching.signs.longest_s, turn_s)
        watching.watch.look()


def test_a_thread_that_computed_and_then_hangs_is_noticed() -> None:
    watching = Watching()
    watching.wait(2, cpu_share=1.0)
    late, lost = watching.times()
    assert late <= 60 and lost <= 180


def test_the_longest_turn_fades() -> None:
    clock = Clock()
    pulse = Pulse(clock)
    clock.sleep(50)
    pulse.beat()
    assert pulse.longest_s == 50
    for _ in range(5000):
        clock.sleep(0.02)
        pulse.beat()
    assert 0.02 < pulse.longest_s < 1
    clock.sleep(3)
    assert pulse.age_s == pytest.approx(3)


def test_the_processor_time_of_another_thread() -> None:
    pulse, is_done = Pulse(), threading.Event()

    def work() -> None:
        pulse.begin()
        while not is_done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=work)
    thread.start()
    if hasattr(time, "pthread_getcpuclockid"):
        wait_until(lambda: pulse.cpu_s > 0.0)
    is_done.set()
    thread.join()
    assert pulse.cpu_s >= 0.0, "a thread that has ended may be asked too"


def test_a_thread_that_has_not_begun_has_had_no_time() -> None:
    assert Pulse().cpu_s == 0.0
