"""What Ollama's API tells of the models, and asks to be done with them: GET /api/tags, ps, version, POST show, pull …

Which models there are is the operator's to say, in the configuration. A client can neither add nor remove one.
"""

import asyncio
import hashlib
import re
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine import __version__
from proxy_inference_engine.errors import Forbidden, InvalidRequest, NotFound, StartupError, shorten
from proxy_inference_engine.models.resolve import resolve, weight_bytes
from proxy_inference_engine.pool.member import Member
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.server.apis.ollama.errors import LINES, line
from proxy_inference_engine.server.apis.ollama.names import known_name
from proxy_inference_engine.server.apis.ollama.route import read_body
from proxy_inference_engine.server.apis.ollama.writer import timestamp
from proxy_inference_engine.server.apis.shared.route import ignored_headers, json_response, state_of
from proxy_inference_engine.server.apis.shared.unknown import OpenBody

API_VERSION = "0.32.15"  # of Ollama, whose API this is: clients look whether a server is new enough for them
_PRECISION = re.compile(r"\b(?:I?Q\d\w*|B?F16|F32|bfloat16|float(?:16|32)|\d+-bit)\b", re.ASCII)
_FOR_EVER = timedelta(days=292 * 365)  # as Ollama says it


class ModelBody(OpenBody):
    """A model by its name, which has two names itself."""

    model: str | None = None
    name: str | None = None

    @property
    def wanted(self) -> str:
        wanted = self.model or self.name
        if not wanted:
            raise InvalidRequest("Missing required parameter: 'model'.", param="model", code="missing_parameter")
        return wanted


class ShowBody(ModelBody):
    verbose: bool = False


class PullBody(ModelBody):
    stream: bool = True
    insecure: bool | None = None


async def list_tags(http: HttpRequest) -> Response:
    names = state_of(http).models.names
    absent = {member.id: member for member in names.values() if member.model is None}
    sizes = await asyncio.to_thread(lambda: {id_: _size(member) for id_, member in absent.items()})
    return json_response({"models": [_listed(member, name, sizes.get(member.id)) for name, member in names.items()]})


def _size(member: Member) -> int:
    """How many bytes the files of a model have that is not loaded; 0 where there are none here."""
    config = member.entry.config
    try:
        file = None if config.engine == "vllm" else resolve(config.model, config.cache_dir)
        if file is None:
            return 0
        if file.kind == "gguf":
            return weight_bytes(file.path)
        return sum(each.stat().st_size for each in file.path.glob("*.safetensors"))
    except (StartupError, OSError):
        return 0


async def list_loaded(http: HttpRequest) -> Response:
    """Nobody here says how long they stay."""
    until = timestamp((datetime.now(UTC) + _FOR_EVER).timestamp())
    members = state_of(http).models.members
    loaded = [(member, member.model) for member in members if member.model is not None and member.state == "ready"]
    models = [
        {**_identity(member, member.id), "expires_at": until, "context_length": model.context_tokens}
        for member, model in loaded
    ]
    return json_response({"models": models})


async def get_version(_http: HttpRequest) -> Response:
    return json_response({"version": API_VERSION, "server": f"proxy-inference-engine/{__version__}"})


async def show(http: HttpRequest) -> Response:
    """What is known of a model: less where it is not loaded, and it is not loaded for that."""
    body = await read_body(http, ShowBody)
    member = _find(http, body.wanted)
    answer = {
        "modelfile": f"# Served by proxy-inference-engine, which has no such files.\nFROM {member.id}\n",
        "parameters": "" if member.model is None else _parameters(member.model),
        "template": "" if member.model is None else member.model.answerer.info.chat_template or "",
        "details": _details(member.model),
        "model_info": {} if member.model is None else _info(member.model),
        "capabilities": _capabilities(member.model),
        "modified_at": timestamp(member.created),
    }
    return json_response(answer, ignored_headers(body.unknown))


def _info(model: ServedModel) -> dict[str, Any]:
    info, architecture = model.answerer.info, model.answerer.info.architecture
    return {
        "general.architecture": architecture,
        "general.basename": info.name,
        "general.parameter_count": info.num_parameters,
        f"{architecture}.context_length": model.context_tokens,
        f"{architecture}.embedding_length": model.answerer.embedding.num_dimensions,
    }


