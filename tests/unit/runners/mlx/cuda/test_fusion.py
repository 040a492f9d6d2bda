"""Fused projections give what the single ones give."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core")

from proxy_inference_engine.runners.mlx.cuda.fusion import fuse  # noqa: E402
from proxy_inference_engine.runners.mlx.model import load_model  # noqa: E402
from tests import tiny  # noqa: E402

CASES = [
    (tiny.write_llama, 6),
    (tiny.write_qwen3, 6),
    (tiny.write_gemma3_text, 12),
    (tiny.write_qwen3_moe, 3),
    (tiny.write_quantised, 0),
]


@pytest.mark.parametrize(("write", "num_fused"), CASES)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_the_same_logits(write: Callable[[Path], Path], num_fused: int, is_compiled: bool, tmp_path: Path) -> None:
    folder = write(tmp_path / "model")
    plain, fused = load_model(folder, "plain").model, load_model(folder, "fused").model
    assert fuse(fused) == num_fused
    call = mx.compile(lambda ids: fused(ids)) if is_compiled else fused
    for ids in ([3, 4, 5, 6, 7], [9, 8, 7, 6, 5]):
        found, wanted = np.array(call(mx.array([ids]))), np.array(plain(mx.array([ids])))
        assert np.abs(found - wanted).max() <= 1e-5


def test_a_projection_that_is_asked_alone_follows_its_own_input(tmp_path: Path) -> None:
    model = load_model(tiny.write_llama(tmp_path / "model"), "plain").model
    attention = model.layers[0].self_attn
    one, other = mx.random.normal((1, 2, 64)), mx.random.normal((1, 2, 64))
    wanted = [np.array(attention.q_proj(one)), np.array(attention.k_proj(other)), np.array(attention.q_proj(other))]
    fuse(model)
    found = [np.array(attention.q_proj(one)), np.array(attention.k_proj(other)), np.array(attention.q_proj(other))]
    assert all(np.allclose(*pair, atol=1e-6) for pair in zip(found, wanted, strict=True))
