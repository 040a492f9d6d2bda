"""What outlives a request: responses, conversations and chat completions in SQLite."""

from proxy_inference_engine.store.objects import item_too_large, too_large
from proxy_inference_engine.store.record import (
    NUM_EARLIER,
    ItemPage,
    Items,
    Kind,
    Link,
    Order,
    Page,
    Past,
    Record,
    StoreLimits,
)
from proxy_inference_engine.store.store import Store

__all__ = [
    "NUM_EARLIER",
    "ItemPage",
    "Items",
    "Kind",
    "Link",
    "Order",
    "Page",
    "Past",
    "Record",
    "Store",
    "StoreLimits",
    "item_too_large",
    "too_large",
]