async def pull(http: HttpRequest) -> Response:
    """What is served is here. Anything else is for the operator to fetch."""
    body = await read_body(http, PullBody)
    if state_of(http).models.get(known_name(state_of(http).models, body.wanted) or "") is None:
        raise NotFound(
            f"The model {shorten(body.wanted)!r} is not served here, and clients may not download models: "
            "its operator can, with 'pie pull' and the configuration.",
            param="model",
            code="model_not_found",
        )
    done = {"status": "success"}
    if body.stream:
        return Response(line(done), media_type=LINES)
    return json_response(done)


async def delete(http: HttpRequest) -> Response:
    body = await read_body(http, ModelBody)
    member = _find(http, body.wanted)
    raise Forbidden(
        f"The model {member.id!r} is in the operator's configuration: clients may not delete it.",
        param="model",
        code="model_not_deletable",
    )


async def refuse(http: HttpRequest) -> Response:
    """Making, copying and uploading models."""
    _refuse(http.url.path)


async def refuse_blob(http: HttpRequest) -> Response:
    if http.method == "HEAD":
        raise NotFound("There are no blobs here.")
    _refuse("/api/blobs")


def _refuse(path: str) -> NoReturn:
    raise InvalidRequest(
        f"{path!r} is not supported by this server: its models are those of its configuration.",
        code="unsupported_operation",
    )


def _find(http: HttpRequest, name: str) -> Member:
    models = state_of(http).models
    return models.find(known_name(models, name))


def _listed(member: Member, name: str, num_bytes: int | None) -> dict[str, Any]:
    seen = {"modified_at": timestamp(member.created), "capabilities": _capabilities(member.model)}
    return {**_identity(member, name), **seen, **({} if num_bytes is None else {"size": num_bytes})}


def _identity(member: Member, name: str) -> dict[str, Any]:
    info = None if member.model is None else member.model.answerer.info
    mark = member.id if info is None else info.fingerprint
    return {
        "name": name,
        "model": name,
        "size": member.num_bytes if info is None else info.weight_bytes,
        # Not that of a file: it tells models apart, and one that was changed from what it was.
        "digest": hashlib.sha256(mark.encode()).hexdigest(),
        "details": _details(member.model),
    }


def _details(model: ServedModel | None) -> dict[str, Any]:
    details: dict[str, Any] = {"parent_model": "", "format": "", "family": "", "families": []}
    if model is None:
        return {**details, "parameter_size": "", "quantization_level": ""}
    info = model.answerer.info
    return {
        **details,
        "family": info.architecture,
        "families": [info.architecture],
        "parameter_size": _rounded(info.num_parameters),
        "quantization_level": next(iter(_PRECISION.findall(info.description)), ""),
        "context_length": model.context_tokens,
        "embedding_length": model.answerer.embedding.num_dimensions,
    }


def _rounded(num_parameters: int) -> str:
    """A number as people say it: 7.6B, 134.5M."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if num_parameters >= size:
            return f"{num_parameters / size:.1f}{unit}"
    return str(num_parameters)


def _parameters(model: ServedModel) -> str:
    defaults = model.defaults
    values = {
        "num_ctx": model.context_tokens,
        "temperature": defaults.temperature,
        "top_k": defaults.top_k,
        "top_p": defaults.top_p,
        "min_p": defaults.min_p,
        "repeat_penalty": defaults.repetition_penalty,
    }
    return "\n".join(f"{name:<30} {value}" for name, value in values.items())


def _capabilities(model: ServedModel | None) -> list[str]:
    """What a model can do; while it is not loaded, what most can."""
    if model is None:
        return ["completion", "tools"]
    if not model.answerer.info.can_generate:
        return ["embedding"] if model.answerer.embedding.pooling != "rank" else []
    found = {
        "completion": True,
        "tools": True,
        "insert": model.can_infill,
        "vision": model.answerer.image_encoder is not None,
        "thinking": model.can_reason,
    }
    return [name for name, is_there in found.items() if is_there]
