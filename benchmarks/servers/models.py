"""One model in the forms that servers read."""

import hashlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers.environments import PEERS, ROOT, NotInstalled
from benchmarks.servers.shapes import write_shape
from proxy_inference_engine.config import Config
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary
from proxy_inference_engine.runners.llama_cpp.weights import fastest_weights

_CONVERTER = ROOT / "scripts" / "convert_gguf.py"


@dataclass(frozen=True, slots=True)
class Models:
    """One model, in every form that some server reads."""

    given: Path  # the GGUF every server is given
    converted: Path  # what our server makes of it
    checkpoint: Path | None  # the same weights as safetensors, in bfloat16; None: there are none
    name: str  # what our server calls it
    quantisation: str
    is_bundled: bool
    vocabulary: Vocabulary

    @property
    def is_converted(self) -> bool:
        return self.converted != self.given


def find_models(threads: int, say: Callable[[str], None], shape: str | None = None) -> Models:
    """Find the bundled model, or write one in another shape, and convert it as our server would.

    The checkpoint is only named, not written.
    """
    file = resolve(None)
    if shape is not None:
        file = resolve(str(write_shape(shape, file.path, PEERS / "weights", say)))
    facts = (file.path.name, file.path.stat().st_size)
    folder = f"{file.path.stem}-{hashlib.sha256(repr(facts).encode()).hexdigest()[:8]}-bf16"
    return Models(
        given=file.path,
        converted=fastest_weights(file.path, cache_dir=Config().cache_dir, threads=threads, report=say),
        checkpoint=None if shape is not None else PEERS / "weights" / folder,
        name=file.name,
        quantisation="Q4_1" if shape is None else "Q4_K_M",
        is_bundled=shape is None,
        vocabulary=Vocabulary(Model(file.path, vocab_only=True)),
    )


def make_checkpoint(models: Models, say: Callable[[str], None]) -> None:
    """Write the checkpoint unless it is there. Raises NotInstalled."""
    if models.checkpoint is None:
        raise NotInstalled("there are no safetensors of this model")
    if (models.checkpoint / "config.json").exists():  # written last
        return
    say("writing the weights as safetensors for servers that do not read GGUF")
    command = [sys.executable, str(_CONVERTER), "--dtype", "bf16", "--out", str(models.checkpoint)]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode != 0:
        raise NotInstalled(f"the checkpoint could not be written: {(answer.stderr.splitlines() or ['?'])[-1]}")
