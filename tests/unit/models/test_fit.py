"""Whether a model fits: one that is here, and one on a hub of which only the beginnings of files are read."""

import json
from pathlib import Path

import pytest

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.allotment import allot
from proxy_inference_engine.models.download import facts as remote
from proxy_inference_engine.models.download.hub import Hub as Client
from proxy_inference_engine.models.fit import Fit, fit
from proxy_inference_engine.runners.llama_cpp.header import Entry, Tensor, read_beginning, read_header, write_header
from tests.hub import Hub
from tests.unit.models.download.pulling import NAME, SAFETENSORS

GIB = 1 << 30
LAYERS, HEADS, WIDTH, CONTEXT, WORDS = 4, 2, 64, 4096, 30_000
TOKEN_BYTES = LAYERS * HEADS * WIDTH * 4
WEIGHTS = 2 << 20


def gguf(num_bytes: int = WEIGHTS, file_type: int = 7) -> bytes:
    """A file with a vocabulary that is longer than the first range, and what says its layout behind it."""
    words = b"".join((len(word).to_bytes(8, "little") + word) for word in (b"word %05d" % n for n in range(WORDS)))
    tokens = (8).to_bytes(4, "little") + WORDS.to_bytes(8, "little") + words
    entries = [
        Entry.of("general.architecture", "llama"),
        Entry.of("llama.block_count", LAYERS),
        Entry.of("llama.context_length", CONTEXT),
        Entry.of("llama.embedding_length", 4 * WIDTH),
        Entry.of("llama.attention.head_count", 4),
        Entry.of("llama.attention.head_count_kv", HEADS),
        Entry("tokenizer.ggml.tokens", 9, tokens),
        Entry.of("general.file_type", file_type),
    ]
    return write_header(entries, [Tensor("weights", (num_bytes,), 0, 0)]) + bytes(num_bytes)


@pytest.fixture
def tiny(hub: Hub) -> Hub:
    hub.repositories[NAME] = {"tiny-Q8_0.gguf": gguf()}
    return hub


def fit_of(hub: Hub, room: int = GIB, *, is_shared: bool = False, **settings: object) -> Fit:
    config = Config(model=NAME, **settings)  # type: ignore[arg-type]
    return fit(config, room_bytes=room, is_shared=is_shared, connect=lambda: Client(hub.endpoint, pause_s=0.0))


def test_a_model_on_the_hub_is_read_by_its_header_alone(tiny: Hub) -> None:
    found = fit_of(tiny)
    assert (found.fits, found.context, found.known_context, found.slots) == (True, CONTEXT, CONTEXT, Config().slots)
    assert found.weights == len(gguf()) == found.download and found.memory <= found.room == GIB
    ranges = [each.range for each in tiny.asked if "/stored/" in each.path]
    assert ranges[0] == "bytes=0-262143" and all(ranges)
    assert int(str(ranges[-1]).rpartition("-")[2]) < len(gguf()), "weights were read"


def test_a_small_model_takes_no_more_than_it_can_use(tiny: Hub) -> None:
    """Slots of 2,048 tokens, and four long ones: however much memory there is."""
    kv = (Config().slots * 2048 + 4 * CONTEXT) * TOKEN_BYTES
    for room in (4 * GIB, 8 * GIB):
        found = fit_of(tiny, room, cache_memory=0)
        assert kv < found.memory - found.weights < kv + GIB // 4
    assert fit_of(tiny, 4 * GIB, cache_memory=0).memory == fit_of(tiny, 8 * GIB, cache_memory=0).memory


def test_a_large_file_is_judged_by_what_comes_before_its_vocabulary(tiny: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "MAX_CONVERTED_BYTES", 1 << 20)
    assert fit_of(tiny).fits
    assert [each.range for each in tiny.asked if "/stored/" in each.path] == ["bytes=0-262143"]


def test_what_would_be_converted_counts_with_what_it_grows_to(tiny: Hub) -> None:
    tiny.repositories[NAME] = {"tiny-Q4_1.gguf": gguf(file_type=3)}
    assert fit_of(tiny).weights == int(len(gguf()) * 34 / 18)
    assert fit_of(tiny, convert_weights="never").weights == len(gguf())


def test_weights_that_are_too_large_say_so(tiny: Hub) -> None:
    found = fit_of(tiny, 64 << 20)
    assert (found.fits, found.context, found.slots) == (False, 0, 0)
    assert found.why.startswith("its weights and a pass over them take ") and found.why.endswith("64 MiB are there")


def test_a_context_that_is_too_long_says_so(tiny: Hub) -> None:
    found = fit_of(tiny, kv_memory=TOKEN_BYTES * 300, context=4096)
    assert not found.fits and "a context of 4096 tokens needs" in found.why


def test_a_short_memory_shortens_the_context(tiny: Hub) -> None:
    found = fit_of(tiny, kv_memory=TOKEN_BYTES * 3000)
    assert found.fits and found.context == 2048 and found.slots == 1


def test_safetensors_by_their_config(hub: Hub) -> None:
    config = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8, "vocab_size": 10}
    hub.repositories[NAME] = {
        "config.json": json.dumps({"text_config": config}).encode(),
        "tokenizer.json": b"{}",
        "model.safetensors": SAFETENSORS,
    }
    found = fit_of(hub)
    assert (found.kind, found.weights, found.known_context) == ("safetensors", len(SAFETENSORS), 2048)
    assert "model.safetensors" not in hub.paths
    refused = fit_of(hub, engine="llama.cpp")
    assert not refused.fits and "engine llama.cpp cannot run" in refused.why


def test_sharing_a_budget_is_what_the_pool_would_keep(tiny: Hub, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf())
    config = Config(model=str(path))
    there, here = fit_of(tiny, is_shared=True), fit(config, room_bytes=GIB, is_shared=True)
    assert there.memory == here.memory == allot(config, GIB).num_bytes
    assert here.download == 0 and here.fits


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GGUF" + bytes(100), "not a GGUF header of a known version"),
        (b"PK" + bytes(100), "not a GGUF file"),
        (gguf()[:300_000], "a header that breaks off"),
    ],
)
def test_what_is_no_header_is_refused(hub: Hub, data: bytes, reason: str) -> None:
    hub.repositories[NAME] = {"tiny-Q8_0.gguf": data}
    with pytest.raises(StartupError, match=reason):
        fit_of(hub)


def test_broken_connections_are_tried_again_and_a_hub_without_ranges_is_named(tiny: Hub) -> None:
    tiny.cuts = [1000]
    assert fit_of(tiny).fits
    tiny.has_ranges = False
    with pytest.raises(StartupError, match="only as a whole"):
        fit_of(tiny)


def test_offline_asks_nobody(tiny: Hub) -> None:
    with pytest.raises(StartupError, match="--offline forbids downloads"):
        fit_of(tiny, offline=True)
    assert not tiny.asked


def test_beginnings_of_every_length_are_a_header_or_its_beginning(tmp_path: Path) -> None:
    data = gguf(0)
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    whole = read_header(path).entries
    assert read_beginning(data) == (whole, True)
    for length in (24, 30, 100, 170, 210, 300, 400, 5000, len(data) // 2):
        entries, is_whole = read_beginning(data[:length])
        assert not is_whole and [each.key for each in entries] == [each.key for each in whole[: len(entries)]]
    assert read_beginning(data[:5000])[0][-1].length == WORDS
