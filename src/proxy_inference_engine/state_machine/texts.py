"""A client's grammar for text, and a list of choices, as parts of a rule."""

from collections.abc import Iterable

import llguidance

from proxy_inference_engine.interaction import TextGrammar
from proxy_inference_engine.state_machine.demand import InvalidDemand
from proxy_inference_engine.state_machine.sizes import check_lark, check_size, regex_size
from proxy_inference_engine.state_machine.vocabulary import Lark, pattern

_JAVASCRIPT = "dw"  # \d and \w are ASCII, as in JSON Schema


def text_rule(lark: Lark, grammar: TextGrammar) -> str:
    """Raises InvalidDemand for what could change how the grammar is read, or stall whoever walks it."""
    if grammar.syntax == "regex":
        check_regex(grammar.definition)
        lark.stop_forcing()
        return lark.terminal(regex_rule(grammar.definition, is_anchored=True))
    check_lark(grammar.definition)
    return lark.nested(grammar.definition)


def check_regex(definition: str) -> None:
    """Refuse what is no regex by itself, before it stands in another. Raises InvalidDemand."""
    check_size(regex_size(definition), "the regex")
    problem = llguidance.LLMatcher.validate_grammar(llguidance.LLMatcher.grammar_from_regex(definition))
    if problem:
        raise InvalidDemand(f"not a regex that can be enforced: {problem.strip().splitlines()[0][:200]}", "output")


def regex_rule(definition: str, *, is_anchored: bool) -> str:
    """A regex between slashes; one that is not anchored may match anywhere in the text."""
    body = llguidance.regex_to_lark(definition, _JAVASCRIPT)
    if is_anchored:
        return f"/{body}/"
    start = "" if definition.startswith("^") else "(?s:.*)"
    end = "" if definition.endswith("$") and not definition.endswith("\\$") else "(?s:.*)"
    core = body.removeprefix("^")
    core = core.removesuffix("$") if not end else core
    return f"/{start}(?:{core}){end}/"


def choice_rule(lark: Lark, choices: Iterable[str], bounds: Iterable[str] = ()) -> str:
    """One of these texts, within bounds that are terminals' expressions: one terminal, which takes any number."""
    choices = dict.fromkeys(choices)
    check_size(max(map(len, choices)), "a choice")
    listed = " | ".join(lark.spell_plain(text) for text in choices)
    return lark.terminal(" & ".join([f"({listed})", *bounds]))


def without_rule(lark: Lark, strings: Iterable[str]) -> str:
    """Any text in which none of these strings is found."""
    found = "|".join(map(pattern, strings))
    return lark.terminal(f"/(?s:.*)/ & ~/(?s:.*)(?i:{found})(?s:.*)/")
