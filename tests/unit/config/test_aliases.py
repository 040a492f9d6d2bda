"""Other names for models, as the environment has them."""

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sources import load_config
from proxy_inference_engine.errors import StartupError


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
