"""LoRA adapters on MLX: rows with different ones in one pass, files of both kinds, and what is no adapter."""

import json
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx_lm.tuner.utils import load_adapters
from numpy.typing import NDArray

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.base import Lane, Row
from proxy_inference_engine.runners.mlx.model import load_model
from proxy_inference_engine.runners.mlx.runner import MlxRunner, Settings
from tests.tiny.adapters import TARGETS, write_mlx, write_peft
from tests.tiny.runners import folder_of

CLOSE = 1e-4
LANES = (Lane(6, 96), Lane(1, 200))
MODELS = ("llama", "quantised", "qwen3_moe", "gemma3_text", "lfm2")
# What a hybrid calls its projections.
TARGETS_OF = {"lfm2": ("self_attn.q_proj", "feed_forward.w2"), "qwen3_moe": TARGETS[:2]}
IDS = np.arange(20, 60, dtype=np.int32)
Logits = NDArray[np.float32]


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.getbasetemp()


def written(base: Path, folder: Path, name: str) -> dict[str, Path]:
    """Adapters of one model: of both kinds, of different ranks, and not of the same layers."""
    model, targets = folder_of(name, base), TARGETS_OF.get(name, TARGETS)
    return {
        "poet": write_peft(folder / "poet", model, seed=1, rank=4, targets=targets),
        "lawyer": write_mlx(folder / "lawyer", model, seed=2, rank=2, targets=targets),
        "judge": write_mlx(folder / "judge", model, seed=3, rank=8, targets=targets[:1]),
    }


def runner_with(base: Path, name: str, adapters: dict[str, Path]) -> MlxRunner:
    return MlxRunner(load_model(folder_of(name, base), name), Settings(LANES, defers=False, adapters=adapters))


def bare_logits(base: Path, name: str, adapter: Path | None) -> Logits:
    """What mlx-lm says with one adapter, or none, over the whole text in one pass."""
    model = load_model(folder_of(name, base), name).model
    if adapter is not None and (adapter / "adapters.safetensors").exists():
        load_adapters(model, str(adapter))
    elif adapter is not None:
        _merge(model, adapter)
    found: Logits = np.array(model(mx.array([IDS.tolist()])).astype(mx.float32))[0]
    return found


