"""llama.cpp asked directly, without the runner: what the runner's answers are compared with."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, dequantize
from numpy.typing import NDArray

from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.runners.base import Row
from proxy_inference_engine.runners.llama_cpp.binding import Binding, floats
from proxy_inference_engine.runners.llama_cpp.lane import Batch
from proxy_inference_engine.runners.llama_cpp.model import Model

F32 = 0  # llama.cpp's number for weights and KV in 32 bits


def declared(llama: Binding, name: str, result: Any, *arguments: Any) -> Any:
    """A function that the runner does not use."""
    function = llama.find(name)
    function.restype, function.argtypes = result, arguments
    return function


@contextmanager
def opened(model: Model, **settings: Any) -> Iterator[int]:
    """A context of one sequence, with some of its parameters set."""
    params = model.llama.llama_context_default_params()
    for name, value in settings.items():
        setattr(params, name, value)
    context = model.llama.llama_init_from_model(model.handle, params)
    assert context
    try:
        yield context
    finally:
        model.llama.llama_free(context)


def decode(model: Model, context: int, ids: NDArray[np.int32]) -> None:
    """All in one batch; logits, or vectors, of every token are kept."""
    batch = Batch(len(ids))
    batch.fill([Row(0, 0, ids, len(ids))], 0)
    assert model.llama.llama_decode(context, batch.struct) == 0


def logits_in_f32(model: Model, ids: list[int]) -> NDArray[np.float32]:
    """After each token (tokens, vocabulary), with KV in 32 bits: what llama.cpp rounds otherwise moves them by up to 2.

    The model has to be of `f32_weights`.
    """
    sizes = {"n_ctx": 256, "n_batch": 256, "n_ubatch": 256, "n_threads": 2, "n_threads_batch": 2}
    with opened(model, type_k=F32, type_v=F32, flash_attn_type=0, **sizes) as context:
        decode(model, context, np.array(ids, np.int32))
        address = model.llama.llama_get_logits(context)
        return floats(address, len(ids), model.llama.llama_vocab_n_tokens(model.vocab)).copy()


def pooled_vector(model: Model, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    """The vector of a text as llama.cpp pools it: the text whole, in one batch."""
    sizes = {"n_ctx": 512, "n_batch": 512, "n_ubatch": 512, "n_threads": 1, "n_threads_batch": 1}
    with opened(model, embeddings=True, **sizes) as context:
        decode(model, context, ids)
        address = model.llama.llama_get_embeddings_seq(context, 0)
        return floats(address, model.llama.llama_model_n_embd_out(model.handle)).copy()


def f32_weights(path: Path) -> Path:
    """The bundled model with the same numbers in 32 bits, written by the gguf package."""
    reader = GGUFReader(resolve(None).path)
    writer = GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name not in ("general.architecture", "general.file_type"):
            kinds = field.types
            writer.add_key_value(field.name, field.contents(), kinds[0], kinds[-1] if len(kinds) > 1 else None)
    for tensor in reader.tensors:
        numbers = tensor.data
        if tensor.tensor_type != GGMLQuantizationType.F32:
            numbers = dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
