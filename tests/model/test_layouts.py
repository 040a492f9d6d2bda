"""Who multiplies weights of each format, in the default mode: our product, or ggml with layouts of its own, which the
product could not read. Skipped where the product was not compiled, or no variant of it is for this processor.
"""

from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType

from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.llama_cpp.library import start
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.product.hook import Product
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from tests.model.gguf_files import write_quantised_llama
from tests.model.plain_product import quantised

pytestmark = pytest.mark.model


@pytest.fixture
def product() -> Product:
    found = start().product
    if found is None or not found.replaces_layouts([8]):
        pytest.skip("there is no product here that is sooner than ggml's layouts")
    return found


def num_computed(path: Path, product: Product, num_tokens: int) -> int:
    """How many products of a pass were ours."""
    runner = LlamaRunner(Model(path), Settings(name="tiny", lanes=(Lane(1, 64),), threads=2))
    before = product.num_computed
    runner.forward([Row(0, 0, np.arange(5, 5 + num_tokens, dtype=np.int32), 1)])
    after = product.num_computed
    runner.close()
    return after - before


@pytest.mark.parametrize("num_tokens", [1, 7])
@pytest.mark.parametrize("format_name", ["Q8_0", "Q4_K", "Q5_K", "Q6_K"])
def test_formats_of_the_product_are_computed_by_it(
    format_name: str, num_tokens: int, product: Product, tmp_path: Path
) -> None:
    kind = GGMLQuantizationType[format_name]
    path = write_quantised_llama(tmp_path / "m.gguf", kind, lambda values: quantised(start().binding, kind, values))
    assert num_computed(path, product, num_tokens) >= 7  # of a layer


def test_other_formats_keep_the_layouts_of_ggml(product: Product, tmp_path: Path) -> None:
    kind = GGMLQuantizationType.Q4_0
    path = write_quantised_llama(tmp_path / "m.gguf", kind, lambda values: quantised(start().binding, kind, values))
    assert num_computed(path, product, 7) == 0


def test_what_the_product_replaces(product: Product) -> None:
    variant, product.variant = product.variant, "NEON"
    try:
        assert not product.replaces_layouts([0, 8, 12])  # ggml's own may be sooner there: never measured
    finally:
        product.variant = variant
    assert product.replaces_layouts([0, 1, 30, 8, 12, 13, 14])
    assert not product.replaces_layouts([0, 12, 2])