def _merge(model: nn.Module, adapter: Path) -> None:
    """A PEFT adapter as its paper says: W + alpha / r * B A."""
    config = json.loads((adapter / "adapter_config.json").read_text())
    weights = mx.load(str(adapter / "adapter_model.safetensors"))
    assert isinstance(weights, dict)
    modules = dict(model.named_modules())
    for key in [key for key in weights if "lora_A" in key]:
        module = modules[key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")]
        delta = config["lora_alpha"] / config["r"] * weights[key.replace("lora_A", "lora_B")] @ weights[key]
        if isinstance(module, nn.QuantizedLinear):
            plain = mx.dequantize(module.weight, module.scales, module.biases, module.group_size, module.bits)
            del module["scales"], module["biases"]
            module.__class__ = nn.Linear  # type: ignore[assignment]  # of the same numbers
            module.weight = plain + delta
        else:
            module.weight = module.weight + delta


def test_each_row_has_its_own_in_one_pass(base: Path, tmp_path: Path, name: str) -> None:
    """In a prompt, in short rows beside others, and token by token."""
    adapters = written(base, tmp_path, name)
    runner = runner_with(base, name, adapters)
    names = [None, *adapters, "poet", None]
    expected = {each: bare_logits(base, name, adapters.get(each or "")) for each in set(names)}
    assert np.abs(expected[None] - expected["poet"]).max() > 0.1
    for start, end in ((0, 20), (20, 21), (21, 22), (22, 30), (30, 40)):
        rows = [Row(slot, start, IDS[start:end], 1, adapter=each) for slot, each in enumerate(names)]
        for row, logits in zip(rows, runner.forward(rows), strict=True):
            difference = np.abs(np.asarray(logits)[0] - expected[row.adapter][end - 1]).max()
            assert difference < CLOSE, (row.adapter, start)


def test_rows_with_different_ones_go_together_where_that_is_sound(base: Path, tmp_path: Path) -> None:
    runner = runner_with(base, "llama", written(base, tmp_path, "llama"))
    assert runner._adapters is not None and runner._adapters.can_mix
    before = runner.forward([Row(slot, 0, IDS[:9], 1, adapter=name) for slot, name in enumerate((None, "poet"))])
    runner._adapters.can_mix = False
    for slot in range(2):
        runner.release(slot)
    after = runner.forward([Row(slot, 0, IDS[:9], 1, adapter=name) for slot, name in enumerate((None, "poet"))])
    for one, other in zip(before, after, strict=True):
        assert np.abs(np.asarray(one) - np.asarray(other)).max() < CLOSE


def test_a_layer_that_mixes_rows_up_is_noticed(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sees the rows of a batch in one long row cannot tell whose they are."""
    adapters = written(base, tmp_path, "llama")
    plain = type(load_model(folder_of("llama", base), "m").model.model.layers[0].mlp)
    call = plain.__call__

    def flat(self: nn.Module, hidden: mx.array) -> mx.array:
        found: mx.array = call(self, hidden.reshape(1, -1, hidden.shape[-1]))
        return found[-1:].reshape(hidden.shape) if found.shape[0] == 1 else found[0].reshape(hidden.shape)

    monkeypatch.setattr(plain, "__call__", flat)
    runner = runner_with(base, "llama", adapters)
    assert runner._adapters is not None and not runner._adapters.can_mix
    rows = [Row(slot, 0, IDS[:9], 1, adapter=name) for slot, name in enumerate((None, "poet"))]
    together = [np.array(logits) for logits in runner.forward(rows)]
    for row, logits in zip(rows, together, strict=True):
        runner.release(row.slot)
        assert np.abs(np.asarray(runner.forward([row])[0]) - logits).max() < CLOSE, "each had a pass of its own"


def test_without_one_the_model_is_what_it_was(base: Path, tmp_path: Path) -> None:
    plain, adapted = (runner_with(base, "llama", each) for each in ({}, written(base, tmp_path, "llama")))
    rows = [Row(slot, 0, IDS[: 5 + slot], 1) for slot in range(3)]
    for one, other in zip(plain.forward(rows), adapted.forward(rows), strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other))


def test_the_fingerprint_knows_what_an_adapter_says(base: Path, tmp_path: Path) -> None:
    adapters = {"poet": write_mlx(tmp_path / "poet", folder_of("llama", base), seed=1)}
    prints = {runner_with(base, "llama", each).info.fingerprint for each in ({}, adapters, {"other": adapters["poet"]})}
    write_mlx(tmp_path / "poet", folder_of("llama", base), seed=2)
    assert len(prints | {runner_with(base, "llama", adapters).info.fingerprint}) == 4


def _config(**changes: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def _weights(**changes: tuple[int, ...]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (path,) = folder.glob("*.safetensors")
        weights = mx.load(str(path))
        assert isinstance(weights, dict)
        mx.save_safetensors(str(path), {**weights, **{name: mx.zeros(shape) for name, shape in changes.items()}})

    return change


def _cut(folder: Path) -> None:
    (path,) = folder.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:-50])


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


LAYER = "model.layers.0.self_attn.q_proj"


@pytest.mark.parametrize(
    ("write", "damage", "said"),
    [
        (write_peft, _empty, "adapter_config.json"),
        (write_peft, _cut, "download it again"),
        (write_peft, _config(use_dora=True), "only plain LoRA"),
        (write_peft, _config(peft_type="IA3"), "only plain LoRA"),
        (write_peft, _config(modules_to_save=["lm_head"]), "modules_to_save"),
        (write_peft, _config(bias="all"), "'bias'"),
        (write_peft, _config(lora_alpha="x"), "lora_alpha"),
        (write_peft, _config(alpha_pattern={"(a+)+": 3}), "only names of layers"),
        (write_peft, _weights(**{"base_model.model.lm_head.weight": (4, 4)}), "no part of a LoRA adapter"),
        (write_peft, _weights(**{f"base_model.model.{LAYER}.lora_A.weight": (3, 64)}), "do not belong together"),
        (write_mlx, _config(fine_tune_type="dora"), "only plain LoRA"),
        (write_mlx, _config(lora_parameters={}), "scale"),
        (write_mlx, _weights(**{"model.layers.0.mlp.m": (4,)}), "no part of a LoRA adapter"),
        (write_mlx, _weights(**{f"{LAYER}.lora_a": (32, 4)}), "is for another model"),
        (write_mlx, _weights(**{"model.layers.9.x.lora_a": (4, 4), "model.layers.9.x.lora_b": (4, 4)}), "no linear"),
        (write_mlx, _weights(**{"lm_head.lora_a": (64, 4), "lm_head.lora_b": (4, 512)}), "'lm_head'"),
    ],
)
def test_what_is_no_adapter_of_the_model_is_one_line(
    base: Path, tmp_path: Path, write: Callable[..., Path], damage: Callable[[Path], None], said: str
) -> None:
    folder = write(tmp_path / "bad", folder_of("llama", base))
    damage(folder)
    with pytest.raises(StartupError) as caught:
        runner_with(base, "llama", {"bad": folder})
    assert said in caught.value.message and "adapter 'bad'" in caught.value.message
    assert "\n" not in caught.value.message


def test_peft_s_scales(base: Path, tmp_path: Path) -> None:
    """rsLoRA divides by the root of the rank, and layers may have an alpha of their own."""
    folder = write_peft(tmp_path / "a", folder_of("llama", base), rank=4, targets=TARGETS[:1])
    said = []
    for change in ({}, {"use_rslora": True, "lora_alpha": 4}, {"alpha_pattern": {"q_proj": 4.0}, "lora_alpha": 1}):
        _config(**change)(folder)
        runner = runner_with(base, "llama", {"a": folder})
        said.append(np.asarray(runner.forward([Row(0, 0, IDS, 1, adapter="a")])[0]))
    assert max(np.abs(said[0] - other).max() for other in said[1:]) < CLOSE  # 8/4, 4/2 and 4/2
