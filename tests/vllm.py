"""The real vLLM on the CPU, from the environment that `make vllm` makes.

Where that environment is missing, what needs it is skipped. `VLLM_TEST_URL` names one that runs already, over the tiny
model of the tests.
"""

import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from proxy_inference_engine.config import Config
from proxy_inference_engine.far.model import FarModel
from proxy_inference_engine.models.load import load_far
from proxy_inference_engine.models.watcher import Nobody
from tests.polling import wait_until

ROOT = Path(__file__).parents[1]
PYTHON = ROOT / ".venv-vllm" / "bin" / "python"
VISION = ROOT / ".venv-vllm" / "vision"  # what its image processors need
MISSING = "vLLM is not installed: `make vllm` makes its environment"
START_S = 600.0
NAME = "there"
CONTEXT = 8192


def is_installed() -> bool:
    return PYTHON.exists() or "VLLM_TEST_URL" in os.environ


def convert(folder: Path) -> Path:
    """The bundled model as safetensors, in 32 bits."""
    command = [sys.executable, str(ROOT / "scripts" / "convert_gguf.py"), "--dtype", "f32", "--out", str(folder)]
    subprocess.run(command, check=True)
    return folder


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@dataclass
class VllmProcess:
    """One vLLM on a port of its own, which can be killed and started again."""

    weights: Path
    log: Path
    port: int = field(default_factory=free_port)
    options: tuple[str, ...] = ("--enable-scale-out",)
    takes_images: bool = False
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begins; `wait` waits for it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        environment["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] = "1"  # as long as the API's tests want it
        if self.takes_images:
            environment["PYTHONPATH"] = f"{ROOT / 'tests' / 'vllm_vision'}{os.pathsep}{VISION}"
        command = [
            *(str(PYTHON), "-m", "vllm.entrypoints.openai.api_server", "--model", str(self.weights)),
            *("--served-model-name", NAME, "--host", "127.0.0.1", "--port", str(self.port)),
            *("--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT)),
            # In 0.32 a prompt that has a seed and is computed in parts ends vLLM for processors.
            "--no-enable-chunked-prefill",
            *("--enable-prompt-tokens-details", "--structured-outputs-config", '{"backend":"guidance"}'),
            *self.options,
        ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self.log.parent, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        wait_until(self.is_healthy, START_S)

    def is_healthy(self) -> bool:
        assert self.process is None or self.process.poll() is None, self.log.read_text()[-4000:]
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def kill(self) -> None:
        """All of its processes, without a warning."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def metric(self, name: str) -> float:
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(f"vllm:{name}{{"))


@contextmanager
def running(weights: Path, log: Path, *options: str, takes_images: bool = False) -> Iterator[VllmProcess]:
    process = VllmProcess(weights, log, options=options or ("--enable-scale-out",), takes_images=takes_images)
    process.start()
    try:
        process.wait()
        yield process
    finally:
        process.kill()


@contextmanager
def over(url: str, weights: Path, cache_dir: Path) -> Iterator[FarModel]:
    """A model whose words are read here and which the vLLM at this address computes."""
    config = Config(engine="vllm", url=(url,), model=str(weights), cache_dir=cache_dir)
    model = load_far(config, Nobody())
    try:
        yield model
    finally:
        model.stop()
