"""One model in the forms that servers read."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.environments import PEERS, ROOT, NotInstalled
from proxy_inference_engine.config import Config
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_CONVERTER = ROOT / "scripts" / "convert_gguf.py"


@dataclass(frozen=True, slots=True)
class Models:
    """The bundled model, in every form that some server reads."""

    given: Path  # the GGUF every server is given
    converted: Path  # what our server makes of it
    checkpoint: Path  # the same weights as safetensors, in bfloat16
    name: str  # what our server calls it
    vocabulary: Vocabulary


def find_models(threads: int, say: Callable[[str], None]) -> Models:
    """Find the bundled model and convert it as our server would; the checkpoint is only named, not written."""
    file = resolve(None)
    facts = (file.path.name, file.path.stat().st_size)
    folder = f"{file.path.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}-bf16"
    return Models(
        given=file.path,
        converted=fastest_weights(file.path, cache_dir=Config().cache_dir, threads=threads, report=say),
        checkpoint=PEERS / "weights" / folder,
        name=file.name,
        vocabulary=Vocabulary(Model(file.path, vocab_only=True)),
    )


def make_checkpoint(models: Models, say: Callable[[str], None]) -> None:
    """Write the checkpoint unless it is there. Raises NotInstalled."""
    if (models.checkpoint / "config.json").exists():  # written last
        return
    say("writing the weights as safetensors for servers that do not read GGUF")
    command = [sys.executable, str(_CONVERTER), "--dtype", "bf16", "--out", str(models.checkpoint)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        raise NotInstalled(f"the checkpoint could not be written: {(answer.stderr.splitlines() or ['?'])[-1]}")
