"""What images may touch: no file of this machine is read or written for one, and no connection made for a URL that is
refused. Seen by an audit hook, in a process of its own: one cannot be taken away again.
"""

import subprocess
import sys

from tests.images import data_url, plain, red
from tests.unit.images.test_fetcher import D1, D5

PROGRAM = """
import asyncio, sys
from proxy_inference_engine.images import Fetcher, ImageLimits, ImageLoader, ImageRefused

seen = []
FILES = {"open", "os.listdir", "os.scandir", "os.remove", "os.mkdir", "os.rename", "tempfile.mkstemp"}
OTHERS = {"socket.connect", "socket.getaddrinfo", "subprocess.Popen", "os.system"}

def watch(event, words):
    if event in FILES | OTHERS:
        seen.append((event, str(words[0])[:200] if words else ""))

async def load(loader, url):
    try:
        await loader.load([url])
        return "taken"
    except ImageRefused:
        return "refused"

async def main():
    loader = ImageLoader(ImageLimits(), Fetcher())
    for url in good:  # threads are started and libraries loaded before anybody looks
        await load(loader, url)
    sys.addaudithook(watch)
    outcomes = [await load(loader, url) for url in [*good, *bad]]
    return outcomes

good, bad = eval(sys.stdin.read())
print(repr((asyncio.run(main()), seen)))
"""


def outcome(good: list[str], bad: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=repr((good, bad)), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    found: tuple[list[str], list[tuple[str, str]]] = eval(done.stdout)
    return found


def test_no_file_and_no_host_is_touched() -> None:
    """D1 and D5: refused without a look at the disk or the network; and images leave no temporary files."""
    good = [red(), *(data_url(plain(64, 64, kind=kind)) for kind in ("JPEG", "GIF", "WEBP"))]
    bad = [*D1.split(), *D5, data_url(plain(64, 64)[:-40]), data_url(plain(4, 4, kind="TIFF")), "http://127.0.0.1:1/"]
    outcomes, seen = outcome(good, bad)
    assert outcomes == ["taken"] * len(good) + ["refused"] * len(bad)
    assert seen == []


def test_the_hook_sees_what_it_should() -> None:
    """An address is read like a name, which loads a part of Python itself; and it is not connected to."""
    outcomes, seen = outcome([red()], ["http://127.0.0.1/"])
    events = {event for event, _ in seen}
    assert outcomes[1] == "refused" and "socket.getaddrinfo" in events and "socket.connect" not in events
