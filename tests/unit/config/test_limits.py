"""`[limits]` as people write it."""

from pathlib import Path

import pytest

from proxy_inference_engine.config import Config, load_config
from proxy_inference_engine.config.limits import KeyLimits
from proxy_inference_engine.errors import StartupError

TOML = """
[limits]
requests_per_minute = 60
tokens_per_day = 1000000

[limits.anna]
requests_per_minute = 600

[limits.batch-jobs]
requests_per_minute = 0
tokens_per_minute = 5000
"""


def test_a_key_s_own_limits_come_first(tmp_path: Path) -> None:
    (tmp_path / "pie.toml").write_text(TOML)
    limits = load_config({}, {}, tmp_path).limits
    assert limits is not None
    assert limits.of("ben") == KeyLimits(requests_per_minute=60, tokens_per_day=1000000)
    assert limits.of("anna") == KeyLimits(requests_per_minute=600, tokens_per_day=1000000)
    jobs = limits.of("batch-jobs")
    assert jobs == KeyLimits(requests_per_minute=0, tokens_per_minute=5000, tokens_per_day=1000000)
    assert not jobs.are_none and KeyLimits(requests_per_minute=0).are_none


def test_json_in_the_environment(tmp_path: Path) -> None:
    config = load_config({}, {"PIE_LIMITS": '{"anna": {"tokens_per_minute": 5}}'}, tmp_path)
    assert config.limits is not None and config.limits.of("ben").are_none
    assert config.limits.of("anna").tokens_per_minute == 5
    assert Config().limits is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[]", "a table"),
        ("{", "JSON"),
        ('{"requests": 5}', "requests"),
        ('{"requests_per_minute": -1}', "requests_per_minute"),
        ('{"requests_per_minute": 1.5}', "requests_per_minute"),
        ('{"requests_per_minute": true}', "requests_per_minute"),
        ('{"anna": {"tokens": 5}}', "anna.tokens"),
        ('{"a b": {"tokens_per_day": 5}}', "name"),
        ('{"anna": {"ben": {}}}', "anna.ben"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(StartupError, match="PIE_LIMITS") as caught:
        load_config({}, {"PIE_LIMITS": text}, tmp_path)
    assert reason in caught.value.message
