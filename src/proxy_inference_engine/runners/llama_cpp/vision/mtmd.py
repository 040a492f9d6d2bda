"""llama.cpp's multimodal library: a file of projector weights (mmproj), which makes vectors of images.

Knows pixels, vectors and the tokens that the library puts between them; neither slots nor prompts.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxy_inference_engine.errors import InvalidRequest, StartupError
from proxy_inference_engine.runners.llama_cpp.binding import (
    MTMD_INPUT_CHUNK_TYPE_TEXT,
    floats,
    llama_token,
    mtmd_decoder_pos,
    mtmd_input_text,
)
from proxy_inference_engine.runners.llama_cpp.header import read_words
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.soundness import check_soundness
from proxy_inference_engine.types import Image

_KEYS = ("clip.projector_type", "clip.vision.projector_type")  # the second where a file hears too
_MAX_QWEN_TOKENS = 2048  # of an image: the library takes memory by its square (0.4 GiB here), and it sets 4096


@dataclass(frozen=True, slots=True, eq=False)
class ImagePiece:
    """A run of what stands for an image: tokens of text, or vectors."""

    ids: tuple[int, ...]  # none: vectors
    places: NDArray[np.int32]  # (1 or 4, tokens): position of each from the piece's first, on every axis there is
    num_positions: int  # from the piece's first to that of what follows
    vectors: NDArray[np.float32] | None = None  # (tokens, width), once encoded

    @property
    def num_tokens(self) -> int:
        return int(self.places.shape[1])

    def cut(self, start: int, end: int) -> "ImagePiece":
        """The piece's tokens from `start` to `end`, each at its own place."""
        if start == 0 and end == self.num_tokens:
            return self
        vectors = None if self.vectors is None else self.vectors[start:end]
        return replace(self, ids=self.ids[start:end], places=self.places[:, start:end], vectors=vectors)

    def placed(self, position: int) -> NDArray[np.int32]:
        """The positions of its tokens where the first stands at this one; the fourth axis is never used."""
        return self.places + np.array([position, position, position, 0], np.int32)[: len(self.places), None]


