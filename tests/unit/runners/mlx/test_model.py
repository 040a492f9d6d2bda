"""Folders in safetensors: what is read of them, and what is refused with a reason."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm.models.cache import make_prompt_cache

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.runners.checkpoint import read_chat_template, read_tool_template
from proxy_inference_engine.runners.mlx.model import MlxModel, load_model
from tests import tiny
from tests.tiny.vocabulary import CHATML, NUM_TOKENS

Edit = Callable[[Path], object]
WRITERS = {
    "llama": tiny.write_llama,
    "qwen3": tiny.write_qwen3,
    "gemma3_text": tiny.write_gemma3_text,
    "qwen3_moe": tiny.write_qwen3_moe,
    "lfm2": tiny.write_lfm2,
    "qwen3_next": tiny.write_qwen3_next,
}


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize("kind", WRITERS)
def test_what_a_model_says_of_itself(tmp_path: Path, kind: str) -> None:
    model = load_model(WRITERS[kind](tmp_path), "tiny")
    assert (model.info.name, model.info.architecture, model.info.context_tokens) == ("tiny", kind, 4096)
    assert model.info.description.endswith(" f32")
    assert model.info.weight_bytes == 4 * model.info.num_parameters
    assert model.vocabulary.num_tokens == model.model(mx.array([[1, 2, 3]])).shape[-1]


@pytest.mark.parametrize("kind", WRITERS)
def test_kv_bytes_are_what_the_caches_take(tmp_path: Path, kind: str) -> None:
    model = load_model(WRITERS[kind](tmp_path), "tiny")
    assert model.info.kv_bytes_per_token == kept_bytes(model) > 0


def kept_bytes(model: MlxModel) -> int:
    """What one token leaves in the caches that grow."""
    caches = make_prompt_cache(model.model)
    mx.eval(model.model(mx.array([[1, 2, 3]]), cache=caches))
    tensors = [values for each in caches if hasattr(each, "keys") for values in (each.keys, each.values)]
    return sum(values.shape[1] * values.shape[3] * values.itemsize for values in tensors)


def test_a_quantised_model(tmp_path: Path) -> None:
    plain = load_model(tiny.write_llama(tmp_path / "plain"), "tiny")
    model = load_model(tiny.write_quantised(tmp_path / "small"), "tiny")
    assert model.info.description.endswith(" 4-bit")
    assert model.info.num_parameters == plain.info.num_parameters
    assert model.info.weight_bytes < plain.info.weight_bytes / 4
    assert model.info.kv_bytes_per_token == plain.info.kv_bytes_per_token


def test_the_same_seed_gives_the_same_fingerprint(tmp_path: Path) -> None:
    first, again, other = (
        load_model(tiny.write_llama(tmp_path / name, seed=seed), "tiny").info.fingerprint
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first == again != other
    change(tmp_path / "again" / "config.json", rope_theta=20_000.0)
    assert load_model(tmp_path / "again", "tiny").info.fingerprint != first


def test_ends_come_from_every_file(tmp_path: Path) -> None:
    tiny.write_llama(tmp_path)
    change(tmp_path / "generation_config.json", eos_token_id=[7, 9])
    change(tmp_path / "config.json", eos_token_id=8)
    change(tmp_path / "tokenizer_config.json", eos_token={"content": "</think>"})
    named = {NUM_TOKENS - 7, NUM_TOKENS - 5}  # <|endoftext|> and <|im_end|>
    assert load_model(tmp_path, "tiny").end_ids == {7, 8, 9, NUM_TOKENS - 1} | named


def test_the_chat_template_of_each_place(tmp_path: Path) -> None:
    tiny.write_byte_tokenizer(tmp_path)
    assert read_chat_template(tmp_path) == CHATML
    named = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    change(tmp_path / "tokenizer_config.json", chat_template=named)
    assert read_chat_template(tmp_path) == "plain"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "from json"}')
    assert read_chat_template(tmp_path) == "from json"
    (tmp_path / "chat_template.jinja").write_text("from jinja")
    assert read_chat_template(tmp_path) == "from jinja"


def test_the_template_for_tools_of_each_place(tmp_path: Path) -> None:
    tiny.write_byte_tokenizer(tmp_path)
    assert read_tool_template(tmp_path) is None
    named = [{"name": name, "template": name} for name in ("rag", "tool_use", "default")]
    change(tmp_path / "tokenizer_config.json", chat_template=named)
    assert (read_chat_template(tmp_path), read_tool_template(tmp_path)) == ("default", "tool_use")
    change(tmp_path / "tokenizer_config.json", chat_template=named[:1])
    assert (read_chat_template(tmp_path), read_tool_template(tmp_path)) == (None, None)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("from jinja")
    assert read_tool_template(tmp_path) == "from jinja"


def test_a_model_without_a_template(tmp_path: Path) -> None:
    tiny.write_llama(tmp_path)
    change(tmp_path / "tokenizer_config.json", chat_template=None)
    assert load_model(tmp_path, "tiny").info.chat_template is None


def test_known_architectures_load_whatever_code_lies_beside_them(tmp_path: Path) -> None:
    tiny.write_llama(tmp_path)
    (tmp_path / "modeling_llama.py").write_text("raise SystemExit('ran')")
    change(tmp_path / "config.json", auto_map={"AutoModelForCausalLM": "modeling_llama.LlamaForCausalLM"})
    assert load_model(tmp_path, "tiny").info.architecture == "llama"


def edit_config(**values: Any) -> Edit:
    return lambda folder: change(folder / "config.json", **values)


def truncate(folder: Path) -> None:
    path = folder / "model.safetensors"
    os.truncate(path, path.stat().st_size - 1)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def index(names: dict[str, str]) -> Edit:
    text = json.dumps({"weight_map": names})
    return lambda folder: (folder / "model.safetensors.index.json").write_text(text)


def write(name: str, text: str) -> Edit:
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (edit_config(model_file="evil.py"), "own code.*never run"),
        (edit_config(model_type="strange"), "'strange', which mlx .* does not know$"),
        (edit_config(model_type="strange", auto_map={"AutoModel": "x.Y"}), "does not know; code .* never run"),
        (edit_config(model_type="cache"), "does not know"),
        (edit_config(model_type="../x"), "'model_type' should be"),
        (edit_config(model_type=None), "'model_type' should be"),
        (edit_config(hidden_size=32), "mlx-lm cannot load"),
        (edit_config(num_hidden_layers=4), "mlx-lm cannot load"),
        (edit_config(num_hidden_layers="many"), "mlx-lm cannot load"),
        (write("config.json", "{"), "config.json' is not JSON"),
        (write("config.json", "[]"), "config.json' should be a JSON object"),
        (lambda folder: (folder / "config.json").unlink(), "config.json': No such file"),
        (write("model.safetensors", "hello there"), "not a safetensors file"),
        (truncate, "bytes instead of .* download it again"),
        (pickled, "only safetensors"),
        (lambda folder: (folder / "model.safetensors").unlink(), "no model.*safetensors in it"),
        (index({"a": "model-1.safetensors"}), r"incomplete: model-1\.safetensors of 1 files"),
        (index({str(i): f"m{i}.safetensors" for i in range(5)}), r"m0\.s\w+, m1\.s\w+, m2\.s\w+ and 2 more of 5 files"),
        (index({"a": "../model.safetensors"}), "no safetensors file beside it"),
        (write("model-00002-of-00002.safetensors", ""), r"incomplete: model-00001-of-00002\.safetensors"),
        (write("tokenizer.json", "{}"), "is not a tokenizer"),
        (write("tokenizer.json", '{"model": {"type": "BPE", "vocab": 3}}'), "cannot be read"),
        (write("tokenizer_config.json", '{"added_tokens_decoder": {"x": {}}}'), "cannot be read"),
        (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer.json"),
    ],
)
def test_what_is_refused(tmp_path: Path, edit: Edit, reason: str) -> None:
    tiny.write_llama(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    edit(tmp_path)
    with pytest.raises(StartupError, match=reason):
        load_model(tmp_path, "tiny")


def test_a_missing_shard_that_is_a_broken_link(tmp_path: Path) -> None:
    tiny.write_llama(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "model.safetensors").symlink_to(tmp_path / "gone")
    with pytest.raises(StartupError, match=r"incomplete: model\.safetensors"):
        load_model(tmp_path, "tiny")


def test_the_limit_of_open_files_stays() -> None:
    """mlx-lm lowers it for the whole process when it is imported; a server needs it."""
    code = (
        "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (900, 1000)); import proxy_inference_engine.runners.mlx;"
        "print(r.getrlimit(r.RLIMIT_NOFILE))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "(900, 1000)"
