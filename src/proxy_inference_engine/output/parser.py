"""One answer's text to labelled pieces: content, reasoning, calls. Knows nothing of tokens, stop strings or events.

What comes out does not depend on how the text was cut, and the work is linear in it.
"""

from proxy_inference_engine.formats.base import Labels
from proxy_inference_engine.formats.syntax import CallSyntax, Thinking
from proxy_inference_engine.output.calls.readers import BoundReader, TentativeReader, UnboundReader
from proxy_inference_engine.output.channels import ChannelReader
from proxy_inference_engine.output.pieces import LabelledPiece, Sink
from proxy_inference_engine.output.source import Alphabet, Finder, Reading, Source


class Parser:
    """Where the labels say that a marker is a token, it counts only when it comes by `mark`."""

    def __init__(self, labels: Labels) -> None:
        self._alphabet = Alphabet(labels.tokens.values())
        self._source = Source(self._alphabet.write(labels.start))
        self._sink = Sink(self._alphabet)
        self._reader = (
            AnswerReader(labels, self._alphabet, self._source, self._sink)
            if labels.channels is None
            else ChannelReader(labels, self._alphabet, self._source, self._sink)
        )
        self._steps = self._reader.read()
        next(self._steps)

    @property
    def is_reasoning(self) -> bool:
        """Whether the text read last was within a block of reasoning."""
        return self._reader.is_reasoning

    def feed(self, text: str) -> list[LabelledPiece]:
        self._source.add(text)
        next(self._steps)
        return self._sink.take()

    def mark(self, marker: str) -> list[LabelledPiece]:
        """One of the family's markers came as a token."""
        return self.feed(self._alphabet.char(marker))

    def finish(self, *, is_cut: bool = False) -> list[LabelledPiece]:
        """No more text comes; `is_cut` if a limit is the reason."""
        self._source.is_over = True
        self._source.is_cut = is_cut
        for _ in self._steps:
            raise AssertionError("a reader waits for text that will not come")
        self._sink.finish()
        return self._sink.take()


class AnswerReader:
    """Reads space, blocks of reasoning and what leads to an answer, then content and calls.

    1. Reasoning counts where the prompt has opened it, and at the very start of the answer.
    2. A call's opening ends content, and reasoning if a call follows it.
    3. All else is content.
    """

    def __init__(self, labels: Labels, alphabet: Alphabet, source: Source, sink: Sink) -> None:
        self._source = source
        self._sink = sink
        self._thinking = None if labels.thinking is None else alphabet.translate(labels.thinking)
        self._leads = tuple(map(alphabet.write, labels.leads))
        self._calls: CallSyntax | None = None
        self._bound: BoundReader | None = None
        self._tentative: TentativeReader | None = None
        self._unbound: UnboundReader | None = None
        opening = ""  # of calls in reasoning, and in content where they may open anywhere
        self._is_call_at_start = labels.is_call_at_start or (labels.calls is not None and labels.calls.is_at_start)
        self._is_start_bound = labels.is_call_at_start
        if labels.calls is not None and labels.tools:
            self._calls = alphabet.translate(labels.calls)
            self._unbound = UnboundReader(source, sink, alphabet, labels.calls, labels.tools)
            if labels.is_bound:
                self._bound = BoundReader(source, sink, self._calls, labels.tools)
                self._tentative = TentativeReader(source, sink, alphabet, self._calls, labels.tools)
            opening = "" if self._calls.is_at_start else self._calls.opening
        # Where the opening is text, a grammar lets reasoning mention it.
        self._is_reasoning_bound = opening in alphabet.chars
        self._trails = frozenset(map(alphabet.write, labels.trails))
        self._content_marks = Finder("" if self._is_call_at_start else opening, *self._trails)
        self._reasoning_marks = Finder(opening, "" if self._thinking is None else self._thinking.closing)
        self.is_reasoning = labels.starts_in_reasoning and labels.thinking is not None
        sink.trims_content = bool(opening)

    def read(self) -> Reading[None]:
        if self.is_reasoning and self._thinking is not None:
            yield from self._read_reasoning(self._thinking)
        yield from self._read_start(self._thinking, self._calls)
        while True:
            start = self._source.position
            text, marker = self._source.take_until(self._content_marks)
            self._sink.content(text, start)
            if marker in self._trails:
                continue
            if marker is not None:
                yield from self._read_calls()
            elif self._source.is_over:
                return
            else:
                yield

    def _read_start(self, thinking: Thinking | None, calls: CallSyntax | None) -> Reading[None]:
        """What counts only before any content: reasoning, and calls of families that have no marker for them."""
        source, sink = self._source, self._sink
        opened = "" if thinking is None else thinking.opening.lstrip()  # space is read by itself
        leads = [*self._leads, *(() if thinking is None else (opened, thinking.closing))]
        optional = "" if calls is None else calls.optional_begin
        opening = calls.opening if calls is not None and self._is_call_at_start else ""
        while True:
            start = source.position
            space = yield from source.skip_space()
            sink.content(space, start)
            marker = yield from source.expect(*leads, *filter(None, (optional, opening)))
            if marker is None:
                return
            if marker == opening:
                # Where text is an answer too, to a grammar space is the start of one.
                yield from self._read_calls(is_bound=not space or self._is_start_bound)
                return
            sink.drop_space()
            if thinking is not None and marker == opened:
                yield from self._read_reasoning(thinking)

    def _read_reasoning(self, thinking: Thinking) -> Reading[None]:
        source, sink = self._source, self._sink
        self.is_reasoning = True
        sink.begin_reasoning()
        if thinking.header:
            yield from source.expect(thinking.header)
        while True:
            text, marker = source.take_until(self._reasoning_marks)
            sink.reasoning(text)
            if marker == thinking.closing:
                break
            if marker is not None:
                self.is_reasoning = False
                if (yield from self._read_calls_in_reasoning(thinking)):
                    break
                self.is_reasoning = True
            elif source.is_over:
                return
            else:
                yield
        self.is_reasoning = False
        sink.drop_space()

    def _read_calls(self, *, is_bound: bool = True) -> Reading[None]:
        """The calls behind an opening in content; what turns out to be text is content."""
        num_calls = self._sink.num_calls
        text = yield from self._read_row(is_bound)
        self._sink.content(text, self._source.position - len(text))
        if self._sink.num_calls > num_calls and self._thinking is not None:
            yield from self._skip_closing(self._thinking)

    def _read_calls_in_reasoning(self, thinking: Thinking) -> Reading[bool]:
        """The calls behind an opening in reasoning; True if there were any, otherwise it was text."""
        num_calls = self._sink.num_calls
        text = yield from self._read_row(self._is_reasoning_bound, thinking.closing)
        if self._sink.num_calls == num_calls:
            self._sink.reasoning(text)
            return False
        self._sink.content(text, self._source.position - len(text))
        yield from self._skip_closing(thinking)
        return True

    def _read_row(self, is_bound: bool, boundary: str = "") -> Reading[str]:
        """Read a row of calls behind its opening; gives what was read last, if it is text."""
        if self._bound is not None and is_bound:
            return (yield from self._bound.read())
        if self._tentative is not None:
            text = yield from self._tentative.read()
            if text is not None:
                return text
        assert self._unbound is not None, "there are no openings without calls"
        return (yield from self._unbound.read(boundary))

    def _skip_closing(self, thinking: Thinking) -> Reading[None]:
        """After a call the end of a block of reasoning says nothing: the call has ended it."""
        start = self._source.position
        self._sink.content((yield from self._source.skip_space()), start)
        if (yield from self._source.expect(thinking.closing)) is not None:
            self._sink.drop_space()
