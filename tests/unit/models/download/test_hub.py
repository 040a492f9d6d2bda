"""What a hub may say: refusals, tokens, redirects, names, sizes and digests that are wrong."""

from pathlib import Path

import pytest
import truststore

from proxy_inference_engine.config import Config
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models.download.blobs import Blobs
from proxy_inference_engine.models.download.hub import Hub as Client
from proxy_inference_engine.models.download.listing import RemoteFile
from proxy_inference_engine.models.download.model import pull
from proxy_inference_engine.models.download.web import _certificates
from proxy_inference_engine.models.resolve import resolve
from tests.hub import COMMIT, Hub, describe, digest
from tests.unit.models.download.pulling import FOLDER, GGUF, NAME, Watcher, blobs, fetch, refused


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_wrong_digest_is_deleted(hub: Hub, cache: Path, name: str) -> None:
    hub.repositories[NAME] = dict(FOLDER)
    hub.served[name] = FOLDER[name][::-1]
    assert refused(hub) == f"what came of {name!r} has not the digest that the hub says: it was deleted"
    assert not any(digest(name, FOLDER[name]) in path for path in blobs(cache))
    with pytest.raises(StartupError, match="not in the Hugging Face cache"):
        resolve(NAME)


def test_a_wrong_size(hub: Hub) -> None:
    hub.served["tiny-Q8_0.gguf"] = GGUF + b"more"
    assert refused(hub) == f"'tiny-Q8_0.gguf' has not the {len(GGUF)} bytes that it should have"
    hub.has_lengths = False
    assert refused(hub) == f"'tiny-Q8_0.gguf' does not end after the {len(GGUF)} bytes that the hub says"


@pytest.mark.parametrize(
    ("status", "code", "token", "reason"),
    [
        (401, "GatedRepo", None, "is gated: accept its terms at http://.*/owner/tiny; then set HF_TOKEN"),
        (403, "GatedRepo", "hf_1", r"is gated: .*; your token \(HF_TOKEN\) has no access yet"),
        (403, None, None, "then set HF_TOKEN"),
        (
            401,
            "RepoNotFound",
            None,
            "no such file or folder, and http://.* has no such model; if it is private, set HF_TO",
        ),
        (401, None, "hf_1", r"does not take your token \(HF_TOKEN\)"),
        (404, "RepoNotFound", "hf_1", "no such file or folder, and http://.* has no such model$"),
        (404, "EntryNotFound", None, "answers 404 EntryNotFound"),
        (418, None, None, "answers 418$"),
    ],
)
@pytest.mark.parametrize("is_late", [False, True], ids=["listing", "file"])
def test_refusals(hub: Hub, status: int, code: str | None, token: str | None, reason: str, is_late: bool) -> None:
    refusal = (status, {} if code is None else {"X-Error-Code": code})
    watcher = _Refusing(hub, refusal) if is_late else Watcher()
    hub.refusals = [] if is_late else [refusal]
    with pytest.raises(StartupError, match=reason):
        fetch(hub, token=token, watcher=watcher)


class _Refusing(Watcher):
    """Has the hub refuse as soon as the first file is wanted."""

    def __init__(self, hub: Hub, refusal: tuple[int, dict[str, str]]) -> None:
        super().__init__()
        self._hub, self._refusal = hub, refusal

    def say(self, line: str) -> None:
        self._hub.refusals = [self._refusal]


def test_an_unknown_revision(hub: Hub, cache: Path) -> None:
    assert refused(hub, f"{NAME}@v9") == f"model 'owner/tiny' has no revision 'v9' on {hub.endpoint}"
    assert not cache.exists()


def test_a_token_opens_what_is_gated_and_stays_with_the_hub(hub: Hub) -> None:
    hub.token = "hf_secret"
    assert "HF_TOKEN" in refused(hub)
    assert "hf_wrong" not in refused(hub, token="hf_wrong")
    hub.asked = []
    assert fetch(hub, token="hf_secret").read_bytes() == GGUF
    assert {(each.host.partition(":")[0], each.token) for each in hub.asked} == {
        ("127.0.0.1", "Bearer hf_secret"),
        ("localhost", None),
    }


@pytest.mark.parametrize(
    "path",
    ["../../outside.gguf", "/outside.gguf", "a/../../b.gguf", "a\\b.gguf", "a//b.gguf", "./a.gguf", "a\n.gguf", ""],
)
def test_names_that_lead_outside(hub: Hub, tmp_path: Path, path: str) -> None:
    hub.listing = {
        "sha": COMMIT,
        "siblings": [describe("tiny.gguf", GGUF), {**describe("a.gguf", GGUF), "rfilename": path}],
    }
    assert "is no name of a file in a repository" in refused(hub)
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(
    "listing",
    [
        b"<html>",
        b"[" * 100_000,
        {},
        {"sha": COMMIT, "siblings": [None]},
        {"sha": COMMIT, "siblings": [{"rfilename": 5}]},
        {"sha": "../../x", "siblings": []},
        {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "lfs": {"size": 1, "sha256": "../../../x"}}]},
        {"sha": COMMIT, "siblings": [{"rfilename": "a.json", "size": 1, "blobId": "a" * 39 + "/"}]},
        {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "lfs": {"size": -1, "sha256": "a" * 64}}]},
        {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "lfs": {"size": True, "sha256": "a" * 64}}]},
        {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "lfs": {"size": 1e300, "sha256": "a" * 64}}]},
    ],
)
def test_listings_that_are_none(hub: Hub, tmp_path: Path, listing: object) -> None:
    hub.listing = listing
    assert refused(hub).startswith(f"{hub.endpoint} answered with no list of files: ")
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("size", [1 << 70, 1 << 50])
def test_a_full_disk_is_noticed_before_the_first_byte(hub: Hub, cache: Path, size: int) -> None:
    hub.listing = {"sha": COMMIT, "siblings": [{"rfilename": "a.gguf", "lfs": {"size": size, "sha256": "a" * 64}}]}
    assert "free: make room, or set HF_HOME" in refused(hub)
    assert hub.paths == [] and not cache.exists()


