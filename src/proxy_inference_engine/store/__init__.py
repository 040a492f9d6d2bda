"""What outlives a request: responses, conversations, chats and batches, in SQLite or PostgreSQL; and files."""

from proxy_inference_engine.store.files import FileFolder, FileLimits, NewFile
from proxy_inference_engine.store.objects import item_too_large, too_large
from proxy_inference_engine.store.orphans import UNFINISHED
from proxy_inference_engine.store.record import (
    NUM_EARLIER,
    ItemPage,
    Items,
    Link,
    ObjectKind,
    Order,
    Page,
    Past,
    Record,
    StoreLimits,
)
from proxy_inference_engine.store.said import NewFrames, ResponseId
from proxy_inference_engine.store.store import Store
from proxy_inference_engine.store.usage import KeyUsage

__all__ = [
    "NUM_EARLIER",
    "UNFINISHED",
    "FileFolder",
    "FileLimits",
    "ItemPage",
    "Items",
    "KeyUsage",
    "Link",
    "NewFile",
    "NewFrames",
    "ObjectKind",
    "Order",
    "Page",
    "Past",
    "Record",
    "ResponseId",
    "Store",
    "StoreLimits",
    "item_too_large",
    "too_large",
]
