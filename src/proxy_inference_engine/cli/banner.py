"""What `pie serve` says once it is ready."""

import json
import shlex
from dataclasses import dataclass

from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.runners.base import Lane


@dataclass(frozen=True, slots=True)
class Banner:
    """The facts a user wants after the start."""

    model: str
    description: str
    context_tokens: int
    lanes: tuple[Lane, ...]
    kv_bytes_per_token: int
    cache_bytes: int
    url: str
    has_keys: bool

    def render(self) -> str:
        return "\n".join(
            (
                "",
                f"  model    {self.model}" + (f" ({self.description})" if self.description else ""),
                f"  context  {self.context_tokens:,} tokens",
                f"  slots    {self._slots()}",
                f"  memory   {self._memory()}",
                f"  address  {self.url}/v1" + (" (needs an API key)" if self.has_keys else ""),
                "",
                "Try it:",
                f"  {self._curl()}",
                "",
                "Ctrl-C stops the server.",
            )
        )

    def _slots(self) -> str:
        """The wide lane, then how many longer sequences beside it."""
        wide, *long = self.lanes
        text = f"{wide.num_slots} sequences of {wide.slot_tokens:,} tokens at a time"
        return f"{text}, {len(long)} longer ones on demand" if long else text

    def _memory(self) -> str:
        kv_bytes = sum(lane.num_slots * lane.slot_tokens for lane in self.lanes) * self.kv_bytes_per_token
        cache = f"{format_size(self.cache_bytes)} for the prefix cache" if self.cache_bytes else "no prefix cache"
        return f"{format_size(kv_bytes)} for running sequences, {cache}"

    def _curl(self) -> str:
        question = {
            "model": self.model,
            "messages": [{"role": "user", "content": "What is the capital of France? Answer briefly."}],
        }
        key = ' -H "Authorization: Bearer $KEY"' if self.has_keys else ""
        body = shlex.quote(json.dumps(question))
        return f"curl {self.url}/v1/chat/completions -H 'Content-Type: application/json'{key} -d {body}"


def url(host: str, port: int) -> str:
    """An address that works from this machine."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