def test_what_is_there_already_needs_no_space(cache: Path) -> None:
    here, begun, missing, twice = (RemoteFile(f"{mark}.gguf", 100, mark * 64) for mark in "abcc")
    folder = cache / "x" / "blobs"
    folder.mkdir(parents=True)
    (folder / here.digest).write_bytes(bytes(100))
    (folder / f"{begun.digest}.incomplete").write_bytes(bytes(30))
    watcher = Watcher()
    blobs = Blobs(cache, "x", lambda num_bytes: None, watcher.say)
    assert blobs.num_missing_bytes((here, begun, missing, twice)) == 70 + 100


@pytest.mark.parametrize(
    ("location", "reason"),
    [("file:///etc/passwd", "answers 302"), ("ftp://127.0.0.1/x", "http on to ftp, which is not")],
)
def test_redirects_lead_to_no_other_protocol(hub: Hub, location: str, reason: str) -> None:
    hub.elsewhere = location
    assert reason in refused(hub)


def test_where_files_are_stored_a_refusal_may_pass(hub: Hub) -> None:
    class Late(Watcher):
        def say(self, line: str) -> None:
            moved = (302, {"Location": f"http://localhost:{hub.port}/stored/{NAME}/tiny-Q8_0.gguf"})
            hub.refusals = [moved, (403, {})]

    assert fetch(hub, watcher=Late()).read_bytes() == GGUF


def test_names_of_all_peoples_are_fine(hub: Hub) -> None:
    hub.repositories[NAME] |= {"Bildschirmfoto\u202f1 \u00e4.png": b"x", "a:b?.txt": b"y"}
    assert fetch(hub).read_bytes() == GGUF


def test_redirects_in_a_circle_end(hub: Hub) -> None:
    hub.elsewhere = f"{hub.endpoint}/{NAME}/resolve/{COMMIT}/tiny-Q8_0.gguf"
    assert "answers 302" in refused(hub)


def test_a_certificate_has_to_be_trusted(tls_hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "certificate is not trusted (self-signed certificate): SSL_CERT_FILE" in refused(tls_hub)
    assert tls_hub.asked == []
    monkeypatch.setenv("SSL_CERT_FILE", str(cache.parent / "cert.pem"))
    assert fetch(tls_hub).read_bytes() == GGUF


def test_the_systems_own_certificates_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """On macOS the Python of python.org has none by itself: downloads would fail before the first byte."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert isinstance(_certificates(), truststore.SSLContext)


def test_redirects_do_not_leave_tls(tls_hub: Hub, hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(cache.parent / "cert.pem"))
    tls_hub.elsewhere = f"{hub.endpoint}/stored/{NAME}/tiny-Q8_0.gguf"
    assert refused(tls_hub) == "127.0.0.1 sends https on to http, which is not safe"
    assert hub.asked == []


@pytest.mark.parametrize("name", ["tiny", "path/to/tiny.gguf", "../x"])
def test_pull_wants_a_name_on_the_hub(cache: Path, name: str) -> None:
    with pytest.raises(StartupError, match="is no name on Hugging Face: pie pull owner/model"):
        pull(Config(model=name), Watcher())


@pytest.mark.parametrize("endpoint", ["huggingface.co", "ftp://x", "file:///x", "http://"])
def test_an_endpoint_that_is_none(cache: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(StartupError, match=r"HF_ENDPOINT .* should be an address"):
        pull(Config(model=NAME), Watcher())


def test_where_the_token_is_found(hub: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    hub.token = "hf_from_file"
    (cache.parent / "token").write_text("hf_from_file\n")
    pull(Config(model=NAME), Watcher())
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    with pytest.raises(StartupError, match="gated"):
        pull(Config(model=NAME), Watcher())
    monkeypatch.setenv("HF_TOKEN", "hf_ö")
    with pytest.raises(StartupError, match="characters that no token has"):
        pull(Config(model=NAME), Watcher())


def test_a_proxy_is_used(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub plays the proxy too: it sees whole addresses of a host that does not exist."""
    monkeypatch.setenv("http_proxy", hub.endpoint)
    hub.elsewhere = f"http://files.invalid/stored/{NAME}/tiny-Q8_0.gguf"
    path = pull(Config(model=NAME), Watcher(), lambda: Client("http://hub.invalid", pause_s=0.0)).path
    assert path.read_bytes() == GGUF
    assert {each.host for each in hub.asked} == {"hub.invalid", "files.invalid"}
