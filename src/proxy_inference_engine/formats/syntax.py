"""How a family marks its reasoning and writes its calls: one description for the prompt, the mask and the parser.

Texts are exact. Where the vocabulary has one of a family's `tokens`, that part of a text is the token and nothing else;
where it has not, it is text.
"""

from dataclasses import dataclass
from enum import StrEnum

# Stands in a text for a word that a model chooses and that says nothing to us: a call's id, its number, a type.
WORD = "\x00"
# Stands in the text that ends an argument for the argument's key: </city>.
KEY = "\x01"


@dataclass(frozen=True, slots=True)
class Thinking:
    """opening REASONING closing gap ANSWER. `header` is a fixed text after the opening that says nothing."""

    opening: str = "<think>"
    closing: str = "</think>"
    header: str = ""
    gap: str = "\n\n"
    call_gap: str | None = None  # before calls, where that is another


class ArgumentStyle(StrEnum):
    JSON = "json"  # {"city": "Paris", "days": 3}
    TAGS = "tags"  # one element a parameter; strings raw, everything else as JSON
    PYTHON = "python"  # city="Paris", days=3
    MARKED = "marked"  # city:<|"|>Paris<|"|>,days:3: strings between marks at any depth, keys bare


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument in the style of tags: before_key KEY before_value VALUE after_value.

    Where strings stand between other texts than the rest, `before_text` and `after_text` are those. In the style of
    marks both are the mark, and stand right around a string.
    """

    before_key: str
    before_value: str
    after_value: str
    separator: str = ""
    before_text: str | None = None
    after_text: str | None = None
    wrapping: tuple[str, str] | None = None  # may stand right around a string, such as <![CDATA[ and ]]>
    item: str = ""  # the key of an array's items, where nested values are elements too; empty: they are JSON

    def around(self, *, is_text: bool, key: str = "") -> tuple[str, str]:
        """What stands before and after the value of a key."""
        if not is_text or self.before_text is None or self.after_text is None:
            return self.before_value, self.after_value.replace(KEY, key)
        return self.before_text, self.after_text.replace(KEY, key)


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """begin [before_name NAME between ARGUMENTS after] separator [before_name …] end

    `opening` begins `begin` (or `before_name` where that is empty) and is what ends free text: from it on the text is a
    call. With `is_at_start`, it does so at the very start of an answer only.
    """

    opening: str
    before_name: str
    between: str
    after: str
    begin: str = ""
    separator: str = "\n"
    end: str = ""
    optional_begin: str = ""  # may stand before everything, means nothing
    style: ArgumentStyle = ArgumentStyle.JSON
    parameter: Parameter | None = None  # of the styles of tags and of marks
    item_separator: str = ", "  # of JSON: as the family was taught
    key_separator: str = ": "
    quote: str = '"'  # of strings in the style of Python, as the family was taught
    is_at_start: bool = False
    can_repeat: bool = True  # several calls in one answer


@dataclass(frozen=True, slots=True)
class Channels:
    """Harmony: an answer is a row of messages, each in a channel.

    channel NAME message BODY [end restart channel NAME message BODY]…
    """

    channel: str = "<|channel|>"
    message: str = "<|message|>"
    end: str = "<|end|>"
    restart: str = "<|start|>assistant"
    reasoning: str = "analysis"
    answer: str = "final"
    aside: str = "commentary"  # text to the user before a call
    call: str = "commentary to=functions."  # then the tool's name
    call_suffix: str = " <|constrain|>json"
