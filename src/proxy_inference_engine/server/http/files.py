"""As many open files as there may be connections: shells allow 1,024 at first, and one more than that waits unseen."""

import logging

from proxy_inference_engine.server.http.connections import MAX_CONNECTIONS

try:
    import resource
except ImportError:  # on Windows, which has no such limit
    resource = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)
_OTHER_FILES = 256  # weights, the store, images being fetched
WANTED_FILES = MAX_CONNECTIONS + _OTHER_FILES


def allow_files() -> None:
    """Raise this process's own limit, up to what its user may have."""
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= WANTED_FILES:
        return
    most = WANTED_FILES if hard == resource.RLIM_INFINITY else min(hard, WANTED_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    if most < WANTED_FILES:
        _log.warning("only %d files may be open: many connections at once would be kept waiting", most)
