"""What Python's collector of objects that hold each other has to look at, and memory that goes back to the system."""

import ctypes
import gc


def set_apart() -> None:
    """What is there now is no garbage: the collector passes it over.

    It stops every thread while it looks, and all that a server has at its start takes longer than a stream should wait.
    """
    gc.collect()
    gc.freeze()


def give_back() -> None:
    """Hand memory that nobody uses any more to the system, after a model has gone."""
    was_apart = gc.get_freeze_count() > 0
    gc.unfreeze()
    gc.collect()  # some objects hold each other, and with them what the library allocated
    if was_apart:
        gc.freeze()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps what was freed, in case it is wanted again
    if trim is not None:
        trim(0)
