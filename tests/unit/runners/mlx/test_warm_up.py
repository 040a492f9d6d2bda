"""What is computed before anyone waits leaves a runner as it was."""

import numpy as np
import pytest

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.mlx.rows import ordinary_ids
from proxy_inference_engine.runners.mlx.warm_up import warm_up
from tests.tiny.runners import make_runner

IDS = np.arange(5, 45, dtype=np.int32)


@pytest.mark.parametrize("num_slots", [1, 3])
@pytest.mark.parametrize("name", ["llama", "gemma3_text", "lfm2"])
def test_nothing_stays(name: str, num_slots: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    runner = make_runner(name, tmp_path_factory.getbasetemp(), lanes=[Lane(num_slots, 256)], defers=True)
    try:
        expected = np.asarray(runner.forward([Row(0, 0, IDS, 1)])[0])
        runner.release(0)
        warm_up(runner)
        np.testing.assert_array_equal(np.asarray(runner.forward([Row(0, 0, IDS, 1)])[0]), expected)
    finally:
        runner.close()


@pytest.mark.parametrize("num_tokens", [64, 49_152, 262_144])
def test_tokens_of_a_trial_are_ordinary(num_tokens: int) -> None:
    ids = ordinary_ids(num_tokens, 13)
    assert len(ids) == 13 and len(set(ids)) > 8 and ids == ordinary_ids(num_tokens, 13)
    assert all(num_tokens / 8 <= each < num_tokens * 7 / 8 for each in ids)
