"""Our attention: against a plain one in double precision, at the edges of its shapes, in every
variant that this processor can run. Skipped where it was not compiled."""

import numpy as np
import pytest

from proxy_inference_engine.runners.llama_cpp.binding import Binding
from proxy_inference_engine.runners.llama_cpp.product.attention import AttentionGraph, AttentionShape
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from tests.model.test_product import binding, product  # noqa: F401  (fixtures)

pytestmark = pytest.mark.model

SHAPES = [
    AttentionShape(3, 64, 2, 2, 16),
    AttentionShape(5, 70, 3, 1, 32),
    AttentionShape(17, 256, 9, 3, 64),
    AttentionShape(22, 256, 9, 3, 64, 3),
    AttentionShape(64, 130, 4, 4, 80),
    AttentionShape(65, 320, 8, 2, 128),
    AttentionShape(130, 512, 6, 3, 256, 2),
    AttentionShape(1, 640, 32, 8, 64, 8),
    *(AttentionShape(1, 200, heads, 1, 64) for heads in range(1, 10)),  # few rows, and one more than that
    AttentionShape(1, 65, 4, 4, 16),
    AttentionShape(1, 130, 6, 2, 80, 2),
    AttentionShape(2, 70, 6, 2, 128, 3),
    AttentionShape(3, 256, 2, 1, 256),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_attention_is_what_its_formula_says(
    product: Product,  # noqa: F811
    binding: Binding,  # noqa: F811
    shape: AttentionShape,
    threads: int,
) -> None:
    for num_unused in (0, shape.num_keys - shape.num_tokens):
        with AttentionGraph(binding, shape, seed=3, num_unused=num_unused) as graph:
            before = product.num_attended
            found = graph.compute(threads)
            assert product.num_attended == before + 1
            assert np.abs(found - graph.expected()).max() < 1e-4


def test_what_does_not_fit_is_left_to_ggml(product: Product, binding: Binding) -> None:  # noqa: F811
    before = product.num_attended
    with AttentionGraph(binding, AttentionShape(9, 64, width=24)) as graph:
        assert np.abs(graph.compute() - graph.expected()).max() < 0.05
    assert product.num_attended == before
