"""Which files of a repository are fetched, as tables of names."""

from pathlib import Path

import pytest

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.plan import make_plan
from proxy_inference_engine.models.hub import parse_name
from proxy_inference_engine.models.resolve import ModelFile, find_mmproj

SPLIT = ["big/M-Q8_0-00001-of-00002.gguf", "big/M-Q8_0-00002-of-00002.gguf"]
REST = ["README.md", "config.json", "modeling.py", "pytorch_model.bin", "weights.pt", "weights.pkl", "imatrix.gguf"]
WEIGHTS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


def planned(names: list[str], wanted: str = "o/m", *, wants_mmproj: bool = True, size: int = 3 << 20) -> list[str]:
    name = parse_name(wanted)
    assert name is not None
    files = [RemoteFile(path, size, f"{number:064x}") for number, path in enumerate(names)]
    return [file.path for file in make_plan(name, files, wants_mmproj=wants_mmproj).files]


@pytest.mark.parametrize(
    ("names", "wanted", "expected"),
    [
        (["M-Q8_0.gguf", *REST], "o/m", ["M-Q8_0.gguf"]),
        (["M-Q8_0.gguf", "M-Q4_K_M.gguf", *REST], "o/m:Q4_K_M", ["M-Q4_K_M.gguf"]),
        (["M-Q8_0.gguf", "M-Q4_K_M.gguf"], "o/m:m-q4_k_m@v1", ["M-Q4_K_M.gguf"]),
        ([*SPLIT, "M-Q4_0.gguf"], "o/m:Q8_0", SPLIT),
        ([*reversed(SPLIT), "mmproj-f16.gguf"], "o/m", SPLIT),
        (["M.gguf", "mmproj-M-f32.gguf", "mmproj-M-F16.gguf"], "o/m", ["M.gguf", "mmproj-M-F16.gguf"]),
        (["M.gguf", "other/mmproj-f16.gguf"], "o/m", ["M.gguf"]),
        (["M.gguf", "config.json", "tokenizer.json", "model.safetensors"], "o/m:M", ["M.gguf"]),
        (
            ["M.gguf", *REST, "tokenizer.json", "model.safetensors"],
            "o/m",
            ["config.json", "tokenizer.json", "model.safetensors"],
        ),
        (["config.json", "tokenizer.json", *WEIGHTS], "o/m", ["config.json", "tokenizer.json", *WEIGHTS]),
    ],
)
def test_what_is_fetched(names: list[str], wanted: str, expected: list[str]) -> None:
    assert planned(names, wanted) == expected


def test_an_mmproj_file_that_nobody_wants_is_left_out() -> None:
    assert planned(["M.gguf", "mmproj-f16.gguf"], wants_mmproj=False) == ["M.gguf"]


@pytest.mark.parametrize(
    ("names", "wanted", "reason"),
    [
        (["A-Q4_0.gguf", "A-Q8_0.gguf"], "o/m", r"several GGUF files: A-Q4_0 \(3 MiB\), A-Q8_0 \(3 MiB\); name one"),
        (["A-Q4_0.gguf", *SPLIT], "o/m:Q5_0", r"no GGUF file 'Q5_0': A-Q4_0 \(3 MiB\), M-Q8_0 \(6 MiB\); name one"),
        (SPLIT[:1], "o/m", "incomplete on the hub: it has no M-Q8_0-00002-of-00002.gguf"),
        (["README.md"], "o/m", r"nothing to run: neither config\.json with model\*\.safetensors nor a GGUF file"),
        ([], "o/m", "nothing to run"),
        (
            ["config.json", "tokenizer.json", "pytorch_model.bin"],
            "o/m",
            "no weights: only safetensors and GGUF are load",
        ),
        (["pytorch_model.bin"], "o/m", "pickled files can run code"),
        (["config.json", "tokenizer.json", "adapter_model.safetensors"], "o/m", "an adapter for another model"),
        (["config.json", "model.safetensors"], "o/m", r"has no tokenizer\.json"),
        (["mmproj-f16.gguf"], "o/m", "nothing to run"),
    ],
)
def test_what_cannot_be_fetched(names: list[str], wanted: str, reason: str) -> None:
    with pytest.raises(StartupError, match=reason):
        planned(names, wanted)


def test_an_absurd_index() -> None:
    with pytest.raises(StartupError, match=r"index\.json of 'o/m' has 1 GiB, which is absurd"):
        planned(["config.json", "tokenizer.json", "model.safetensors.index.json"], size=1 << 30)


def test_the_mmproj_file_is_the_one_that_the_loader_prefers(tmp_path: Path) -> None:
    names = [f"mmproj-model-{word}.gguf" for word in ("bf16", "f16", "f32", "q8_0", "other")]
    for number in range(len(names)):
        left = names[number:] if number < 2 else [*names[number:], names[0]]
        folder = tmp_path / str(number)
        folder.mkdir()
        for name in left:
            (folder / name).touch()
        found = find_mmproj(None, ModelFile(folder / "M.gguf", "M", is_bundled=False, kind="gguf"))
        assert found is not None
        assert planned(["M.gguf", *left])[1] == found.path.name
