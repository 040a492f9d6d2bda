"""What a part of the campaign found."""

from typing import NamedTuple


class Outcome(NamedTuple):
    num: int  # that were tried
    wrong: list[str]  # a line for each that was


def scaled(number: int, scale: float) -> int:
    return max(1, round(number * scale))
