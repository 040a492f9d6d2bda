"""`pie pull owner/model`: download a model, or what changed of it, into the Hugging Face cache."""

from proxy_inference_engine.cli.progress import ProgressLine
from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import download


def pull(config: Config) -> int:
    """Prints where the model is."""
    if config.model is None:
        raise StartupError("which model? pie pull owner/model")
    with ProgressLine() as line:
        file = download.pull(config, line)
    print(file.path)
    return 0
