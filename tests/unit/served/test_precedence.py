"""Who decides: the request, then the model's table in the configuration, then the model's files, then we; `force` above
all. And what a table says of every request to its model, whatever it says itself.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from proxy_inference_engine.config import Config, load_config
from proxy_inference_engine.config.models import is_of_model
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.output.events import TextDelta
from proxy_inference_engine.pool.entry import PoolEntry, aliases_of, list_entries
from proxy_inference_engine.runners.base import ModelInfo
from proxy_inference_engine.runners.fake import FakeRunner
from proxy_inference_engine.served.ask import Ask, ChatPrompt, LimitWishes, SamplingWishes
from proxy_inference_engine.served.model import ServedModel
from proxy_inference_engine.served.overrides import overrides_of
from proxy_inference_engine.state_machine.demand import Demand
from proxy_inference_engine.types import Request
from tests.model.gguf_files import write_llama
from tests.unit.served.scripted import ScriptedEngine, whole
from tests.unit.served.turns import user

OURS = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
VALUES: dict[str, tuple[float, float, float, float]] = {  # of the model's files, the table, the request, and forced
    "temperature": (0.1, 0.2, 0.3, 0.4),
    "top_p": (0.91, 0.92, 0.93, 0.94),
    "top_k": (11, 12, 13, 14),
    "min_p": (0.01, 0.02, 0.03, 0.04),
    "repetition_penalty": (1.1, 1.2, 1.3, 1.4),
}
TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    "{% if enable_thinking %}<think>{% endif %}{{ tone }}"
)


class Filed(ScriptedEngine):
    """A model whose files say how its tokens are to be chosen."""

    def __init__(self, generation: Mapping[str, float]) -> None:
        super().__init__([whole("a")], runner=FakeRunner(chat_template=TEMPLATE))
        self._generation = generation

    @property
    def info(self) -> ModelInfo:
        return super().info._replace(generation=self._generation)


async def asked(config: Config, *, generation: Mapping[str, float] | None = None, **fields: Any) -> Request:
    """What reaches the engine."""
    engine = Filed(generation or {})
    prompt = ChatPrompt([user("hi")], variables=fields.pop("variables", {}))
    (await ServedModel.of(engine, config).answer(Ask("a", "t", prompt, **fields))).cancel()
    return engine.requests[0]


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("speaks", range(16))
async def test_who_decides_a_sampling_value(name: str, speaks: int) -> None:
    """Every combination of who says something."""
    file, table, request, forced = (value if speaks & (1 << bit) else None for bit, value in enumerate(VALUES[name]))
    config = Config.model_validate({"sampling": {name: table}, "force_sampling": {name: forced}})
    generation = {} if file is None else {name: file}
    found = await asked(config, generation=generation, sampling=SamplingWishes(**{name: request}))  # type: ignore[arg-type]
    expected = next(value for value in (forced, request, table, file, OURS[name]) if value is not None)
    assert getattr(found.sampling, name) == expected
    others = {other for other in VALUES if other != name}
    assert all(getattr(found.sampling, other) == OURS[other] for other in others)


@pytest.mark.parametrize(("setting", "wish", "thinks"), [
    (None, None, False), (None, True, True), (None, False, False),
    ("on", None, True), ("on", False, True), ("off", True, False), ("off", None, False),
])  # fmt: skip
async def test_reasoning_is_switched_whatever_the_request_says(setting: Any, wish: bool | None, thinks: bool) -> None:
    variables = {} if wish is None else {"enable_thinking": wish}
    found = await asked(Config(reasoning=setting), variables=variables)
    assert bytes(found.prompt_ids).endswith(b"<think>") == thinks


@pytest.mark.parametrize("can_reason", [False, True])
def test_the_answer_s_grammar_follows_the_switch(can_reason: bool) -> None:
    """A model that was told not to think may not, and the other way round."""
    ask = Ask("a", "t", ChatPrompt([user("hi")]), demand=Demand(can_reason=can_reason))
    for setting, expected in (("on", True), ("off", False)):
        overrides = overrides_of(Config(reasoning=setting))  # type: ignore[arg-type]  # one of its words
        assert overrides is not None and overrides.apply(ask).demand.can_reason is expected
    overrides = overrides_of(Config(stop=("zz",)))
    assert overrides is not None and overrides.apply(ask).demand.can_reason is can_reason


async def test_what_is_counted_and_shown_is_what_is_computed() -> None:
    """Also where nothing is computed."""
    engine = Filed({})
    model = ServedModel.of(engine, Config(reasoning="on", template_variables={"tone": "calm"}))
    ask = Ask("a", "t", ChatPrompt([user("hi")]))
    counted = await model.count(ask)
    (await model.answer(ask)).cancel()
    assert bytes(counted.ids) == bytes(engine.requests[0].prompt_ids) and bytes(counted.ids).endswith(b"<think>calm")
    assert model.text(ask)[0].endswith("<think>calm")


async def test_variables_of_the_template_are_the_request_s_first() -> None:
    config = Config(template_variables={"tone": "calm"})
    assert bytes((await asked(config)).prompt_ids).endswith(b"calm")
    assert bytes((await asked(config, variables={"tone": "loud"})).prompt_ids).endswith(b"loud")
    assert not bytes((await asked(Config())).prompt_ids).endswith(b"calm")


async def test_stop_strings_come_beside_the_request_s() -> None:
    for stop, left in ([], "a b "), (["c"], "a b "), (["b"], "a "):
        engine = ScriptedEngine([whole("a b zz c")])
        ask = Ask("a", "t", ChatPrompt([user("hi")]), limits=LimitWishes(stop=stop))
        stream = await ServedModel.of(engine, Config(stop=("zz",))).answer(ask)
        events = [event for step in [step async for step in stream.steps()] for _, event in step]
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == left


# From the file to the entry

SETTINGS: dict[str, tuple[str, object]] = {  # each setting that a model may have of its own, as TOML has it
    "context": ("64", 64),
    "slots": ("3", 3),
    "engine": ('"llama.cpp"', "llama.cpp"),
    "draft_model": ('"draft.gguf"', "draft.gguf"),
    "mmproj": ('"none"', "none"),
    "format": ('"llama3"', "llama3"),
    "chat_template": ('"chatml"', "chatml"),
    "template_variables": ('{ tone = "calm" }', {"tone": "calm"}),
    "reasoning": ('"off"', "off"),
    "sampling": ("{ top_k = 5 }", {"top_k": 5}),
    "force_sampling": ("{ top_k = 5 }", {"top_k": 5}),
    "stop": ('["zz"]', ("zz",)),
    "adapters": ('{ poet = "poet.gguf" }', {"poet": Path("poet.gguf")}),
    "kv_memory": ('"1MiB"', 1 << 20),
    "cache_memory": ('"1MiB"', 1 << 20),
    "idle_minutes": ("3", 3.0),
    "gpu_layers": ("0", 0),
    "exact": ("true", True),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_llama(tmp_path / "m.gguf")
    return tmp_path


def entry(folder: Path, toml: str) -> PoolEntry:
    (folder / "pie.toml").write_text(toml)
    (found,) = list_entries(load_config({}, {}, folder))
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_a_table_s_own_setting_is_above_the_file_s(folder: Path, name: str) -> None:
    text, value = SETTINGS[name]
    model = f'[models.m]\nmodel = "{folder / "m.gguf"}"\n'
    for toml in (f"{name} = {text}\n{model}", f"{model}{name} = {text}\n"):
        found = getattr(entry(folder, toml).config, name)
        assert (found.given() if hasattr(found, "given") else found) == value
    assert getattr(entry(folder, model).config, name) != value


def test_where_both_say_something_the_table_counts(folder: Path) -> None:
    model = f'[models.m]\nmodel = "{folder / "m.gguf"}"\n'
    found = entry(folder, f"context = 32\nslots = 2\nreasoning = 'on'\n{model}context = 64\nreasoning = 'off'\n")
    assert (found.config.context, found.config.slots, found.config.reasoning) == (64, 2, "off")


def test_every_other_setting_of_a_model_may_stand_there_too(folder: Path) -> None:
    assert all(is_of_model(name, "model") for name in SETTINGS)
    assert not any(
        is_of_model(name, group) for name, group in (("port", "server"), ("memory", "pool"), ("hub", "pool"))
    )


def test_what_is_the_server_s_may_not(folder: Path) -> None:
    """It would be taken and do nothing."""
    with pytest.raises(StartupError, match="unknown key 'priority_keys'"):
        entry(folder, f'[models.m]\nmodel = "{folder / "m.gguf"}"\npriority_keys = ["anna"]\n')


def test_the_library_of_all_is_that_of_each(folder: Path) -> None:
    found = entry(folder, f'llama_library = "own.so"\noffline = true\n[models.m]\nmodel = "{folder / "m.gguf"}"\n')
    assert (found.config.llama_library, found.config.offline) == (Path("own.so"), True)


def test_a_table_has_aliases_and_switches(folder: Path) -> None:
    toml = f'[models.m]\nmodel = "{folder / "m.gguf"}"\naliases = ["gpt-4o", "claude-*"]\npin = true\n'
    found = entry(folder, toml)
    assert (found.is_pinned, found.is_preloaded) == (True, True)
    assert aliases_of(load_config({}, {}, folder)) == {"gpt-4o": "m", "claude-*": "m"}
