"""What goes to a GPU: as many layers as fit with room beside them, and KV where its layer is."""

import pytest

from proxy_inference_engine.runners.llama_cpp.devices import ALL_LAYERS, fitting_layers, free_for_kv

GIB = 1 << 30


@pytest.mark.parametrize(
    ("weights", "free", "layers"),
    [
        (8, 24, ALL_LAYERS),
        (19, 24, ALL_LAYERS),  # 19.2 of 24 are for weights
        (20, 24, 30),
        (40, 24, 15),
        (400, 24, 1),
        (4000, 24, 0),
    ],
)
def test_as_many_layers_as_fit(weights: int, free: int, layers: int) -> None:
    assert fitting_layers(32, weights * GIB, free * GIB) == layers


@pytest.mark.parametrize(
    ("host", "gpu", "share", "free"),
    [
        (100, 0, 0.0, 100),  # no GPU
        (100, 50, 1.0, 50),  # all on the GPU: the host's memory does not count
        (100, 50, 0.5, 100),  # half of each token's KV there
        (10, 50, 0.5, 20),
        (0, 50, 1.0, 50),
    ],
)
def test_kv_lies_where_its_layer_does(host: int, gpu: int, share: float, free: int) -> None:
    assert free_for_kv(host * GIB, gpu * GIB, share) == free * GIB
