"""Other names for the model: which match, and which cannot be meant."""

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sources import load_config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.server.aliases import MAX_NAME, Aliases

TABLE = {"gpt-4o": "default", "claude-*": "org/model", "o?-mini": "default"}


@pytest.mark.parametrize(
    ("name", "is_alias"),
    [
        ("gpt-4o", True),
        ("gpt-4o-mini", False),
        ("GPT-4o", False),
        ("claude-", True),
        ("claude-sonnet-4-5-20250929", True),
        ("my-claude-3", False),
        ("claude-*", True),
        ("o3-mini", True),
        ("o13-mini", False),
        ("", False),
        ("claude-" + "x" * MAX_NAME, False),
    ],
)
def test_names_are_exact_or_match(name: str, is_alias: bool) -> None:
    assert Aliases(TABLE, served=("org/model", "default")).has(name) == is_alias


def test_only_exact_names_are_listed() -> None:
    assert Aliases(TABLE, served=("org/model", "default")).names == ("gpt-4o",)
    assert Aliases().names == () and not Aliases().has("default")


def test_an_alias_stands_for_what_is_served() -> None:
    with pytest.raises(StartupError, match=r"'claude-\*' stands for 'org/model', which is not served"):
        Aliases(TABLE, served=("other", "default"))


def test_the_environment_writes_json() -> None:
    config = load_config({}, {"PIE_ALIASES": '{"gpt-*": "default"}'})
    assert config.aliases == {"gpt-*": "default"}
    assert Config().aliases is None


@pytest.mark.parametrize(
    "text", ["gpt-*", "[]", "5", '{"a": 1}', '{"a": ""}', '{" ": "default"}', '{"a": null}', '{"a"']
)
def test_other_values_are_refused(text: str) -> None:
    with pytest.raises(StartupError, match="PIE_ALIASES"):
        load_config({}, {"PIE_ALIASES": text})
