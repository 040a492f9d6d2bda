"""The served models by name: which names match, which cannot be meant, and what is told of all models together."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.config.models import ModelTable
from proxy_inference_engine.engine.base import Stats
from proxy_inference_engine.engine.stats import total
from proxy_inference_engine.errors import NotFound, StartupError
from proxy_inference_engine.pool.entry import PoolEntry, aliases_of
from proxy_inference_engine.pool.member import Member
from proxy_inference_engine.pool.names import MAX_NAME, ModelNames
from proxy_inference_engine.pool.pool import ModelPool
from tests.unit.served.scripted import ScriptedEngine, served


class Measured(ScriptedEngine):
    """One whose numbers are known."""

    def __init__(self, stats: Stats) -> None:
        super().__init__()
        self._stats = stats

    def stats(self) -> Stats:
        return self._stats


def catalogue(*names: str, aliases: Mapping[str, str] | None = None) -> ModelPool:
    return ModelPool.of([served(name=name) for name in names], aliases)


TABLE = {"gpt-4o": "default", "claude-*": "org/model", "o?-mini": "default"}


@pytest.mark.parametrize(
    ("name", "is_alias"),
    [
        ("gpt-4o", True),
        ("gpt-4o-mini", False),
        ("GPT-4o", False),
        ("claude-", True),
        ("claude-sonnet-4-5-20250929", True),
        ("Claude-sonnet", False),
        ("my-claude-3", False),
        ("claude-*", True),
        ("o3-mini", True),
        ("o13-mini", False),
        ("", False),
        ("claude-" + "x" * MAX_NAME, False),
    ],
)
def test_names_are_exact_or_match(name: str, is_alias: bool) -> None:
    assert (catalogue("org/model", aliases=TABLE).get(name) is not None) == is_alias


def test_only_exact_names_are_listed() -> None:
    assert tuple(catalogue("org/model", aliases=TABLE).names) == ("org/model", "gpt-4o")
    assert tuple(catalogue("org/model").names) == ("org/model",)


def test_an_alias_stands_for_what_is_served() -> None:
    with pytest.raises(StartupError, match=r"'claude-\*' stands for 'org/model', which is not served"):
        catalogue("other", aliases=TABLE)


def test_of_several_models_the_first_is_the_default() -> None:
    models = catalogue("first", "second", aliases={"gpt-4o": "default", "gpt-*": "second", "second": "first"})
    found = [models.find(name).id for name in ("default", "first", "second", "gpt-4o", "gpt-5")]
    assert found == ["first", "first", "second", "first", "second"]
    assert list(models.names) == ["first", "second", "gpt-4o"]
    assert [models.id_of(name) for name in (None, "gpt-5", "nobody")] == [None, "second", "nobody"]


def test_what_nothing_has_is_not_found() -> None:
    with pytest.raises(NotFound) as caught:
        catalogue("first", "second").find("third\n")
    assert (caught.value.param, caught.value.code) == ("model", "model_not_found")
    assert "'third?'" in caught.value.message
    for name in ("/first", "./first", "models/first", "first/", "../first", "first.gguf", "first:x", "FIRST", " first"):
        assert catalogue("first", "second").get(name) is None


def test_names_are_unique() -> None:
    with pytest.raises(StartupError, match="same name"):
        catalogue("same", "same")


def test_an_adapter_takes_nobody_s_name() -> None:
    def names(*ids: str, **adapters: list[str]) -> list[str]:
        configs = {id_: Config(adapters=dict.fromkeys(adapters.get(id_[0], ()), Path("x.gguf"))) for id_ in ids}
        members = [Member(PoolEntry(id_, config), lambda: 0.0) for id_, config in configs.items()]
        return list(ModelNames(members, {}).exact)

    assert names("a", "b", a=["x"], b=["x"]) == ["a", "b", "a:x", "b:x"]
    for adapters in (["x"], ["x:y", "y"]):
        with pytest.raises(StartupError, match="which another is"):
            names("a", "a:x", a=adapters)


def test_an_adapter_has_aliases_and_patterns() -> None:
    member = Member(PoolEntry("a", Config(adapters={"x": Path("x.gguf")})), lambda: 0.0)
    names = ModelNames([member], {"gpt-4o": "a:x", "claude-*": "a:x", "plain-*": "a"})
    adapted, others = ("a:x", "gpt-4o", "claude-9"), ("a", "default", "plain-1", "b", None)
    assert [names.adapter_of(name) for name in adapted] == ["x"] * 3
    assert [names.adapter_of(name) for name in others] == [None] * 5


def test_an_alias_of_two_models_is_refused() -> None:
    tables = {name: ModelTable(aliases=("gpt-4o",)) for name in ("a", "b")}
    with pytest.raises(StartupError, match="'gpt-4o' stands for 'a' and for 'b'"):
        aliases_of(Config(models=tables))
    del tables["b"]
    assert aliases_of(Config(models=tables, aliases={"x": "a"})) == {"gpt-4o": "a", "x": "a"}
    assert aliases_of(Config(models=tables, aliases={"gpt-4o": "b"})) == {"gpt-4o": "b"}, "the file has the last word"


def test_numbers_of_several_models_are_added_up() -> None:
    stats = [
        Stats(num_running=3, total_steps=5, heartbeat_age_s=1.0, disk_bytes=7),
        Stats(num_running=4, total_steps=6, heartbeat_age_s=0.5, disk_bytes=8),
    ]
    pool = ModelPool.of([served(Measured(each), name=str(number)) for number, each in enumerate(stats)])
    assert [each.num_running for each in pool.stats().values()] == [3, 4]
    sums = total(pool.stats().values())
    assert (sums.num_running, sums.total_steps, sums.heartbeat_age_s) == (7, 11, 1.0)
    assert sums.disk_bytes == 15


def test_one_that_is_not_ready_is_enough() -> None:
    engines = ScriptedEngine(), ScriptedEngine()
    models = ModelPool.of([served(engine, name=str(number)) for number, engine in enumerate(engines)])
    assert models.is_ready
    engines[1].is_ready = False
    assert not models.is_ready
