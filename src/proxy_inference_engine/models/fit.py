"""Whether a model fits this machine, before a byte of its weights is loaded: memory, context, answers at a time.

What is here is read off its files, what is on the hub off the beginnings of them.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from proxy_inference_engine.config import Config, available_memory
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.allotment import Allotment, ModelFacts, allot_by, read_facts
from proxy_inference_engine.models.download.facts import look
from proxy_inference_engine.models.download.hub import Hub
from proxy_inference_engine.models.download.model import ConnectHub, reason_against
from proxy_inference_engine.models.engines import choose_engine
from proxy_inference_engine.models.hub import NotCached, parse_name
from proxy_inference_engine.models.resolve import FileKind, ModelFile, resolve
from proxy_inference_engine.runners.plan import KV_SHARE, choose_context, plan_lanes

_CACHE_SHARE = 0.05  # of what is free, for prefixes
_MAX_CACHE_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class Fit:
    """Sizes in bytes, the context in tokens. Where it does not fit, context and slots are 0."""

    name: str
    kind: FileKind
    weights: int
    memory: int  # all it will take: weights, KV, prefix cache, buffers
    room: int  # what there is, for it and others
    known_context: int  # what the model was made for
    context: int  # what one answer can have here
    slots: int  # answers computed at the same time
    download: int  # what a pull would fetch; 0: it is here
    fits: bool
    why: str


class _Found(NamedTuple):
    name: str
    kind: FileKind
    facts: ModelFacts
    download_bytes: int


def fit(
    config: Config,
    *,
    room_bytes: int | None = None,
    is_shared: bool = False,
    taken_bytes: int = 0,
    connect: ConnectHub = Hub.from_environment,
) -> Fit:
    """Whether the configured model fits, with the one that drafts for it where that is here as well.

    `room_bytes` None: what is free in memory now. `is_shared`: the room is one for several models, as in a pool,
    of which others keep `taken_bytes`.
    Raises StartupError where the model cannot be found or read.
    """
    found = _find(config, connect)
    room = available_memory() if room_bytes is None else room_bytes
    facts = found.facts
    allotment = allot_by(facts, config, room) if is_shared else _alone(facts, config, room)
    context, slots, against = _plan(facts, config, allotment, room - taken_bytes)
    against = _no_engine(config, found) or against
    what = f"{format_size(facts.weight_bytes)} of weights"
    if against is None and not is_shared:
        allotment = allotment._replace(kv=_used_kv(facts, config, allotment, context))
    why = against or (
        f"{what}, {format_size(allotment.kv)} of KV for {slots} answers at a time and a context of {context:,} "
        f"tokens: {format_size(allotment.num_bytes)} of {format_size(room)}"
    )
    return Fit(
        name=found.name,
        kind=found.kind,
        weights=facts.weight_bytes,
        memory=allotment.num_bytes,
        room=room,
        known_context=facts.context_tokens,
        context=context,
        slots=slots,
        download=found.download_bytes,
        fits=against is None,
        why=why,
    )


def _find(config: Config, connect: ConnectHub) -> _Found:
    try:
        file = resolve(config.model, config.cache_dir)
        return _Found(file.name, file.kind, read_facts(config), 0)
    except NotCached as missing:
        name, reason = parse_name(config.model or ""), reason_against(config)
        if name is None or reason is not None:
            raise StartupError(missing.message if reason is None else f"{missing.message} ({reason})") from None
    remote = look(connect(), name, wants_mmproj=config.mmproj is None, can_convert=config.convert_weights == "auto")
    return _Found(str(name), remote.kind, remote.facts, remote.download_bytes)


def _no_engine(config: Config, found: _Found) -> str | None:
    try:  # a path is of no use to the question which engine runs a kind of files
        choose_engine(config, ModelFile(Path(), found.name, is_bundled=False, kind=found.kind))
    except StartupError as error:
        return error.message
    return None


def _alone(facts: ModelFacts, config: Config, room: int) -> Allotment:
    """What a model gets that is the only one: what it finds, up to shares of what its weights leave."""
    free = max(0, room - facts.weight_bytes)
    cache = config.cache_memory
    if cache is None:
        cache = min(_MAX_CACHE_BYTES, int(free * _CACHE_SHARE))
    return Allotment(facts.weight_bytes, config.kv_memory or int(free * KV_SHARE), cache, facts.buffer_bytes)


def _used_kv(facts: ModelFacts, config: Config, allotment: Allotment, context: int) -> int:
    """What of its share a model takes: a small one has no use for all of it."""
    token_bytes = max(1, facts.token_bytes(is_exact=config.exact))
    lanes = plan_lanes(context_tokens=context, num_slots=config.slots, token_bytes=token_bytes, max_bytes=allotment.kv)
    return sum(lane.num_slots * lane.slot_tokens for lane in lanes) * token_bytes


def _plan(facts: ModelFacts, config: Config, allotment: Allotment, room: int) -> tuple[int, int, str | None]:
    """Context, slots, and what is against it."""
    if allotment.weights + allotment.buffers >= room:
        needed = format_size(allotment.weights + allotment.buffers)
        return 0, 0, f"its weights and a pass over them take {needed} of memory, {format_size(room)} are there"
    token_bytes = max(1, facts.token_bytes(is_exact=config.exact))
    context = choose_context(config.context, facts.context_tokens, token_bytes, allotment.kv, lambda _: None)
    try:
        lanes = plan_lanes(
            context_tokens=context, num_slots=config.slots, token_bytes=token_bytes, max_bytes=allotment.kv
        )
    except StartupError as error:
        return 0, 0, error.message
    if allotment.num_bytes > room:
        return 0, 0, f"it needs {format_size(allotment.num_bytes)} of memory, {format_size(room)} are there"
    return context, lanes[0].num_slots, None
