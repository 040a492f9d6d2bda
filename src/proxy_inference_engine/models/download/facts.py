"""What a model on the hub is, read from the beginnings of its files by ranges: not a byte of its weights comes."""

import json
from typing import NamedTuple

from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.allotment import ModelFacts, folder_facts, gguf_facts
from proxy_inference_engine.models.download.hub import Hub
from proxy_inference_engine.models.download.listing import Listing, RemoteFile
from proxy_inference_engine.models.download.plan import MAX_INDEX_BYTES, Plan, make_plan, read_index
from proxy_inference_engine.models.download.web import ConnectionBroken, RangesRefused
from proxy_inference_engine.models.hub import HubName, is_model_file
from proxy_inference_engine.models.resolve import FileKind
from proxy_inference_engine.runners.checkpoint import CONFIG, Json
from proxy_inference_engine.runners.llama_cpp.header import GgufHeader, read_beginning
from proxy_inference_engine.runners.llama_cpp.weights import MAX_BYTES as MAX_CONVERTED_BYTES

_FIRST_BYTES = 256 << 10  # sizes come before the vocabulary
_GROWTH = 8
_MAX_HEADER_BYTES = 64 << 20
_MAX_CONFIG_BYTES = 4 << 20
_NUM_TRIES = 3


class RemoteFacts(NamedTuple):
    kind: FileKind
    facts: ModelFacts
    download_bytes: int  # of all that a pull would fetch


def look(hub: Hub, name: HubName, *, wants_mmproj: bool, can_convert: bool) -> RemoteFacts:
    """What the hub has under a name. Raises StartupError."""
    listing = hub.list_files(name)
    reader = _RangeReader(hub, name, listing)
    plan = make_plan(name, listing.files, wants_mmproj=wants_mmproj)
    if plan.kind == "gguf":
        return _of_gguf(reader, plan, can_convert=can_convert)
    files = plan.files
    if plan.index is not None:
        files += read_index(name, reader.whole(plan.index, MAX_INDEX_BYTES), listing.files)
    num_bytes = sum(file.size for file in files if file.path.endswith(".safetensors"))
    config = next(file for file in files if file.path == CONFIG)
    facts = folder_facts(_object(name, reader.whole(config, _MAX_CONFIG_BYTES)), num_bytes)
    return RemoteFacts("safetensors", facts, sum(file.size for file in files))


def _of_gguf(reader: "_RangeReader", plan: Plan, *, can_convert: bool) -> RemoteFacts:
    first = plan.files[0]
    parts = [file for file in plan.files if is_model_file(file.path.rpartition("/")[2])]
    header = _header(reader, first)
    facts = gguf_facts(header, sum(file.size for file in parts), can_convert=can_convert)
    beside = sum(file.size for file in plan.files if file not in parts)
    download_bytes = sum(file.size for file in plan.files)
    return RemoteFacts("gguf", facts._replace(weight_bytes=facts.weight_bytes + beside), download_bytes)


def _header(reader: "_RangeReader", file: RemoteFile) -> GgufHeader:
    """The header of a file, as much of it as says what is wanted: more is asked for until that is there."""
    num_bytes = _FIRST_BYTES
    while True:
        data = reader.beginning(file, min(num_bytes, file.size))
        try:
            entries, is_whole = read_beginning(data)
        except ValueError as error:
            raise StartupError(f"{file.path!r} cannot be read: {error}") from None
        header = GgufHeader(entries, [], 0)
        # Whether it would be converted is said after the vocabulary.
        has_sizes = header.length("tokenizer.ggml.tokens") is not None and file.size > MAX_CONVERTED_BYTES
        if is_whole or has_sizes:
            return header
        if num_bytes >= min(file.size, _MAX_HEADER_BYTES):
            raise StartupError(f"{file.path!r} cannot be read: a header that breaks off")
        num_bytes *= _GROWTH


def _object(name: HubName, text: bytes) -> Json:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise StartupError(f"{CONFIG} of {name.repository!r} should be a JSON object")
    return value


class _RangeReader:
    def __init__(self, hub: Hub, name: HubName, listing: Listing) -> None:
        self._hub, self._name, self._commit = hub, name, listing.commit

    def whole(self, file: RemoteFile, max_bytes: int) -> bytes:
        if file.size > max_bytes:
            raise StartupError(f"{file.path!r} of {self._name.repository!r} has {file.size} bytes, which is absurd")
        return self.beginning(file, file.size)

    def beginning(self, file: RemoteFile, num_bytes: int) -> bytes:
        """Raises StartupError."""
        for number in range(_NUM_TRIES):
            try:
                return self._read(file, num_bytes)
            except ConnectionBroken as error:
                failure = error
                if number + 1 < _NUM_TRIES:
                    self._hub.pause(number, error)
            except RangesRefused:
                raise StartupError(f"{self._hub.endpoint} sends files only as a whole: nothing is known yet") from None
        raise StartupError(f"{self._hub.endpoint} cannot be asked: {failure} (is there a network?)")

    def _read(self, file: RemoteFile, num_bytes: int) -> bytes:
        end = num_bytes if num_bytes < file.size else None
        found = bytearray()
        with self._hub.open(self._name, self._commit, file, 0, end) as body:
            for chunk in body.chunks():
                found += chunk
                if len(found) > num_bytes:
                    raise StartupError(f"{file.path!r} has more bytes than it should have")
        if len(found) < num_bytes:
            raise ConnectionBroken("the connection ended early")
        return bytes(found)
