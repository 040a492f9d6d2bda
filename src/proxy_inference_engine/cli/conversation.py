"""A conversation with an engine in this process: what was said in, the answer out in pieces. Knows no terminal."""

import secrets
from collections.abc import AsyncGenerator
from typing import NamedTuple

from proxy_inference_engine.engine.base import Engine
from proxy_inference_engine.errors import ContextLengthExceeded, EngineFailure
from proxy_inference_engine.formats import Format
from proxy_inference_engine.interaction import Interaction, Role
from proxy_inference_engine.models.profile import Profile
from proxy_inference_engine.output.events import Broken, ReasoningDelta, TextDelta
from proxy_inference_engine.output.pipeline import Pipeline
from proxy_inference_engine.prompt.render import Prompt, PromptRenderer
from proxy_inference_engine.state_machine.demand import Demand
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.types import Limits, Request, Sampling

_TENANT = "terminal"


class Said(NamedTuple):
    """The next piece of an answer, or of the reasoning before it."""

    text: str
    is_reasoning: bool = False


class Conversation:
    """Remembers a turn once it has an answer; one that was stopped early keeps what had come."""

    def __init__(self, engine: Engine, format_: Format, defaults: Profile) -> None:
        self._engine = engine
        self._format = format_
        self._defaults = defaults
        self._renderer = PromptRenderer(engine.tokenizer, format_, engine.info.chat_template)
        self._machines = MachineBuilder(format_, engine.tokenizer)
        self.turns: list[Interaction] = []

    def clear(self) -> None:
        self.turns = []

    async def ask(self, question: str) -> AsyncGenerator[Said, None]:
        """The answer, piece by piece. Closing the generator stops the engine."""
        turns = [*self.turns, Interaction.of(Role.USER, question)]
        prompt = self._renderer.chat(turns, add_generation_prompt=True, continue_final=False)
        request = self._request(prompt)
        labels = self._machines.build(Demand(is_reasoning_open=prompt.opens_reasoning)).labels
        pipeline = Pipeline(self._engine.tokenizer, stop=self._format.stop_strings, labels=labels)
        stream = self._engine.submit(request)
        answer = ""
        try:
            async for items in stream:
                for item in items:
                    for event in pipeline.feed(item.output):
                        if isinstance(event, Broken):
                            raise event.error
                        if isinstance(event, TextDelta):
                            answer += event.text
                            yield Said(event.text)
                        elif isinstance(event, ReasoningDelta):
                            yield Said(event.text, is_reasoning=True)
                if pipeline.is_over:
                    return
            raise EngineFailure("the engine ended before the answer was complete")
        finally:
            stream.cancel()
            if answer:
                self.turns = [*turns, Interaction.of(Role.ASSISTANT, answer)]

    def _request(self, prompt: Prompt) -> Request:
        num_left = self._engine.context_tokens - len(prompt.ids)
        if num_left < 1:
            raise ContextLengthExceeded(
                f"the conversation has {len(prompt.ids)} tokens; {self._engine.context_tokens} fit with an answer"
            )
        defaults = self._defaults
        sampling = Sampling(
            seed=secrets.randbits(63),
            temperature=defaults.temperature,
            top_p=defaults.top_p,
            top_k=defaults.top_k,
            min_p=defaults.min_p,
            repetition_penalty=max(defaults.repetition_penalty, defaults.terminal_penalty),
        )
        return Request(f"{_TENANT}-{secrets.token_hex(8)}", _TENANT, tuple(prompt.ids), sampling, Limits(num_left))
