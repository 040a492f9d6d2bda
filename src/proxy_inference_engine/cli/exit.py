"""The end of the program, also where a model is still being loaded."""

import contextlib
import logging
import os
import sys
import threading


def leave(code: int) -> int:
    """The code, for whoever ends the program with it; or its end at once.

    The library crashes when the program ends under a thread that computes, and a load that hangs does not end.
    """
    if any(thread.name == "engine" for thread in threading.enumerate()):
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, OSError, ValueError):  # closed, or never there
                stream.flush()
        os._exit(code)
    return code
