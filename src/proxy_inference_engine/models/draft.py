"""The file of a draft model, proved to speak the language of the model that answers. Loads no weights."""

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.resolve import ModelFile, resolve
from proxy_inference_engine.runners.base import Runner, Tokenizer
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.tokenizer import Vocabulary


def find_draft(name: str | None, target: Model) -> ModelFile | None:
    """None where none is wanted. Raises StartupError."""
    if name is None:
        return None
    try:
        file = resolve(name)
    except StartupError as error:
        raise StartupError(f"draft_model: {error.message}") from None
    if file.kind != "gguf":
        raise StartupError(f"draft_model {file.name!r} has to be a GGUF file, as the model it drafts for is one")
    words = Model(file.path, vocab_only=True)
    try:
        difference = _difference(Vocabulary(words), Vocabulary(target))
    finally:
        words.close()
    if difference is not None:
        raise StartupError(f"draft_model {file.name!r} does not have the vocabulary of the model: {difference}")
    return file


def check_memories(runner: Runner, draft: Runner) -> None:
    """Raises StartupError unless both can forget a guess that was wrong."""
    for each, what in ((runner, "the model"), (draft, "draft_model")):
        if not each.can_splice:
            raise StartupError(
                f"{what} {each.info.name!r} cannot take back a guess, being an encoder or having a sliding window or "
                "recurrent state: start without draft_model"
            )


def _difference(draft: Tokenizer, target: Tokenizer) -> str | None:
    if draft.num_tokens != target.num_tokens:
        return f"it has {draft.num_tokens} tokens, not {target.num_tokens}"
    for token_id in range(target.num_tokens):
        theirs, ours = draft.token_bytes(token_id), target.token_bytes(token_id)
        if theirs != ours:
            return f"its token {token_id} is {_text(theirs)}, not {_text(ours)}"
    return None


def _text(piece: bytes) -> str:
    return repr(piece.decode(errors="replace"))
