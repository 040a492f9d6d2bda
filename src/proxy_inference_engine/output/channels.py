"""Answers in channels (Harmony): a row of messages, each with a header that says what it is. Knows no other family."""

import re
from collections.abc import Callable

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.signature import is_raw_input
from proxy_inference_engine.interaction import Tool
from proxy_inference_engine.output.calls.strings import read_json
from proxy_inference_engine.output.calls.tolerant import read_call_arguments
from proxy_inference_engine.output.pieces import Sink
from proxy_inference_engine.output.source import Alphabet, Finder, Reading, Source

_RECIPIENT = "to="
_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_CHANNEL = re.compile(r"\s*([A-Za-z]*)")


class ChannelReader:
    """Reads messages until the answer is over. Text without any header is content."""

    def __init__(self, labels: Labels, alphabet: Alphabet, source: Source, sink: Sink) -> None:
        assert labels.channels is not None
        self._channels = channels = alphabet.translate(labels.channels)
        self._alphabet = alphabet
        self._source = source
        self._sink = sink
        self._tools = labels.tools
        self._is_bound = labels.is_bound
        self._recipient = _RECIPIENT + channels.call.partition(_RECIPIENT)[2]
        self._starts_in_reasoning = self.is_reasoning = labels.starts_in_reasoning
        tokens = alphabet.chars
        restart = channels.restart[0] if channels.restart[0] in tokens else channels.restart
        self._starts = (channels.channel, restart, self._recipient, channels.message)
        # A marker that is a token is never text: it ends a message whose own end is missing, or says nothing there.
        self._message_marks = Finder(channels.end, *tokens)
        self._ignored = tokens & {channels.message, *channels.call_suffix}
        self._header_marks = Finder(channels.message)

    def read(self) -> Reading[None]:
        source = self._source
        if self._starts_in_reasoning:
            yield from self._read_body(self._channels.reasoning)
        while True:
            yield from source.skip_space()
            if source.is_empty:
                return
            start = yield from source.expect(*self._starts)
            if start is not None:
                source.put_back(len(start))
                header = yield from source.through(self._header_marks)
                if header is not None:
                    yield from self._read_message(header)
            elif source.is_over and source.begins(*self._starts):
                source.take()
            else:
                yield from self._read_body(self._channels.answer)

    def _read_message(self, header: str) -> Reading[None]:
        _, _, after = header.partition(self._channels.channel)
        # The recipient may stand before or after the channel.
        _, _, addressed = header.partition(self._recipient)
        name = _NAME.match(addressed)
        tool = None if name is None else self._tools.get(name.group())
        if tool is None:
            channel = _CHANNEL.match(after)
            yield from self._read_body("" if channel is None else channel.group(1))
        elif self._is_bound or is_raw_input(tool):
            yield from self._read_call(tool)
        else:
            yield from self._read_held_call(tool)

    def _read_body(self, channel: str) -> Reading[None]:
        sink = self._sink
        if channel != self._channels.reasoning:
            yield from self._read_text(sink.content)
            return
        self.is_reasoning = True
        sink.begin_reasoning()
        if (yield from self._read_text(lambda text, _: sink.reasoning(text))):
            self.is_reasoning = False

    def _read_call(self, tool: Tool) -> Reading[None]:
        sink = self._sink
        sink.start_call(tool.name)
        if is_raw_input(tool):
            is_ended = yield from self._read_text(lambda text, _: sink.arguments(text), awaits_end=True)
            if is_ended or not self._source.is_cut:
                sink.end_call()
        elif (yield from read_json(self._source, sink, tool)):
            sink.end_call()
            yield from self._read_text(lambda text, _: None)
        else:
            self._source.take()

    def _read_held_call(self, tool: Tool) -> Reading[None]:
        parts: list[str] = []
        start = self._source.position
        yield from self._read_text(lambda text, _: parts.append(text))
        body = "".join(parts)
        arguments = read_call_arguments(self._alphabet.spell(body), tool)
        if arguments is None:
            self._sink.content(body, start)
        else:
            self._sink.start_call(tool.name)
            self._sink.arguments(arguments)
            self._sink.end_call()

    def _read_text(self, write: Callable[[str, int], None], *, awaits_end: bool = False) -> Reading[bool]:
        """Hand on the text of a message with its place; True if its end came."""
        source = self._source
        while True:
            start = source.position
            text, marker = source.take_until(self._message_marks, awaits_marker=awaits_end)
            write(text, start)
            if marker is None:
                if source.is_over:
                    source.take()
                    return False
                yield
            elif marker not in self._ignored:
                if marker in self._starts:
                    source.put_back(len(marker))
                return True
