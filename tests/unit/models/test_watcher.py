"""What is shown of a start: nothing of a short one."""

import pytest

from proxy_inference_engine.models.watcher import shares
from tests.unit.models.download.pulling import Watcher


def test_only_what_takes_a_moment_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [50.0]
    monkeypatch.setattr("proxy_inference_engine.models.watcher.time.monotonic", lambda: now[0])
    watcher = Watcher()
    show = shares(watcher, 2000)
    for second, share in enumerate((0.0, 0.1, 0.25, 1.0)):
        now[0] = 50.0 + second
        show(share)
    assert watcher.shown == [(500, 2000), (2000, 2000)]
    short = shares(watcher, 2000)
    short(1.0)
    assert len(watcher.shown) == 2
