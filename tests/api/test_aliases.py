"""A client that is configured for another model's name is answered when the operator says so."""

from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from proxy_inference_engine.config import Config
from tests.api.running import HELLO, MODEL, Running, running


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    config = Config(aliases={"gpt-4o": "default", "claude-*": MODEL, MODEL: "default"}, drain_seconds=0.2)
    with running(config=config) as started:
        yield started


@pytest.fixture
def aliased(live: Running) -> Iterator[OpenAI]:
    with live.openai() as client:
        yield client


@pytest.mark.parametrize("name", ["gpt-4o", "claude-opus-4-5", MODEL, "default"])
def test_an_alias_is_answered_by_the_model(aliased: OpenAI, live: Running, name: str) -> None:
    assert aliased.chat.completions.create(model=name, messages=HELLO, max_tokens=2).model == MODEL  # type: ignore[arg-type]
    assert aliased.completions.create(model=name, prompt="x", max_tokens=2).model == MODEL
    with live.http() as http:
        assert http.post("/tokenize", json={"model": name, "prompt": "x"}).status_code == 200


def test_other_names_do_not_exist(aliased: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        aliased.chat.completions.create(model="gpt-4", messages=HELLO)  # type: ignore[arg-type]
    assert caught.value.code == "model_not_found"


def test_exact_aliases_are_listed(aliased: OpenAI) -> None:
    models = {model.id: model.model_extra or {} for model in aliased.models.list()}
    assert list(models) == [MODEL, "gpt-4o"]
    assert models["gpt-4o"]["alias_of"] == MODEL and "alias_of" not in models[MODEL]


def test_any_alias_can_be_looked_up(aliased: OpenAI) -> None:
    for name in ("gpt-4o", "claude-3"):
        model = aliased.models.retrieve(name)
        assert model.id == name and (model.model_extra or {})["alias_of"] == MODEL
    assert aliased.models.retrieve("default").id == MODEL
    with pytest.raises(openai.NotFoundError):
        aliased.models.retrieve("gpt-4")


def test_without_aliases_there_are_none(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="gpt-4o", messages=HELLO)  # type: ignore[arg-type]
