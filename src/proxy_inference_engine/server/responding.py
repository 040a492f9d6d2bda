"""How a Responses body becomes the engine's request: its history as turns, its demand, and less of it if need be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from proxy_inference_engine.errors import ContextLengthExceeded, InvalidRequest
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.prompt.pictures import image_parts
from proxy_inference_engine.server import asking
from proxy_inference_engine.server.asking import Ask, Prepared
from proxy_inference_engine.server.convert.reasoning import make_reasoning
from proxy_inference_engine.server.convert.relaxed import ignored_headers
from proxy_inference_engine.server.convert.responses_demand import blame, make_demand, usable_tools
from proxy_inference_engine.server.convert.responses_turns import Conversation, whole_turns, without_oldest
from proxy_inference_engine.server.history import History
from proxy_inference_engine.server.schemas.items import HostedItem
from proxy_inference_engine.server.schemas.responses import Conversing, Other
from proxy_inference_engine.server.services import Services

T = TypeVar("T")

# What the layers below call things, in the words of this API.
_PARAMS = {"messages": "input", "reasoning_effort": "reasoning.effort"}
_SHARE_LEFT = 8  # of the context: room for the answer where turns have to be dropped and the client names no limit


@dataclass(frozen=True, slots=True)
class Asker:
    """Makes the request of one body, with all of its turns or without the oldest."""

    body: Conversing
    services: Services
    id: str
    tenant: str

    def prepare(self, turns: Sequence[Interaction]) -> Prepared:
        """Raises ClientError that names the parameter."""
        ask = self._ask(turns)
        if self.body.truncation == "disabled":
            return self._prepare(ask)
        try:
            return self._prepare(ask)
        except ContextLengthExceeded:
            return self._shortened(ask)

    def num_tokens(self, turns: Sequence[Interaction]) -> int:
        """Of the whole prompt, whether it fits or not."""
        return self._num_tokens(self._ask(turns), 0)

    def _ask(self, turns: Sequence[Interaction]) -> Ask:
        body = self.body
        usable = usable_tools(body.tools)
        thinking = body.without_effort() if _is_effort_idle(body, self.services) else body
        reasoning = _renamed(lambda: make_reasoning(thinking, self.services.format, self.services.renderer.variables))
        return Ask(
            id=self.id,
            turns=turns,
            knobs=body,
            demand=make_demand(body, usable.tools, reasoning),
            blame=lambda error, demand: blame(error, demand, usable.places),
            prompt_param="input",
            max_tokens=body.max_output_tokens,
            variables=reasoning.variables,
            num_top_logprobs=body.num_top_logprobs,
        )

    def _prepare(self, ask: Ask) -> Prepared:
        return _renamed(lambda: asking.prepare(ask, self.services, self.tenant))

    def _shortened(self, ask: Ask) -> Prepared:
        """Drops as few of the oldest turns as leave room for an answer; the last turn always stays."""
        context = self.services.engine.context_tokens
        room = min(ask.max_tokens or context // _SHARE_LEFT, context // 2)
        least, most = 1, len(whole_turns(ask.turns)) - 1
        while least < most:
            middle = (least + most) // 2
            if self._num_tokens(ask, middle) + room <= context:
                most = middle
            else:
                least = middle + 1
        return self._prepare(replace(ask, turns=without_oldest(ask.turns, max(most, 0))))

    def _num_tokens(self, ask: Ask, num_dropped: int) -> int:
        turns = without_oldest(ask.turns, num_dropped)
        chat = self.services.renderer.chat
        return len(_renamed(lambda: chat(turns, tools=ask.demand.tools, variables=ask.variables)).ids)


def make_turns(asker: Asker, history: History) -> list[Interaction]:
    body, services = asker.body, asker.services
    conversation = Conversation(services.sealer.of(asker.tenant), len(history.earlier))
    for item in history.items:
        conversation.add(item)
    turns = conversation.finish()
    if body.instructions:
        turns.insert(0, Interaction.of(Role.SYSTEM, body.instructions))
    if body.truncation == "auto":
        turns = _with_fewer_images(turns, services.images.max_loaded)
    # A probe may say nothing at all.
    return turns or [Interaction.of(Role.USER, "")]


def _with_fewer_images(turns: list[Interaction], most: int) -> list[Interaction]:
    """Without as many of the oldest turns as have more images than can be loaded; the last turn always stays."""
    groups = whole_turns(turns)
    num_dropped, num_images = 0, len(image_parts(turns))
    while num_images > most and num_dropped < len(groups) - 1:
        num_images -= len(image_parts(groups[num_dropped]))
        num_dropped += 1
    return without_oldest(turns, num_dropped) if num_dropped else turns


def _is_effort_idle(body: Conversing, services: Services) -> bool:
    """Agents ask every model for the effort they were configured with: one that does not reason needs none."""
    does_reason = services.format.thinking is not None or services.format.channels is not None
    return body.reasoning.effort is not None and not does_reason


def skipped_headers(
    body: Conversing, history: History, services: Services, unseen: Sequence[str] = ()
) -> Mapping[str, str]:
    """Names what is skipped: tools and items of tools that only other servers host, effort that cannot be made, and
    `unseen` images.
    """
    effort = ["reasoning.effort"] if _is_effort_idle(body, services) else []
    tools = [f"tools[{index}]:{tool.type}" for index, tool in enumerate(body.tools) if isinstance(tool, Other)]
    items = [f"input[{index}]:{item.type}" for index, item in enumerate(history.own) if isinstance(item, HostedItem)]
    return ignored_headers([*tools, *items, *effort, *unseen])


def _renamed(work: Callable[[], T]) -> T:
    try:
        return work()
    except InvalidRequest as error:
        ours = _PARAMS.get(error.param or "")
        if ours is None:
            raise
        raise InvalidRequest(
            error.message.replace(f"'{error.param}'", f"'{ours}'"), param=ours, code=error.code
        ) from None
