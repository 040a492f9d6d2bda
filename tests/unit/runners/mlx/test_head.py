"""The last layer computes what is asked for, whatever model it belongs to."""

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.runners.mlx.head import OutputHead
from proxy_inference_engine.runners.mlx.model import MlxModel
from tests.tiny.models import WIDTH
from tests.tiny.runners import WRITERS, load_tiny

IDS = mx.array([[7, 8, 9, 10, 11], [20, 30, 40, 50, 60]])


@pytest.fixture(scope="module", params=WRITERS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> MlxModel:
    return load_tiny(request.param, tmp_path_factory.getbasetemp())


def test_only_what_is_picked(loaded: MlxModel) -> None:
    whole = np.array(loaded.model(IDS))
    num_weights = len(tree_flatten(loaded.model.parameters()))
    head = OutputHead(loaded.model)
    seen: list[tuple[int, ...]] = []

    def pick(hidden: mx.array) -> mx.array:
        seen.append(hidden.shape)
        return hidden[:, 3:]

    found = head.logits(IDS, make_prompt_cache(loaded.model), pick)
    assert np.abs(np.array(found) - whole[:, 3:]).max() < 1e-5
    assert seen == [(2, 5, WIDTH)], "picked after the head, or twice"
    assert np.array_equal(np.array(loaded.model(IDS)), whole), "the model gives all of them to everybody else"
    assert len(tree_flatten(loaded.model.parameters())) == num_weights


def test_hidden_states_are_what_the_head_is_given(loaded: MlxModel) -> None:
    head = OutputHead(loaded.model)
    hidden = head.hidden(IDS, make_prompt_cache(loaded.model))
    assert hidden.shape == (2, 5, WIDTH)
    inner: Any = loaded.model
    logits = inner.lm_head(hidden) if "lm_head" in inner else inner.model.embed_tokens.as_linear(hidden)
    assert np.abs(np.array(logits) - np.array(loaded.model(IDS))).max() < 1e-5


def test_a_pass_that_fails_leaves_the_head_as_it_was(loaded: MlxModel) -> None:
    whole = np.array(loaded.model(IDS))
    head = OutputHead(loaded.model)

    def fail(hidden: mx.array) -> mx.array:
        raise MemoryError

    with pytest.raises(MemoryError):
        head.logits(IDS, make_prompt_cache(loaded.model), fail)
    assert np.array_equal(np.array(loaded.model(IDS)), whole)


class _Headless(nn.Module):
    def __call__(self, ids: mx.array, cache: object = None) -> mx.array:
        return ids[..., None] * mx.arange(3)


def test_a_model_without_a_head_that_we_know() -> None:
    head = OutputHead(_Headless())  # type: ignore[no-untyped-call]
    found = head.logits(mx.array([[4, 5, 6]]), [], lambda hidden: hidden[:, -1:])
    assert np.array(found).tolist() == [[[0, 6, 12]]]
