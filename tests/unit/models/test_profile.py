"""What a model wants where a request is silent: its own files before what is known by its name."""

import math

import pytest

from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.models.resolve import BUNDLED_NAME


def test_the_files_of_a_model_come_before_its_name_and_ours() -> None:
    assert profile("other", "llama") == Profile()
    own = {"temperature": 0.6, "top_k": 20, "top_p": "0.95", "min_p": 0, "repetition_penalty": 1.05, "do_sample": True}
    assert profile("other", "llama", own) == Profile(0.6, 0.95, 20, 0.0, 1.05)
    bundled = profile(BUNDLED_NAME, "llama", {"temperature": 0.7})
    assert (bundled.temperature, bundled.top_p, bundled.spaces_json) == (0.7, 0.9, True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", -1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", "warm"),
        ("temperature", True),
        ("temperature", None),
        ("temperature", [0.5]),
        ("temperature", 10**400),
        ("top_p", 1.5),
        ("top_k", -1),
        ("top_k", math.inf),
        ("min_p", -0.1),
        ("repetition_penalty", 0),
        ("repetition_penalty", 1000),
    ],
)
def test_what_no_request_may_say_is_left_out(key: str, value: object) -> None:
    assert profile("other", "llama", {key: value}) == Profile()


def test_the_number_of_tokens_to_keep_is_whole() -> None:
    found = profile("other", "llama", {"top_k": "40"})
    assert found.top_k == 40 and isinstance(found.top_k, int)
