"""Random schemas with huge numbers, regexes and Lark: each ends in a machine that can be walked, or in a refusal."""

import random
from typing import Any

from proxy_inference_engine.errors import Unavailable
from proxy_inference_engine.formats import by_name
from proxy_inference_engine.interaction import TextGrammar, Tool
from proxy_inference_engine.state_machine.compilation import GrammarLimits
from proxy_inference_engine.state_machine.demand import Demand, InvalidDemand, JsonSchema
from proxy_inference_engine.state_machine.machine import MachineBuilder
from proxy_inference_engine.state_machine.matcher import GrammarFailure
from tests.soak.outcome import Outcome, scaled
from tests.unit.state_machine.json_schema.odd_schemas import odd_schema
from tests.unit.state_machine.vocabularies import PieceTokenizer

_NUM_GRAMMARS, _NUM_STEPS = 100_000, 6
_ATOMS = (
    "a", "[a-z]", "[^a]", ".", "\\d", "\\w+", "(a|b)", "\\p{L}", "é", "(?i:x)", "a?", "^", "$", "[", ")", "\\", "{",
)  # fmt: skip
_COUNTS = ("", "*", "+", "?", "{3}", "{2,}", "{0,9}", "{1000}", "{9,99999999}", "{007}", "{,5}")
_SYMBOLS = ('"a"', "/b+/", "r1", "r2", "T", '%json {"type": "integer"}', "<[3]>", "@g", "/(/", '"a".."f"')


def run(scale: float) -> Outcome:
    num_grammars, wrong = scaled(_NUM_GRAMMARS, scale), list[str]()
    builder = MachineBuilder(by_name("chatml"), PieceTokenizer(), limits=GrammarLimits(max_seconds=0.5))
    try:
        for number in range(num_grammars):
            try:
                _try(builder, _demand(random.Random(number)))
            except BaseException as error:  # a panic of the library's is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                wrong.append(f"grammar {number}: {type(error).__name__}: {str(error)[:200]}")
    finally:
        builder.close()
    return Outcome(num_grammars, wrong)


def _try(builder: MachineBuilder, demand: Demand) -> None:
    try:
        machine = builder.build(demand)
    except InvalidDemand as error:
        assert error.message and len(error.message) < 2000, error.message
        return
    except Unavailable:
        return
    if machine.constraint is None:
        return
    matcher = machine.constraint.start()
    try:
        for _ in range(_NUM_STEPS):
            mask = matcher.mask()
            matcher.forced()
            if mask is None or matcher.is_complete or not mask[:256].any():
                return
            matcher.accept(int(mask[:256].argmax()))
    except GrammarFailure:
        return  # too complex a step: the request's own error


def _demand(chance: random.Random) -> Demand:
    kind = chance.random()
    if kind < 0.6:
        schema: Any = odd_schema(chance.randint)
        if chance.random() < 0.5:
            return Demand(output=JsonSchema(schema, chance.random() < 0.5))
        parameters = {"type": "object", "properties": {"a": schema}}
        return Demand(tools=(Tool("f", parameters=parameters, is_strict=chance.random() < 0.5),))
    if kind < 0.8:
        return Demand(output=TextGrammar("regex", _regex(chance)))
    return Demand(output=TextGrammar("lark", _lark(chance)))


def _regex(chance: random.Random, depth: int = 0) -> str:
    parts = []
    for _ in range(chance.randint(1, 5)):
        part = f"({_regex(chance, depth + 1)})" if depth < 3 and chance.random() < 0.2 else chance.choice(_ATOMS)
        parts.append(part + chance.choice(_COUNTS))
    return "".join(parts)


def _lark(chance: random.Random) -> str:
    lines = []
    for name in ("start", "r1", "r2", "T"):
        options = (" ".join(_symbols(chance)) for _ in range(chance.randint(1, 3)))
        lines.append(f"{name}: {' | '.join(options)}")
    return "\n".join(lines)


def _symbols(chance: random.Random) -> list[str]:
    return [chance.choice(_SYMBOLS) + chance.choice(_COUNTS) for _ in range(chance.randint(1, 4))]
