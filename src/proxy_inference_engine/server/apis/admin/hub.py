"""Models that are not here yet, for the operator: search the hub, see whether one fits, pull it, watch it come."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import asdict
from pathlib import PurePosixPath
from typing import Annotated, Any, TypeVar

from pydantic import Field
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from proxy_inference_engine.config import available_memory
from proxy_inference_engine.errors import ClientError, InvalidRequest, NotFound, StartupError, shorten
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.model import reason_against
from proxy_inference_engine.models.fit import fit
from proxy_inference_engine.models.hub import HubName
from proxy_inference_engine.models.resolve import models_among, parts_of
from proxy_inference_engine.pool.pulls import Pull, Pulls, hub_name
from proxy_inference_engine.pool.reload import MEMORY_SHARE
from proxy_inference_engine.server.apis.admin.models import watch
from proxy_inference_engine.server.apis.shared.fields import RequestSchema, validate
from proxy_inference_engine.server.apis.shared.route import json_response, state_of
from proxy_inference_engine.server.http.body import read_json

T = TypeVar("T")

_MAX_FOUND = 30
_MAX_WORDS = 200


class HubRefused(ClientError):
    """The hub, or what is on it, does not let us: the message says why."""

    status = 400
    code = "hub_refused"


class PullRequest(RequestSchema):
    model: Annotated[str, Field(min_length=1, max_length=256)]


async def search_hub(http: HttpRequest) -> Response:
    words = _query(http, "q")
    if len(words) > _MAX_WORDS:
        raise InvalidRequest(f"Invalid value for 'q': at most {_MAX_WORDS} characters are looked for.", param="q")
    pulls = _online(http, "search")
    found = await _asked(lambda: pulls.connect().search(words, _MAX_FOUND))
    data = [
        {
            "model": each.name,
            "downloads": each.num_downloads,
            "likes": each.num_likes,
            "is_gated": each.is_gated,
            "has_gguf": each.has_gguf,
            "has_safetensors": each.has_safetensors,
        }
        for each in found
    ]
    return json_response({"object": "list", "data": data})


async def list_hub_files(http: HttpRequest) -> Response:
    """What of a repository can be pulled: each GGUF model in it, or its safetensors."""
    name = hub_name(_query(http, "model"))
    pulls = _online(http, "list")
    listing = await _asked(lambda: pulls.connect().list_files(name))
    return json_response({"object": "list", "data": _variants(name, listing.files)})


def _variants(name: HubName, files: Collection[RemoteFile]) -> list[dict[str, Any]]:
    sizes = {PurePosixPath(file.path): file.size for file in files}
    variants = []
    for stem, path in sorted(models_among(sizes).items()):
        num_bytes = sum(sizes.get(part, 0) for part in parts_of(path))
        variants.append({"model": f"{name.repository}:{stem}", "kind": "gguf", "bytes": num_bytes})
    tensors = sum(size for path, size in sizes.items() if path.suffix == ".safetensors" and len(path.parts) == 1)
    if tensors:
        variants.append({"model": name.repository, "kind": "safetensors", "bytes": tensors})
    return variants


async def get_fit(http: HttpRequest) -> Response:
    """Whether a model of the pool or of the hub fits into memory. No byte of its weights is loaded or fetched."""
    wanted, state = _query(http, "model"), state_of(http)
    pool, member = state.models, state.models.get(wanted) if state.models.can_grow else None
    config = state.pulls.config_of(hub_name(wanted)) if member is None else member.entry.config
    room, taken = pool.max_bytes, pool.kept_bytes
    if member is not None and member.is_pinned:
        taken -= member.num_bytes
    found = await _asked(
        lambda: fit(
            config,
            room_bytes=room or int(available_memory() * MEMORY_SHARE),
            is_shared=True,
            taken_bytes=taken,
            connect=state.pulls.connect,
        )
    )
    return json_response({"object": "fit", "model": wanted, **asdict(found)})


async def list_pulls(http: HttpRequest) -> Response:
    return json_response(_status(state_of(http).pulls))


async def watch_pulls(http: HttpRequest) -> Response:
    """The list as a stream: all of it at first and whenever something in it has changed."""
    pulls = state_of(http).pulls
    return watch(http, lambda: _status(pulls))


async def begin_pull(http: HttpRequest) -> Response:
    """Answers at once; how far it is is in the list."""
    body = await read_json(http.scope, http.receive, lambda data: validate(PullRequest, data))
    name = hub_name(body.model)
    pulls = _online(http, "pull")
    state_of(http).drain.check()
    return json_response(_pull(pulls.begin(name)))


async def cancel_pull(http: HttpRequest) -> Response:
    pulls, id_ = state_of(http).pulls, http.path_params["pull_id"]
    found = pulls.find(id_)
    if found is None:
        raise NotFound(f"There is no pull {shorten(id_)!r}.", param="pull_id")
    pulls.cancel(found)
    return json_response(_pull(found))


def _online(http: HttpRequest, what: str) -> Pulls:
    """Raises HubRefused where the operator forbids downloads."""
    pulls = state_of(http).pulls
    reason = reason_against(pulls.config)
    if reason is not None:
        raise HubRefused(f"This server may not {what}: {reason}.")
    return pulls


async def _asked(ask: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(ask)
    except StartupError as error:
        raise HubRefused(error.message) from None


def _query(http: HttpRequest, name: str) -> str:
    for other in http.query_params.keys() - {name}:
        raise InvalidRequest(f"Unknown parameter: {shorten(other)!r}.", param=shorten(other), code="unknown_parameter")
    value = http.query_params.get(name, "").strip()
    if not value:
        raise InvalidRequest(f"Missing required parameter: {name!r}.", param=name, code="missing_parameter")
    return value


def _status(pulls: Pulls) -> dict[str, Any]:
    return {"object": "list", "data": [_pull(each) for each in pulls]}


def _pull(each: Pull) -> dict[str, Any]:
    return {
        "id": each.id,
        "object": "pull",
        "model": each.name,
        "state": each.state,
        "step": each.line,
        "bytes": each.num_bytes,
        "total_bytes": each.total_bytes,
        "created": each.began_at,
        "is_served": each.is_served,
        "error": each.error,
    }
