"""Conversations that are too long: what goes is whole turns, the oldest first, and never more than has to."""

import pytest

from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.served.ask import Turns
from proxy_inference_engine.served.images import image_content
from proxy_inference_engine.served.truncation import shortened, whole_turns, with_fewer_images, without_oldest
from tests.unit.served.turns import call, result, said, user, written

LONG = [
    Interaction.of(Role.SYSTEM, "s"),
    *[user("one"), call("1"), result("1"), said("first")],
    Interaction.of(Role.DEVELOPER, "d"),
    *[user("two"), call("2"), user("two more"), result("2"), said("second")],
    user("three"),
]


def test_whole_turns_keep_calls_with_their_results() -> None:
    groups = [[written(turn) for turn in group] for group in whole_turns(LONG)]
    assert groups == [
        ["user one", "assistant [1]", "tool of 1", "assistant first"],
        ["user two", "assistant [2]", "user two more", "tool of 2", "assistant second"],
        ["user three"],
    ]


def test_a_call_that_nobody_answers_holds_nothing_together() -> None:
    assert len(whole_turns([user("a"), call("1"), user("b"), user("c")])) == 3


def test_instructions_stay_when_turns_go() -> None:
    assert [written(turn) for turn in without_oldest(LONG, 2)] == ["system s", "developer d", "user three"]
    assert without_oldest(LONG, 0) == LONG


def num_letters(turns: Turns) -> int:
    return sum(len(turn.text) for turn in turns)


def lines(*lengths: int) -> list[Interaction]:
    """What a user said, a letter for each: "aaa", "bb", …"""
    return [user(chr(ord("a") + number) * length) for number, length in enumerate(lengths)]


@pytest.mark.parametrize(
    ("lengths", "max_tokens", "kept"),
    [
        ([40, 40, 40], 20, "bc"),  # 80 and 20 of 100
        ([40, 40, 40], 21, "c"),
        ([40, 40, 40], None, "bc"),  # an eighth is left where nobody says how much
        ([40, 44, 44], None, "bc"),
        ([40, 44, 45], None, "c"),
        ([10] * 12, 20, "efghijkl"),
        ([10] * 12, 1000, "hijkl"),  # never more than a half
        ([10, 10, 200], 20, "c"),  # the last one stays, whether it fits or not
        ([200], 20, "a"),
    ],
)
def test_as_few_turns_go_as_leave_room(lengths: list[int], max_tokens: int | None, kept: str) -> None:
    left = shortened(lines(*lengths), num_letters, max_tokens, 100)
    assert "".join(turn.text[0] for turn in left) == kept


def test_instructions_count_and_stay() -> None:
    turns = [Interaction.of(Role.SYSTEM, "s" * 50), *lines(30, 30, 10)]
    assert [turn.text[0] for turn in shortened(turns, num_letters, 20, 100)] == ["s", "c"]


def looking(num_images: int) -> Interaction:
    images = tuple(image_content(f"https://a.example/{number}.png", None, "x") for number in range(num_images))
    return Interaction(Role.USER, images)


@pytest.mark.parametrize(
    ("num_images", "most", "kept"),
    [
        ([1, 2, 3], 6, [1, 2, 3]),
        ([1, 2, 3], 5, [2, 3]),
        ([1, 2, 3], 4, [3]),
        ([3, 0, 1], 3, [0, 1]),
        ([1, 2, 3], 0, [3]),
        ([4], 1, [4]),
    ],
)
def test_images_go_with_their_turns(num_images: list[int], most: int, kept: list[int]) -> None:
    turns = [looking(num) for num in num_images]
    assert [len(turn.content) for turn in with_fewer_images(turns, most)] == kept
