"""One model as the rest of the house sees it: an ask goes in, a stream of events comes out.

Whoever wants an answer (each API, the terminal, a Python program) calls `answer`. What computes the tokens is behind
`answerer`: an engine in this process, or one elsewhere that takes token ids and a grammar as text.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.base import Answerer
from proxy_inference_engine.errors import PARAM, ClientError, ContextLengthExceeded, InvalidRequest, shorten
from proxy_inference_engine.formats import Format
from proxy_inference_engine.images import ImageLimits, ImageLoader
from proxy_inference_engine.models.profile import Profile, profile
from proxy_inference_engine.prompt.infill import find_markers, infill
from proxy_inference_engine.prompt.render import Prompt, PromptRenderer
from proxy_inference_engine.runners.base import Vector
from proxy_inference_engine.served.ask import Ask, ChatPrompt, NotCompiled, RawPrompt, Turns
from proxy_inference_engine.served.family import fit_family
from proxy_inference_engine.served.images import describe_images, load_images
from proxy_inference_engine.served.overrides import SWITCH, Overrides, overrides_of
from proxy_inference_engine.served.request import (
    Breakers,
    bounded,
    check_countable,
    check_ids,
    check_logprobs,
    check_prompt,
    check_text,
    cut_hopeless,
    least_tokens,
    make_limits,
    make_sampling,
    make_state_sampling,
)
from proxy_inference_engine.served.stream import AnswerStream, Observer, ReadyRequest, SkippedImage
from proxy_inference_engine.served.truncation import shortened, with_fewer_images
from proxy_inference_engine.state_machine.demand import AnyText, Demand, InvalidDemand, TextWithout
from proxy_inference_engine.state_machine.machine import Machine, MachineBuilder, choose_spacing
from proxy_inference_engine.types import Request, State

T = TypeVar("T")

INLINE_CHARS = 2048  # what goes through more text is done in a thread
_FURTHER_THREADS = 6  # beside one for each core: some wait for others
_MAX_THREADS = 32
_SHARE = 3  # so many could fill the pool together
_MIN_EACH = 2


class Threads:
    """Call `run` in the event loop."""

    def __init__(self, num_threads: int | None = None) -> None:
        num_threads = num_threads or min(_MAX_THREADS, (os.cpu_count() or 1) + _FURTHER_THREADS)
        self._pool = ThreadPoolExecutor(num_threads, thread_name_prefix="off-loop")
        self._num_each = max(_MIN_EACH, num_threads // _SHARE)
        self._shares: dict[str, asyncio.Semaphore] = {}

    async def run(self, work: Callable[[], T], holder: str, num_chars: int) -> T:
        """What `work` returns, which goes through so much text: a little is done at once, much in a thread.

        `holder`: whose work it is. Whoever has as many threads as it may waits, and holds up nobody else.
        """
        if num_chars <= INLINE_CHARS:
            return work()
        share = self._shares.setdefault(holder, asyncio.Semaphore(self._num_each))
        await share.acquire()
        loop = asyncio.get_running_loop()

        def release(_future: Future[T]) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(share.release)

        try:
            future = self._pool.submit(work)
        except BaseException:
            share.release()
            raise
        # When the work is done, not when nobody waits for it any more: a thread cannot be stopped.
        future.add_done_callback(release)
        return await asyncio.wrap_future(future)


_PROMPT = "messages"
_MAX_MESSAGE = 300


class Counted(NamedTuple):
    """The prompt of an ask in tokens, whether it fits into the context or not."""

    ids: Sequence[int]
    skipped_images: Sequence[SkippedImage] = ()


@dataclass(frozen=True, slots=True)
class ServedModel:
    id: str  # the name that clients use
    answerer: Answerer
    format: Format
    renderer: PromptRenderer
    machines: MachineBuilder
    defaults: Profile
    breakers: Breakers
    images: ImageLoader
    state_sampling: Mapping[State, Mapping[str, float]]  # the operator's own values for some states of an answer
    adapter: str | None = None  # over the weights; None: they alone
    overrides: Overrides | None = None  # what the operator says of every request; None: nothing
    threads: Threads = field(default_factory=Threads)  # for what takes long before an answer begins
    created: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(
        cls,
        answerer: Answerer,
        config: Config,
        *,
        name: str | None = None,
        images: ImageLoader | None = None,
        threads: Threads | None = None,
    ) -> "ServedModel":
        """`name` None: the model's own. `images` None: none are fetched from elsewhere."""
        info = answerer.info
        # An encoder puts no questions: what its template does is of no interest.
        template, tool_template = (info.chat_template, info.tool_template) if info.can_generate else (None, None)
        facts = template, info.architecture, info.name
        fitted = fit_family(config, answerer.tokenizer, *facts, tool_template=tool_template)
        format_ = fitted.format
        state_sampling = {} if config.state_sampling is None else config.state_sampling.overrides()
        defaults = profile(info.name, info.architecture, info.generation)
        if config.sampling is not None:
            defaults = replace(defaults, **config.sampling.given())  # type: ignore[arg-type]  # of the same names
        spacing = choose_spacing(config.json_spacing, spaces_json=defaults.spaces_json)
        machines = MachineBuilder(
            format_,
            answerer.tokenizer,
            spacing=spacing,
            tracks_states=bool(state_sampling),
            watches=answerer.walks_grammars,
        )
        return cls(
            id=name or info.name,
            answerer=answerer,
            format=format_,
            renderer=PromptRenderer(answerer.tokenizer, format_, fitted.template, image_encoder=answerer.image_encoder),
            machines=machines,
            defaults=defaults,
            breakers=Breakers(answerer.tokenizer),
            images=images or ImageLoader(ImageLimits(), None),
            state_sampling=state_sampling,
            overrides=overrides_of(config),
            threads=threads or Threads(),
        )

    def adapted(self, adapter: str) -> "ServedModel":
        """The same model with one of its adapters, under a name of its own."""
        return replace(self, id=f"{self.id}:{adapter}", adapter=adapter)

    def close(self) -> None:
        """End what runs with an error, and free all that it holds. Not on the event loop: it may take seconds."""
        self.machines.close()
        self.answerer.stop()

    @property
    def context_tokens(self) -> int:
        return self.answerer.context_tokens

    @property
    def can_reason(self) -> bool:
        return self.format.thinking is not None or self.format.channels is not None

    @property
    def can_silence(self) -> bool:
        """Whether it can be kept from reasoning: its template has a switch, or opens a block, which is then closed."""
        return SWITCH in self.renderer.variables or self.renderer.opens_reasoning

    @property
    def can_infill(self) -> bool:
        """Whether it was taught to fill the gap between a prompt and a suffix."""
        return find_markers(self.answerer.tokenizer) is not None

    async def answer(self, *asks: Ask, observer: Observer | None = None) -> AnswerStream:
        """Every ask is checked before any is submitted. Raises ClientError that names the parameter, or Unavailable.

        All asks have the same number of choices. The stream has to be iterated or cancelled.
        """
        ready, skipped = await self._with_images(bounded(self._overruled(asks)))
        off_loop = partial(self.threads.run, holder=asks[0].tenant)
        prepared = self._prepared_at_once(ready)
        if prepared is None:
            prepared = await off_loop(
                lambda: list(map(self.prepare, ready)), num_chars=sum(each.work_chars for each in ready)
            )
        check_logprobs(asks, [each.request for each in prepared])
        return AnswerStream(self.answerer, prepared, observer, skipped, off_loop)

    async def count(self, ask: Ask) -> Counted:
        """The tokens of the prompt alone. Raises ClientError that names the parameter."""
        (ready,), skipped = await self._with_images(self._overruled((ask,)))
        ids = await self.threads.run(lambda: self._ids(ready), ask.tenant, ready.work_chars)
        return Counted(ids, skipped)

    def text(self, ask: Ask) -> tuple[str, Sequence[SkippedImage]]:
        """The prompt of a conversation as text, in which images are only marked. Call it off the event loop."""
        (ask,) = self._overruled((ask,))
        skipped: Sequence[SkippedImage] = ()
        if self.answerer.image_encoder is None and ask.prompt.has_images:
            (ask,), skipped = describe_images((ask,))
        chat = ask.prompt
        assert isinstance(chat, ChatPrompt)
        return self.renderer.text(chat.turns, tools=ask.demand.tools, **chat.template_arguments), skipped

    async def embed(self, texts: Sequence[Sequence[int]], tenant: str, priority: int = 0) -> list[Vector]:
        """One vector a text, as the model made it. Cancel the call to stop the work. Raises InvalidRequest."""
        if self.adapter is not None:
            raise InvalidRequest("Embeddings are made without adapters: name the model itself.", param="model")
        return await self.answerer.embed(texts, tenant, priority)

    def _overruled(self, asks: Sequence[Ask]) -> Sequence[Ask]:
        return asks if self.overrides is None else list(map(self.overrides.apply, asks))

    async def _with_images(self, asks: Sequence[Ask]) -> tuple[Sequence[Ask], Sequence[SkippedImage]]:
        if not any(ask.prompt.has_images for ask in asks):
            return asks, ()
        asks = [self._with_fewer_images(ask) for ask in asks]
        if self.answerer.image_encoder is None:
            return describe_images(asks)
        return await load_images(asks, self.images), ()

    def _with_fewer_images(self, ask: Ask) -> Ask:
        chat = ask.prompt
        if not isinstance(chat, ChatPrompt) or not chat.can_shorten:
            return ask
        return replace(ask, prompt=replace(chat, turns=with_fewer_images(chat.turns, self.images.max_loaded)))

    def _ids(self, ask: Ask) -> tuple[int, ...]:
        try:
            check_countable(ask.prompt.num_chars, self.context_tokens, _PROMPT)
            if isinstance(ask.prompt, RawPrompt):
                return self._raw_ids(ask.prompt)
            return self._render(ask.prompt, ask.demand).ids
        except ClientError as error:
            error.rename(ask.name_param)
            raise

    def _prepared_at_once(self, asks: Sequence[Ask]) -> list[ReadyRequest] | None:
        """Where formats were compiled for earlier requests, and no text is long. None: it may take long."""
        if sum(each.reading_chars for each in asks) > INLINE_CHARS or not all(map(self._has_grammar, asks)):
            return None
        try:
            return [self.prepare(ask, compiles=False) for ask in asks]
        except NotCompiled:
            return None

    def _has_grammar(self, ask: Ask) -> bool:
        """Whether its grammar was compiled before, whatever its prompt ends with. Tools are much text by themselves."""
        if not ask.is_bound or ask.demand.tools:
            return not ask.demand.tools
        chat = ask.prompt
        is_begun = isinstance(chat, ChatPrompt) and chat.continue_final
        demand = replace(ask.demand, is_raw=isinstance(chat, RawPrompt), is_begun=is_begun)
        return any(self.machines.find(replace(demand, is_reasoning_open=is_open)) for is_open in (False, True))

    def prepare(self, ask: Ask, *, compiles: bool = True) -> ReadyRequest:
        """What is submitted for an ask whose images are loaded. Call it off the event loop where it may take long.

        Without `compiles`, a grammar that is not known already is not made: NotCompiled.
        """
        try:
            if isinstance(ask.prompt, RawPrompt):
                ready = self._prepare_raw(ask, ask.prompt, compiles)
            else:
                ready = self._prepare_fitting(ask, ask.prompt, compiles)
            self.answerer.check(ready.request)
            return ready
        except ClientError as error:
            error.rename(ask.name_param)
            raise

    def _prepare_fitting(self, ask: Ask, chat: ChatPrompt, compiles: bool) -> ReadyRequest:
        try:
            return self._prepare_chat(ask, chat, compiles)
        except ContextLengthExceeded:
            if not chat.can_shorten:
                raise
            return self._prepare_chat(ask, self._shortened(ask, chat), compiles)

    def _prepare_raw(self, ask: Ask, prompt: RawPrompt, compiles: bool) -> ReadyRequest:
        sampling = make_sampling(ask.sampling, self.defaults, self.answerer.tokenizer, self.breakers)
        check_text(prompt.texts, self.answerer.tokenizer, self.context_tokens, _PROMPT)
        ids = self._raw_ids(prompt)
        check_prompt(ids, self.context_tokens, _PROMPT, needs_answer=ask.limits.max_tokens != 0)
        request = Request(
            id=ask.id,
            tenant=ask.tenant,
            prompt_ids=ids,
            sampling=sampling,
            limits=make_limits(ask.limits, len(ids), self.context_tokens, self.answerer.tokenizer),
            num_choices=ask.num_choices,
            pin_seconds=ask.pin_seconds,
            priority=ask.priority,
            num_top_logprobs=ask.num_top_logprobs,
            num_prompt_logprobs=ask.num_prompt_logprobs,
            adapter=self.adapter,
        )
        if isinstance(ask.demand.output, AnyText):
            return ReadyRequest(request, ask.limits.stop, None)
        machine = self._machine(replace(ask.demand, is_raw=True), ask, compiles)
        return ReadyRequest(replace(request, constraint=machine.constraint), ask.limits.stop, None, machine.relaxed)

    def _raw_ids(self, prompt: RawPrompt) -> tuple[int, ...]:
        tokenizer = self.answerer.tokenizer
        if isinstance(prompt.content, str):
            reads_specials = prompt.reads_specials and not prompt.suffix
            ids = self.renderer.raw(prompt.content, reads_specials=reads_specials, adds_bos=prompt.adds_bos).ids
        else:
            check_ids(prompt.content, tokenizer, _PROMPT)
            ids = tuple(prompt.content)
        if not prompt.suffix:
            return ids
        markers = find_markers(tokenizer)
        if markers is None:
            raise InvalidRequest(
                f"{PARAM} is not supported by this model: it has no fill-in-the-middle.",
                param="suffix",
                code="unsupported_parameter",
            )
        gap = infill(markers, ids, tokenizer.encode(prompt.suffix), tokenizer.bos_id)
        return (*gap, *tokenizer.encode(prompt.begun)) if prompt.begun else gap

    def _prepare_chat(self, ask: Ask, chat: ChatPrompt, compiles: bool) -> ReadyRequest:
        tokenizer, context = self.answerer.tokenizer, self.context_tokens
        sampling = make_sampling(ask.sampling, self.defaults, tokenizer, self.breakers)
        check_text([turn.text for turn in chat.turns], tokenizer, context, _PROMPT)
        prompt = self._render(chat, ask.demand)
        check_prompt(prompt.ids, context, _PROMPT, needs_answer=True)
        limits = make_limits(ask.limits, len(prompt.ids), context, tokenizer)
        demand = replace(ask.demand, is_reasoning_open=prompt.opens_reasoning, is_begun=chat.continue_final)
        machine = self._machine(demand, ask, compiles)
        request = Request(
            id=ask.id,
            tenant=ask.tenant,
            prompt_ids=prompt.ids,
            images=prompt.images,
            sampling=sampling,
            limits=limits,
            num_choices=ask.num_choices,
            pin_seconds=ask.pin_seconds,
            priority=ask.priority,
            num_top_logprobs=ask.num_top_logprobs,
            marks_forced=ask.marks_forced,
            constraint=machine.constraint,
            # No answer can follow a guess that is longer than the context.
            draft_ids=tuple(tokenizer.encode(cut_hopeless(ask.prediction, context))[:context]),
            state_sampling=make_state_sampling(sampling, self.state_sampling),
            adapter=self.adapter,
        )
        stop = [*ask.limits.stop, *self._family_stops(ask.demand)]
        return ReadyRequest(request, stop, machine.labels, machine.relaxed)

    def _family_stops(self, demand: Demand) -> Sequence[str]:
        """Where the lines between turns are ours: a model that brings a template was taught to end its own.

        What a grammar binds ends where the grammar says.
        """
        if not self.renderer.writes_family or not isinstance(demand.output, AnyText | TextWithout):
            return ()
        return self.format.stop_strings

    def _render(self, chat: ChatPrompt, demand: Demand) -> Prompt:
        arguments, closes = chat.template_arguments, not demand.can_reason and chat.add_generation_prompt
        return self.renderer.chat(chat.turns, tools=demand.tools, closes_reasoning=closes, **arguments)

    def _shortened(self, ask: Ask, chat: ChatPrompt) -> ChatPrompt:
        def count(turns: Turns) -> int:
            least = least_tokens([turn.text for turn in turns], self.answerer.tokenizer, self.context_tokens)
            return least or len(self._render(replace(chat, turns=turns), ask.demand).ids)

        turns = shortened(chat.turns, count, ask.limits.max_tokens, self.context_tokens)
        return replace(chat, turns=turns)

    def _machine(self, demand: Demand, ask: Ask, compiles: bool) -> Machine:
        try:
            must_be_known = ask.is_bound and not compiles  # what binds nothing takes no time
            machine = self.machines.find(demand) if must_be_known else self.machines.build(demand, ask.tenant)
        except InvalidDemand as error:
            reason = shorten(error.message, _MAX_MESSAGE)
            raise InvalidRequest(f"Invalid value for {PARAM}: {reason}", param=ask.name_demand(error, demand)) from None
        if machine is None:
            raise NotCompiled
        return machine
