"""The line that shows a download: rewritten on a terminal, plain and rare elsewhere."""

import io

import pytest

from proxy_inference_engine.cli.progress import ProgressLine

MIB = 1 << 20


class Screen(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def shown(*, is_terminal: bool, seconds: int = 40) -> str:
    """A download of 2 MiB a second, told of four times a second, of which half was there already."""
    screen, clock = Screen(is_terminal=is_terminal), Clock()
    with ProgressLine(screen, clock) as line:
        line.say("downloading owner/model")
        for quarter in range(seconds * 4 + 1):
            clock.now = quarter / 4
            line.show(80 * MIB + quarter * MIB // 2, 160 * MIB)
    return screen.getvalue()


def test_plain_lines_now_and_then() -> None:
    assert shown(is_terminal=False).splitlines() == [
        "downloading owner/model",
        "50 %, 80 MiB of 160 MiB",
        "68 %, 110 MiB of 160 MiB, 2 MiB/s, 0:25 left",
        "87 %, 140 MiB of 160 MiB, 2 MiB/s, 0:10 left",
        "100 %, 160 MiB of 160 MiB, 2 MiB/s",
    ]


def test_what_takes_seconds_each_has_no_speed_of_zero() -> None:
    screen, clock = Screen(is_terminal=False), Clock()
    with ProgressLine(screen, clock, form=str) as line:
        for number in range(9):
            clock.now = 20.0 * number
            line.show(number, 8)
    assert screen.getvalue().splitlines()[1] == "12 %, 1 of 8, 2:20 left" and "/s" not in screen.getvalue()


def test_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    first, *rest = shown(is_terminal=True, seconds=30).split("\r")
    assert first == "downloading owner/model\n"
    assert rest[0] == "[############------------] 50 %, 80 MiB of 160 MiB\x1b[K"
    assert rest[60].startswith("[################--------] 68 %, 110 MiB of 160 MiB, 2 MiB/s, 0:25 left")
    assert rest[-1].endswith("\x1b[K\n") and not any("\n" in text for text in rest[:-1])


def test_a_narrow_terminal_is_never_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    _, *rest = shown(is_terminal=True, seconds=5).split("\r")
    assert all(len(text.rstrip("\n").removesuffix("\x1b[K")) <= 19 for text in rest)


def test_the_terminal_is_told_at_most_ten_times_a_second() -> None:
    screen, clock = Screen(is_terminal=True), Clock()
    line = ProgressLine(screen, clock)
    for number in range(1000):
        clock.now = number / 1000
        line.show(number, 2000)
    assert 9 <= screen.getvalue().count("\r") <= 11


@pytest.mark.parametrize(
    ("has_begun", "expected"), [(True, "stopped; the same command goes on from here\n"), (False, "")]
)
def test_ctrl_c_says_that_nothing_is_lost(has_begun: bool, expected: str) -> None:
    screen = Screen(is_terminal=False)
    with pytest.raises(KeyboardInterrupt), ProgressLine(screen) as line:
        if has_begun:
            line.show(0, 10)
        raise KeyboardInterrupt
    assert screen.getvalue().removeprefix("0 %, 0 B of 10 B\n") == expected


def test_a_line_between_comes_on_its_own_line() -> None:
    screen = Screen(is_terminal=True)
    line = ProgressLine(screen)
    line.show(1, 10)
    line.say("waiting")
    assert screen.getvalue().endswith("\nwaiting\n")


def test_the_speed_of_a_second_download_is_its_own() -> None:
    screen, clock = Screen(is_terminal=False), Clock()
    line = ProgressLine(screen, clock)
    for now, num_bytes in ((0.0, 0), (1.0, 100), (2.0, 0), (4.0, 100)):
        clock.now = now
        line.show(num_bytes, 100)
    assert screen.getvalue().splitlines()[1:] == ["100 %, 100 B of 100 B, 100 B/s", "100 %, 100 B of 100 B, 50 B/s"]


def test_nothing_to_write_on_is_no_error() -> None:
    screen = Screen(is_terminal=False)
    line = ProgressLine(screen)
    screen.close()
    line.show(1, 10)
    line.say("hello")
