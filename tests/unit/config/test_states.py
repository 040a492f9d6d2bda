"""Sampling that differs by state, in the operator's words: where they are read, and what is wrong with them."""

from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import Config, load_config
from proxy_inference_engine.errors import StartupError

TABLE: dict[str, Any] = {"tool_call": {"temperature": 0}, "reasoning": {"top_p": 0.9, "top_k": 20}, "structured": {}}
TOML = "[state_sampling.tool_call]\ntemperature = 0\n[state_sampling.reasoning]\ntop_p = 0.9\ntop_k = 20\n"
VARIABLE = '{"tool_call": {"temperature": 0}, "reasoning": {"top_p": 0.9, "top_k": 20}}'
OVERRIDES = {"tool_call": {"temperature": 0}, "reasoning": {"top_p": 0.9, "top_k": 20}}


def test_it_is_read_from_every_source(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text(TOML)
    from_toml = load_config({}, {}, tmp_path)
    from_environment = load_config({}, {"PIE_STATE_SAMPLING": VARIABLE}, Path("/nowhere"))
    for config in (from_toml, from_environment, Config.model_validate({"state_sampling": TABLE})):
        assert config.state_sampling is not None and config.state_sampling.overrides() == OVERRIDES
    assert Config().state_sampling is None


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("{", "should be a JSON object"),
        ("[]", "should be a table of states"),
        ("5", "should be a table of states"),
        ('{"text": {}}', "text: "),
        ('{"tool_call": 0}', "tool_call: "),
        ('{"tool_call": {"temperature": 2.1}}', "tool_call.temperature: "),
        ('{"tool_call": {"temperature": "0"}}', "tool_call.temperature: "),
        ('{"tool_call": {"top_p": -1}}', "tool_call.top_p: "),
        ('{"reasoning": {"top_k": 1.5}}', "reasoning.top_k: "),
        ('{"reasoning": {"min_p": NaN}}', "reasoning.min_p: "),
        ('{"reasoning": {"seed": 1}}', "reasoning.seed: "),
    ],
)
def test_what_is_wrong_is_named(value: str, message: str) -> None:
    with pytest.raises(StartupError) as caught:
        load_config({}, {"PIE_STATE_SAMPLING": value}, Path("/nowhere"))
    assert caught.value.message.startswith(f"PIE_STATE_SAMPLING: {message}")
