"""How llama.cpp's models take images: the marker in their templates, and the tokens that it becomes."""

from functools import lru_cache
from typing import NamedTuple

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.base import ImageTokens
from proxy_inference_engine.runners.llama_cpp.vision.mtmd import ImagePiece, Projector

_MAX_RATIO = 50  # of an image's sides: beyond, some become images without a pixel
_MAX_SIDE = 1 << 16
_KEPT_SIZES = 1024
_PROBES = ((64, 48), (_MAX_RATIO, 1), (1, _MAX_RATIO))


class Family(NamedTuple):
    marker: str  # what templates write
    around: str = ""  # text on both sides of it, where the model was trained with one
    is_framed: bool = False  # templates write the tokens before and after it too


_QWEN = Family("<|image_pad|>", is_framed=True)
FAMILIES = {
    "gemma3": Family("<start_of_image>", around="\n\n"),
    "idefics3": Family("<image>"),
    "qwen2vl_merger": _QWEN,
    "qwen2.5vl_merger": _QWEN,
    "qwen3vl_merger": _QWEN,
}


class PieceSpan(NamedTuple):
    """What stands in a prompt for an image: its own pieces, and the tokens around them."""

    before: tuple[int, ...]
    pieces: tuple[ImagePiece, ...]  # from the first with vectors to the last; the image's own
    after: tuple[int, ...]

    @property
    def num_tokens(self) -> int:
        return sum(piece.num_tokens for piece in self.pieces)

    @property
    def num_positions(self) -> int:
        return sum(piece.num_positions for piece in self.pieces)


class LlamaImageEncoder:
    """Implements `base.ImageEncoder`. Counts tokens without encoding, so any thread may ask. Raises StartupError."""

    def __init__(self, projector: Projector, max_mutual: int) -> None:
        family = FAMILIES.get(projector.kind)
        if family is None or not projector.has_vision:
            raise StartupError(
                f"{projector.path.name!r} is of the kind {projector.kind!r}; images work with {', '.join(FAMILIES)}"
            )
        marker_id = projector.token_id(family.marker)
        if marker_id is None:
            raise StartupError(f"{projector.path.name!r} is for a model with {family.marker!r} in its vocabulary")
        self.marker = family.marker
        self.before = self.after = family.around
        self._marker_id = marker_id
        self._is_framed = family.is_framed
        self._projector = projector
        self._max_mutual = max_mutual  # tokens that can be computed at once, where they see each other
        self._spans = lru_cache(_KEPT_SIZES)(self._span)
        try:
            for size in _PROBES:
                self._spans(*size)
                projector.rehearse(*size)
        except InvalidRequest as error:
            raise StartupError(f"{projector.path.name!r}: {error.message}") from None

    def tokens(self, width: int, height: int) -> ImageTokens:
        span = self.span(width, height)
        own = [token_id for piece in span.pieces for token_id in piece.ids or [self._marker_id] * piece.num_tokens]
        before, after = ((), ()) if self._is_framed else (span.before, span.after)
        return ImageTokens((*before, *own, *after), len(before), len(own))

    def span(self, width: int, height: int) -> PieceSpan:
        """What an image of this size becomes in a prompt. Raises InvalidRequest."""
        if min(width, height) < 1 or max(width, height) > min(_MAX_RATIO * min(width, height), _MAX_SIDE):
            raise InvalidRequest(
                f"An image of {width}x{height} pixels cannot be seen: it is too large, "
                f"or a side is more than {_MAX_RATIO} times the other."
            )
        return self._spans(width, height)

    def _span(self, width: int, height: int) -> PieceSpan:
        span = make_span(self._projector.pieces(width, height))
        texts = (span.before, span.after, *(piece.ids for piece in span.pieces))
        if any(token_id < 0 for ids in texts for token_id in ids):
            raise InvalidRequest("The vocabulary lacks tokens that belong around an image.")
        limit = self._projector.context_tokens if self._projector.is_causal else self._max_mutual
        if not 0 < span.num_tokens <= limit:
            raise InvalidRequest(
                f"An image of {width}x{height} pixels has {span.num_tokens} tokens, the limit is {limit}."
            )
        return span


def make_span(pieces: tuple[ImagePiece, ...]) -> PieceSpan:
    """The pieces of an image, without the texts at either end."""
    vectors = [index for index, piece in enumerate(pieces) if not piece.ids]
    if not vectors:
        return PieceSpan((), (), ())
    first, last = vectors[0], vectors[-1] + 1
    before = tuple(token_id for piece in pieces[:first] for token_id in piece.ids)
    after = tuple(token_id for piece in pieces[last:] for token_id in piece.ids)
    return PieceSpan(before, pieces[first:last], after)
