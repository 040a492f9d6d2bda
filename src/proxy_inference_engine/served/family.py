"""Which chat template a model is given, and the family fitted to it: decided once, when the model is loaded."""

from pathlib import Path

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.formats import FORMATS, choose_format
from proxy_inference_engine.prompt.fitted_template import FittedTemplate, fit_template, with_tool_template
from proxy_inference_engine.runners.base import Tokenizer


def fit_family(
    config: Config,
    tokenizer: Tokenizer,
    template: str | None,
    architecture: str = "",
    name: str = "",
    *,
    tool_template: str | None = None,
) -> FittedTemplate:
    """The facts are the model's own; `tool_template` is what it has for conversations with tools.

    Raises StartupError where its template fails.
    """
    wanted: str | None = config.format
    source = with_tool_template(template, tool_template, tokenizer)
    if config.chat_template is not None and config.chat_template in {each.name for each in FORMATS}:
        wanted, source = wanted or config.chat_template, None
    elif config.chat_template is not None:
        source = _read(Path(config.chat_template))
    format = choose_format(wanted, source, architecture, name)
    return fit_template(format, source, tokenizer, keeps_calls=wanted is not None)


def _read(path: Path) -> str:
    try:
        return path.expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        known = ", ".join(sorted(each.name for each in FORMATS))
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise StartupError(f"chat_template {str(path)!r}: {reason}; a file, or one of: {known}") from None
