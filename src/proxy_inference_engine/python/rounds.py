"""One chat as a series of rounds: ask, answer, run the functions that were called, ask again. Does no waiting itself.

The engines drive it, one by blocking, one by awaiting; what is asked and what is made of the answer is decided here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from proxy_inference_engine.errors import EngineFailure, InvalidRequest
from proxy_inference_engine.interaction import ToolCall
from proxy_inference_engine.output.answer import Answer
from proxy_inference_engine.output.events import Event
from proxy_inference_engine.python.answer import ChatAnswer, FinishWord, IncompleteAnswer, TokenCounts
from proxy_inference_engine.python.functions import FunctionTool, ToolLike, as_text, tool_specs
from proxy_inference_engine.python.options import TurnsLike, as_messages, check_names, plain
from proxy_inference_engine.python.result import BadResult, ResultShape
from proxy_inference_engine.served.stream import AnswerStream

T = TypeVar("T")
MAX_ROUNDS = 10  # of functions called one after the other, unless a program says otherwise


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call of a Python function, to be made by whoever drives the rounds."""

    id: str
    tool: FunctionTool
    arguments: str

    def start(self) -> Any:
        """What the function returns: a value, or something to await."""
        return self.tool.call(self.arguments)


class ChatRounds(Generic[T]):
    def __init__(
        self,
        messages: TurnsLike,
        response_format: "type[T] | Mapping[str, Any] | None",
        options: Mapping[str, Any],
    ) -> None:
        check_names(options)
        self._options = dict(options)
        tools: Sequence[ToolLike] = self._options.pop("tools", ())
        self._rounds_left: int = self._options.pop("max_rounds", MAX_ROUNDS)
        self._messages = as_messages(messages)
        self._tools = [tool if isinstance(tool, Mapping) else FunctionTool.of(tool) for tool in tools]
        self._functions = {tool.name: tool for tool in self._tools if isinstance(tool, FunctionTool)}
        self._shape = None if response_format is None else ResultShape(response_format)
        self._current = Answer()
        self._counts = TokenCounts()
        self._calls: tuple[ToolCall, ...] = ()
        self._relaxed: tuple[str, ...] = ()
        self.ignored: tuple[str, ...] = ()

    def body(self) -> dict[str, Any]:
        """What is asked next, as the chat API has it."""
        self._current = Answer()
        body = {"messages": self._messages, **self._options}
        if self._tools:
            body["tools"] = tool_specs(self._tools)
        if self._shape is not None:
            body["response_format"] = self._shape.format
        return {name: plain(value) for name, value in body.items()}

    def feed(self, event: Event) -> None:
        self._current.add(event)

    def finish(self, stream: AnswerStream) -> list[PendingCall]:
        """The answer of this round is whole: the functions to run before the next, none where there is no next."""
        answer = self._current
        if answer.ended is None:
            raise EngineFailure("The engine ended the request before its answer was complete.")
        self._counts += TokenCounts.of(stream.counts)
        self._relaxed = tuple(dict.fromkeys((*self._relaxed, *stream.relaxed)))
        is_cut = answer.ended.reason == "length"
        complete = [call for call in answer.calls if call.is_complete and not is_cut]
        ids = [f"call_{len(self._messages)}_{number}" for number in range(len(complete))]
        self._calls = tuple(ToolCall(id_, call.name, call.arguments) for id_, call in zip(ids, complete, strict=True))
        self._messages.append(self._message(answer))
        if not self._calls or any(call.name not in self._functions for call in self._calls):
            return []
        if self._rounds_left == 0:
            raise InvalidRequest(
                "The model goes on calling functions: raise 'max_rounds', or tell it when to stop.", param="max_rounds"
            )
        self._rounds_left -= 1
        # A choice that asks for a call would ask for one after every result.
        self._options.pop("tool_choice", None)
        return [PendingCall(call.id, self._functions[call.name], call.arguments) for call in self._calls]

    def add_result(self, call: PendingCall, result: Any) -> None:
        self._messages.append({"role": "tool", "tool_call_id": call.id, "content": as_text(result)})

    def answer(self) -> ChatAnswer[T]:
        """The whole answer, after the last round. Raises IncompleteAnswer, and RuntimeError before."""
        last = self._current
        if last.ended is None:
            raise RuntimeError("the answer is not whole yet: read the stream to its end first")
        finish: FinishWord = "tool_calls" if self._calls else last.ended.reason
        bare: ChatAnswer[None] = ChatAnswer(
            text=last.text,
            parsed=None,
            reasoning=last.reasoning,
            calls=self._calls,
            finish_reason=finish,
            counts=self._counts,
            messages=tuple(self._messages),
            logprobs=tuple(last.logprobs),
            relaxed=self._relaxed,
            ignored=self.ignored,
        )
        if self._shape is None or self._calls:
            return bare  # type: ignore[return-value]  # T is None without a format; with calls nothing is parsed yet
        try:
            return replace(bare, parsed=self._shape.parse(last.text))  # type: ignore[arg-type, return-value]  # of T
        except BadResult as error:
            cut = f"it was cut off after {last.ended.num_tokens} tokens" if finish == "length" else str(error)
            raise IncompleteAnswer(bare, f"The answer is not what 'response_format' asks for: {cut}.") from None

    def _message(self, answer: Answer) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if self._calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self._calls
            ]
        return message
