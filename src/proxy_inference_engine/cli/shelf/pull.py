"""`pie pull owner/model`: download a model, or what changed of it, into the Hugging Face cache."""

from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download import model as download


def pull(config: Config, *, model: str | None = None) -> int:
    """Prints where the model is."""
    config = config.model_copy(update={"model": model or config.model})
    if config.model is None:
        raise StartupError("which model? pie pull owner/model")
    with ProgressLine() as line:
        file = download.pull(config, line)
    print(file.path)
    return 0
