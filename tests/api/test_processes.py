"""`pie serve --processes 2` before a far engine: real processes on one port, watched by a third."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.far import FarSide, far_side
from tests.polling import HANG_S, wait_until
from tests.tiny.vocabulary import NUM_TOKENS, write_byte_tokenizer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several processes on one port need POSIX")

HELLO = [{"role": "user", "content": "Hello"}]
CHAT = {"model": "default", "messages": HELLO, "max_tokens": 8, "seed": 1}
COMMAND = "from proxy_inference_engine.cli.main import main; import sys; sys.exit(main())"
# Whoever does nothing but die is given up after the second time, not the fifth.
SOON = "import proxy_inference_engine.cli.fronts as fronts; fronts._MAX_DEATHS = 2; " + COMMAND


@dataclass
class Serving:
    """The watcher, what it and the front ends log, and the address."""

    process: "subprocess.Popen[str]"
    far: FarSide
    lines: list[str] = field(default_factory=list)
    url: str = ""
    num_asked: int = 0

    readers: list[threading.Thread] = field(default_factory=list)

    def read(self) -> None:
        for read in (self._read_log, self._read_address):
            self.readers.append(threading.Thread(target=read))
            self.readers[-1].start()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            self.lines.extend(stderr)

    def _read_address(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            for line in stdout:
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    self.url = found[0]

    @property
    def log(self) -> str:
        return "".join(list(self.lines))

    def pids(self, number: int) -> list[int]:
        """Of one front end, the latest last."""
        return [int(pid) for pid in re.findall(rf"front end {number} started pid=(\d+)", self.log)]

    def ask(self, **fields: Any) -> httpx.Response:
        """On a connection of its own, so that any of them may answer."""
        self.num_asked += 1
        with self.http() as http:
            return http.post("/v1/chat/completions", json={**CHAT, **fields})

    def http(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=HANG_S, verify=False)  # certificates take their time to read

    def ask_both(self) -> None:
        """Chats until both have answered one since now."""
        before = len(self.lines)

        def has_both() -> bool:
            with contextlib.suppress(httpx.TransportError):  # one may be dead, and not yet known to be
                assert self.ask().status_code == 200
            return set(re.findall(r"process=(\d+) .*chat/completions", "".join(self.lines[before:]))) == {"1", "2"}

        wait_until(has_both)


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("words")
    write_byte_tokenizer(folder)
    config = {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": NUM_TOKENS}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@contextlib.contextmanager
def serving(folder: Path, words: Path, far: FarSide, *, command: str = COMMAND) -> Iterator[Serving]:
    settings = f'model = "{words}"\nengine = "vllm"\nurl = "{far.url}"\nport = 0\nprocesses = 2\ndrain_seconds = 30\n'
    (folder / "pie.toml").write_text(settings)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIE_")}
    process = subprocess.Popen(
        [sys.executable, "-c", command, "serve"],
        cwd=folder,
        env={**kept, "PIE_DATA_DIR": str(folder / "data"), "PIE_CACHE_DIR": str(folder / "cache")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    served = Serving(process, far)
    served.read()
    try:
        wait_until(lambda: served.url and len(re.findall("front end . started", served.log)) == 2)
        yield served
    finally:
        process.kill()  # the front ends end with it
        process.wait()
        for reader in served.readers:
            reader.join(HANG_S)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, words: Path) -> Iterator[Serving]:
    with far_side() as far, serving(tmp_path_factory.mktemp("shared"), words, far) as served:
        yield served


def test_both_answer_and_metrics_are_those_of_both(shared: Serving) -> None:
    shared.ask_both()
    assert len({shared.pids(1)[0], shared.pids(2)[0], shared.process.pid}) == 3

    def counted() -> dict[str, float]:
        with shared.http() as http:
            text = http.get("/metrics").text
        assert len(re.findall("^# TYPE pie_http_requests_total counter$", text, re.MULTILINE)) == 1
        route = 'route="/v1/chat/completions",status="200"'
        found = re.findall(rf'^pie_http_requests_total{{process="(\d)",{route}}} (\S+)$', text, re.MULTILINE)
        return {number: float(value) for number, value in found}

    wait_until(lambda: sum(counted().values()) == shared.num_asked and len(counted()) == 2)


def process_of(shared: Serving, answer: httpx.Response) -> str:
    pattern = rf"process=(\d+) .*{re.escape(answer.headers['x-request-id'])}"
    wait_until(lambda: re.search(pattern, shared.log))
    found = re.search(pattern, shared.log)
    assert found is not None
    return found[1]


def test_a_response_in_the_background_is_followed_at_the_other_process(shared: Serving) -> None:
    body = {"model": "default", "input": "Hello", "background": True, "max_output_tokens": 20}
    with shared.http() as http:
        made = http.post("/v1/responses", json=body)
    id_, maker = made.json()["id"], process_of(shared, made)
    seen: dict[str, str] = {}
    while len(seen) < 2:
        with shared.http() as http:
            answer = http.get(f"/v1/responses/{id_}", params={"stream": "true"})
        seen[process_of(shared, answer)] = answer.text
    other = ({"1", "2"} - {maker}).pop()
    assert "response.incomplete" in seen[other] and seen[other] == seen[maker]


def test_settings_are_read_again_by_all(shared: Serving, words: Path, tmp_path: Path) -> None:
    """By whichever way it is asked, also by one that is started again after that."""
    folder = Path(f"/proc/{shared.process.pid}/cwd") if Path("/proc").is_dir() else None
    if folder is None:
        pytest.skip("the folder of a process is not told here")
    settings = folder / "pie.toml"

    def add(name: str) -> None:
        url = re.search('url = "(.*)"', settings.read_text())
        assert url is not None
        table = f'[models.{name}]\nengine = "vllm"\nurl = "{url[1]}"\nmodel = "{words}"\n'
        settings.write_text(settings.read_text() + table)

    def wait_for(name: str) -> None:
        wait_until(lambda: len(set(re.findall(rf"process=(\d) added={name}", shared.log))) == 2)

    add("more")
    shared.process.send_signal(signal.SIGHUP)
    wait_for("more")
    add("most")
    with shared.http() as http:
        reloaded = http.post("/admin/reload")
    assert reloaded.json()["added"] == ["most"]
    wait_for("most")
    before = len(shared.lines)
    os.kill(shared.pids(1)[-1], signal.SIGKILL)
    wait_until(lambda: re.search(r"process=1 added=more,most", "".join(shared.lines[before:])))


def test_one_that_is_killed_under_load_is_started_again(shared: Serving) -> None:
    is_over = threading.Event()

    def load() -> list[int]:
        statuses = []
        while not is_over.is_set():
            try:
                statuses.append(shared.ask().status_code)
            except httpx.HTTPError:  # the connection of one that was killed
                statuses.append(0)
        return statuses

    with ThreadPoolExecutor(4) as crowd:
        loads = [crowd.submit(load) for _ in range(4)]
        try:
            shared.ask_both()
            before = shared.pids(2)
            os.kill(before[-1], signal.SIGKILL)
            wait_until(lambda: len(shared.pids(2)) > len(before))
            shared.ask_both()
        finally:
            is_over.set()
        statuses = [status for each in loads for status in each.result(HANG_S)]
    assert set(statuses) <= {0, 200} and statuses.count(0) <= len(loads) and statuses.count(200) > len(loads)
    assert "front end 2 died (SIGKILL): it is started again in 0 s" in shared.log


def test_what_one_made_in_the_background_fails_when_it_is_killed(shared: Serving) -> None:
    body = {"model": "default", "input": "Hello", "background": True, "max_output_tokens": 20}
    shared.far.pauses_after = 4
    try:
        with shared.http() as http:
            made = http.post("/v1/responses", json=body)
            wait_until(lambda: shared.far.num_paused == 1)
        os.kill(shared.pids(int(process_of(shared, made)))[-1], signal.SIGKILL)
    finally:
        shared.far.pauses_after = None
        shared.far.is_released.set()

    def status() -> str | None:
        try:
            with shared.http() as http:
                return str(http.get(f"/v1/responses/{made.json()['id']}").json()["status"])
        except httpx.TransportError:  # the dead one's
            return None

    wait_until(lambda: status() == "failed")


def test_sigterm_lets_all_of_them_finish(tmp_path: Path, words: Path) -> None:
    with far_side() as far, serving(tmp_path, words, far) as served:
        served.ask_both()
        far.pauses_after = 4
        with ThreadPoolExecutor(8) as crowd:
            asked = [crowd.submit(served.ask, stream=True) for _ in range(8)]
            wait_until(lambda: far.num_paused == 8)
            served.process.send_signal(signal.SIGTERM)
            wait_until(lambda: refuses(served.url))
            far.is_released.set()
            for each in asked:
                answer = each.result(HANG_S)
                assert answer.status_code == 200 and answer.text.endswith("data: [DONE]\n\n")
                assert re.search('"finish_reason":"(length|stop)"', answer.text)
        assert served.process.wait(HANG_S) == 0
        assert {f"front end {number} ended" in served.log for number in (1, 2)} == {True}


def refuses(url: str) -> bool:
    try:
        httpx.get(f"{url}/health", timeout=HANG_S, verify=False)
    except httpx.ConnectError:
        return True
    except httpx.HTTPError:  # it was let in just before
        return False
    return False


def test_they_end_with_a_watcher_that_is_killed(tmp_path: Path, words: Path) -> None:
    with far_side() as far, serving(tmp_path, words, far) as served:
        served.ask_both()
        served.process.kill()
        served.process.wait(HANG_S)
        wait_until(lambda: refuses(served.url))


def test_one_that_does_nothing_but_die_ends_all(tmp_path: Path, words: Path) -> None:
    with far_side() as far, serving(tmp_path, words, far, command=SOON) as served:
        served.ask_both()
        for number in range(2):
            wait_until(lambda number=number: len(served.pids(2)) > number)  # type: ignore[misc]  # each its own
            os.kill(served.pids(2)[-1], signal.SIGKILL)
        assert served.process.wait(HANG_S) == 1
        assert "front end 2 died (SIGKILL), for the 2th time in a minute: all end" in served.log
        assert refuses(served.url)


def test_a_model_in_this_process_is_refused_by_name(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMMAND, "serve", "--processes", "2", "--port", "0", "--offline"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIE_")}
    refused = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, timeout=HANG_S)
    (line,) = [line for line in refused.stderr.splitlines() if "front end" not in line]
    assert refused.returncode == 1 and line.startswith("pie: processes = 2 is for models that vLLM computes: ")
    assert "smollm2" in line.lower()
