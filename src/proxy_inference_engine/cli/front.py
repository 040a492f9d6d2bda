"""One of several front ends on one port, from inside: it is told what to do, answers, ends with its watcher."""

import contextlib
import os
import pickle
import signal
import socket
import sys
import threading

from proxy_inference_engine import log
from proxy_inference_engine.cli.fronts import READY, SPREAD, FrontTask
from proxy_inference_engine.cli.main import complaining
from proxy_inference_engine.cli.serve import FrontPlace, serve_on


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    with channel.makefile("rb") as file:
        task: FrontTask = pickle.load(file)
    threading.Thread(target=_watch, args=(channel,), name="watcher", daemon=True).start()
    log.configure(task.config.log_level, process=task.number)
    sys.exit(complaining(lambda: _serve(task, channel)))


def _serve(task: FrontTask, channel: socket.socket) -> int:
    from proxy_inference_engine.server.neighbours import Neighbours

    def say(what: bytes) -> None:
        with contextlib.suppress(OSError):  # nobody listens any more
            channel.sendall(what)

    neighbours = Neighbours(task.folder, task.number, spread=lambda: say(SPREAD))
    place = FrontPlace(
        socket.socket(fileno=task.socket),
        is_greeting=task.is_greeting,
        neighbours=neighbours,
        on_start=lambda: say(READY),
    )
    return serve_on(task.config, task.read, place)


def _watch(channel: socket.socket) -> None:
    """Nobody would end a front end whose watcher was killed."""
    channel.recv(1)
    os.kill(os.getpid(), signal.SIGTERM)