class Projector:
    """Owns an mtmd_context. `pieces` may be called from any thread, the rest from the engine's."""

    def __init__(self, path: Path, model: Model, *, threads: int, has_gpu: bool) -> None:
        self._llama = model.llama
        if not self._llama.takes_images:
            raise StartupError(f"the llama.cpp library {str(self._llama.path)!r} was built without its multimodal part")
        self.path = path
        self.kind = _kind(path)
        params = self._llama.mtmd_context_params_default()
        params.use_gpu = has_gpu
        params.print_timings = False
        params.n_threads = threads
        if self.kind.endswith("vl_merger"):
            params.image_max_tokens = _MAX_QWEN_TOKENS
        # Builds the graph now: what is wrong with the weights' shapes shows at the start, not at an image.
        params.warmup = True
        check_soundness(path)
        self._context = self._llama.mtmd_init_from_file(str(path).encode(), model.handle, params)
        if not self._context:
            raise StartupError(
                f"llama.cpp cannot load {path.name!r} beside {model.path.name!r}: of another model, or damaged"
            )
        self._model = model  # the context refers to its vocabulary
        self._width = int(self._llama.llama_model_n_embd_inp(model.handle))
        self._marker: bytes = self._llama.mtmd_default_marker()
        self.has_vision = bool(self._llama.mtmd_support_vision(self._context))
        self.has_axes = bool(self._llama.mtmd_decode_use_mrope(self._context))  # positions in two dimensions
        self.is_causal = not self._llama.mtmd_decode_use_non_causal(self._context, None)

    @property
    def context_tokens(self) -> int:
        return self._model.context_tokens

    @property
    def num_bytes(self) -> int:
        return self.path.stat().st_size

    def token_id(self, name: str) -> int | None:
        """The id of the language model's special token of this name."""
        data = name.encode()
        ids = (llama_token * len(data))()
        num_tokens = self._llama.llama_tokenize(self._model.vocab, data, len(data), ids, len(data), False, True)
        return int(ids[0]) if num_tokens == 1 else None

    def pieces(self, width: int, height: int) -> tuple[ImagePiece, ...]:
        """What an image of this size becomes, without the vectors. Raises InvalidRequest."""
        with self._chunks(width, height, None) as chunks:
            return tuple(self._piece(chunk) for chunk in chunks)

    def rehearse(self, width: int, height: int) -> None:
        """Prepare black pixels of this size: counting does not show every way to fail. Raises InvalidRequest."""
        with self._chunks(width, height, (ctypes.c_uint8 * (3 * width * height))()):
            pass

    def encode(self, image: Image) -> tuple[ImagePiece, ...]:
        """What an image becomes, with the vectors that were computed of its pixels. Raises InvalidRequest."""
        height, width, _ = image.pixels.shape
        pixels = np.ascontiguousarray(image.pixels)
        with self._chunks(width, height, pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))) as chunks:
            return tuple(self._encode(chunk) for chunk in chunks)

    def close(self) -> None:
        if self._context:
            self._llama.mtmd_free(self._context)
            self._context = None

    @contextmanager
    def _chunks(self, width: int, height: int, pixels: Any) -> Iterator[list[Any]]:
        """The library's pieces, which live as long as the context. Without pixels it only counts."""
        bitmap = self._llama.mtmd_bitmap_init(width, height, pixels)
        chunks: Any = self._llama.mtmd_input_chunks_init()
        try:
            text = mtmd_input_text(self._marker, len(self._marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if self._llama.mtmd_tokenize(self._context, chunks, ctypes.byref(text), bitmaps, 1) != 0:
                raise InvalidRequest(f"An image of {width}x{height} pixels cannot be seen.")
            size = self._llama.mtmd_input_chunks_size(chunks)
            yield [self._llama.mtmd_input_chunks_get(chunks, index) for index in range(size)]
        finally:
            self._llama.mtmd_input_chunks_free(chunks)
            self._llama.mtmd_bitmap_free(bitmap)

    def _piece(self, chunk: Any) -> ImagePiece:
        num_tokens = self._llama.mtmd_input_chunk_get_n_tokens(chunk)
        num_positions = self._llama.mtmd_input_chunk_get_n_pos(chunk)
        ramp = np.arange(num_tokens, dtype=np.int32)[None]
        if self._llama.mtmd_input_chunk_get_type(chunk) == MTMD_INPUT_CHUNK_TYPE_TEXT:
            size = ctypes.c_size_t()
            ids = self._llama.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            return ImagePiece(tuple(ids[: size.value]), ramp, num_positions)
        return ImagePiece((), self._axes(chunk, num_tokens) if self.has_axes else ramp, num_positions)

    def _axes(self, chunk: Any, num_tokens: int) -> NDArray[np.int32]:
        """Time, row, column, and one that is not used: the order of a batch's positions."""
        places = (mtmd_decoder_pos * num_tokens)()
        self._llama.mtmd_helper_image_get_decoder_pos(self._llama.mtmd_input_chunk_get_tokens_image(chunk), 0, places)
        columns = np.frombuffer(bytes(places), np.uint32).reshape(num_tokens, 4).astype(np.int32).T
        return np.ascontiguousarray(columns[[0, 2, 1, 3]])

    def _encode(self, chunk: Any) -> ImagePiece:
        piece = self._piece(chunk)
        if piece.ids:
            return piece
        if self._llama.mtmd_encode_chunk(self._context, chunk) != 0:
            raise RuntimeError("llama.cpp could not encode an image")
        address = self._llama.mtmd_get_output_embd(self._context)
        vectors = floats(address, piece.num_tokens, self._width).copy()
        return replace(piece, vectors=vectors)


def _kind(path: Path) -> str:
    try:
        words = read_words(path)
    except (OSError, ValueError) as error:
        raise StartupError(f"{str(path)!r} cannot be read: {error}") from None
    return next((words[key] for key in _KEYS if key in words), "")
