"""`python -m benchmarks.spacing`: does JSON without spaces cost the bundled model correct answers?

Sentences that state facts, a schema that asks for them, greedy answers: how many fields are right, spaced and compact.
"""

import argparse
import json
import random
from typing import Any, NamedTuple

from proxy_inference_engine.config import Config
from proxy_inference_engine.engine.engine import StepEngine
from proxy_inference_engine.formats.detect import detect
from proxy_inference_engine.interaction import Interaction
from proxy_inference_engine.models.load import load_words
from proxy_inference_engine.models.resolve import resolve
from proxy_inference_engine.prompt import PromptRenderer
from proxy_inference_engine.runners.base import Lane
from proxy_inference_engine.runners.llama_cpp.model import Model
from proxy_inference_engine.runners.llama_cpp.runner import LlamaRunner, Settings
from proxy_inference_engine.state_machine.demand import Demand, JsonSchema
from proxy_inference_engine.state_machine.machine import COMPACT, SPACED, MachineBuilder
from proxy_inference_engine.types import Limits, Request, Sampling, Token

_NAMES = ("Anna", "Peter", "Maria", "Tom", "Lucy", "Karl", "Emma", "James", "Nora", "Paul")
_CITIES = ("Paris", "Rome", "London", "Berlin", "Madrid", "Vienna", "Oslo", "Lisbon")
_JOBS = ("doctor", "teacher", "baker", "farmer", "pilot", "nurse", "cook", "painter")
_COLOURS = ("red", "blue", "green", "black", "white", "yellow")
_THINGS = ("car", "house", "boat", "bike", "coat", "door")
_MAX_TOKENS = 120


class Case(NamedTuple):
    text: str
    wanted: dict[str, Any]


def cases(count: int) -> list[Case]:
    rng = random.Random(11)
    found = []
    for _ in range(count):
        name, city, job = rng.choice(_NAMES), rng.choice(_CITIES), rng.choice(_JOBS)
        colour, thing, age = rng.choice(_COLOURS), rng.choice(_THINGS), rng.randint(18, 80)
        text = f"{name} is {age} years old, lives in {city}, works as a {job} and has a {colour} {thing}."
        found.append(Case(text, {"name": name, "age": age, "city": city, "job": job, "colour": colour, "thing": thing}))
    return found


def schema_of(case: Case) -> dict[str, Any]:
    kinds = {str: {"type": "string", "maxLength": 20}, int: {"type": "integer", "minimum": 0, "maximum": 999}}
    properties = {key: kinds[type(value)] for key, value in case.wanted.items()}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m benchmarks.spacing", description="Whether JSON without spaces costs correct answers."
    ).parse_args()
    file = resolve(None)
    words = load_words(Config())
    tokenizer, family = words.tokenizer, detect(words.chat_template)
    renderer = PromptRenderer(tokenizer, family, words.chat_template)
    runner = LlamaRunner(Model(file.path), Settings(name=file.name, lanes=(Lane(1, 1024),), threads=1))
    engine = StepEngine(runner, max_cache_bytes=0)
    asked = cases(60)
    for name, spacing in (("spaced", SPACED), ("compact", COMPACT)):
        builder = MachineBuilder(family, tokenizer, spacing=spacing)
        right, total, whole = 0, 0, 0
        for case in asked:
            said = _answer(engine, renderer, builder, case)
            hits = sum(str(said.get(key)).lower() == str(value).lower() for key, value in case.wanted.items())
            right, total, whole = right + hits, total + len(case.wanted), whole + (hits == len(case.wanted))
        print(f"{name:8} fields right {right}/{total} ({right / total:.1%}), objects all right {whole}/{len(asked)}")


def _answer(engine: StepEngine, renderer: PromptRenderer, builder: MachineBuilder, case: Case) -> dict[str, Any]:
    turns = [Interaction.of("user", f"{case.text}\n\nWrite these facts as JSON with {', '.join(case.wanted)}.")]
    prompt = renderer.chat(turns, tools=(), variables={}, add_generation_prompt=True, continue_final=False)
    machine = builder.build(Demand(output=JsonSchema(schema_of(case), is_strict=True)))
    sampling, limits = Sampling(seed=1, temperature=0.0), Limits(_MAX_TOKENS)
    engine.add(Request("one", "", prompt.ids, sampling, limits, constraint=machine.constraint))
    said = b""
    while engine.has_work:
        for each in engine.step():
            if isinstance(each.output, Token) and each.output.is_visible:
                said += engine.runner.tokenizer.token_bytes(each.output.id)
    try:
        found: dict[str, Any] = json.loads(said)
    except ValueError:
        return {}
    return found


if __name__ == "__main__":
    main()
