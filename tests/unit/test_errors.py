"""Errors make their message late: a layer above may have another name for the parameter."""

import pytest

from proxy_inference_engine.errors import PARAM, ClientError, InvalidRequest, PieError, shorten


def test_the_message_has_the_name_that_the_error_has_when_it_is_shown() -> None:
    error = InvalidRequest(f"Invalid value for {PARAM}: too long.", param="messages")
    assert error.message == str(error) == "Invalid value for 'messages': too long."
    error.rename(lambda param: f"{param}[1]")
    assert error.param == "messages[1]"
    assert error.message == str(error) == "Invalid value for 'messages[1]': too long."
    error.rename(lambda param: param.replace("messages", "input"))
    assert error.message == "Invalid value for 'input[1]': too long."


def test_what_has_no_parameter_gets_none() -> None:
    error = PieError("broken")
    error.rename(lambda param: "messages")
    assert (error.param, error.message) == (None, "broken")


@pytest.mark.parametrize("word", [PARAM, "{param}", PARAM.strip("\x00{}")])
def test_no_word_of_a_client_is_taken_for_the_place_of_the_name(word: str) -> None:
    """Messages quote model names, keys of schemas, names of tools."""
    error = ClientError(f"The model {shorten(word)!r} does not exist.", param="model")
    assert error.message == f"The model {shorten(word)!r} does not exist."
    assert "'model'" not in error.message
