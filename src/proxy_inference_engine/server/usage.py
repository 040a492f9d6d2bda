"""Keeps what each key has used: what is new is added to the store about once a minute, when asked, and at the end.

What was used since then is lost when the process is killed.
"""

import logging
from collections.abc import MutableMapping
from dataclasses import replace

from proxy_inference_engine.errors import StoreError
from proxy_inference_engine.store import KeyUsage, Store

_logger = logging.getLogger(__name__)


class UsageKeeper:
    """Call it in the event loop."""

    def __init__(self, by_key: MutableMapping[str, KeyUsage], store: Store) -> None:
        """`by_key`: since the start, counted on by others."""
        self.by_key = by_key
        self._store = store
        self._saved: dict[str, KeyUsage] = {}

    async def save(self) -> None:
        """Raises StoreError; then it is added the next time."""
        before = self._saved
        self._saved = {key: replace(usage) for key, usage in self.by_key.items()}
        news = {key: usage - before.get(key, KeyUsage()) for key, usage in self._saved.items()}
        news = {key: usage for key, usage in news.items() if usage != KeyUsage()}
        if not news:
            return
        try:
            await self._store.add_usage(news)
        except BaseException:
            for key, usage in news.items():
                self._saved[key] -= usage
            raise

    async def try_to_save(self) -> None:
        try:
            await self.save()
        except StoreError as error:
            _logger.warning("what keys have used was not stored: %s", error.message)

    async def totals(self) -> dict[str, KeyUsage]:
        """What each key has used so far, on all servers that share the store. Raises StoreError."""
        await self.save()
        return await self._store.usage()
