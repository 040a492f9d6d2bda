"""`pie fit owner/model`: memory, context and slots on this machine, before a byte of the weights is downloaded."""

import json
from dataclasses import asdict

from proxy_inference_engine.cli.choices import gpu_bytes, program
from proxy_inference_engine.cli.terminal import paint
from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import fit as fitting


def fit(config: Config, *, model: str | None = None, as_json: bool = False) -> int:
    """0 where it fits, 1 where it does not. Raises StartupError where it cannot be found or read."""
    config = config.model_copy(update={"model": model or config.model})
    if config.model is None:
        raise StartupError("which model? pie fit owner/model")
    num_gpu_bytes = gpu_bytes(config)
    found = fitting.fit(config, room_bytes=num_gpu_bytes or None)
    if as_json:
        print(json.dumps(asdict(found)))
        return 0 if found.fits else 1
    verdict = paint("fits", "green") if found.fits else paint("does not fit", "red")
    print(f"{paint(found.name, 'bold')} {verdict}: {found.why}.")
    room = "on the GPU" if num_gpu_bytes else "in memory"
    rows = [("weights", format_size(found.weights)), ("memory", f"{format_size(found.memory)}, all in all")]
    rows.append(("free", f"{format_size(found.room)} {room}"))
    if found.fits:
        rows.append(("context", f"{found.context:,} of {found.known_context:,} tokens"))
        rows.append(("slots", f"{found.slots} answers at a time"))
    rows.append(("download", format_size(found.download) if found.download else "none, it is here"))
    for title, text in rows:
        print(f"  {title:<10}{text}")
    if found.fits:
        print(f"\n  {program()} serve --model {config.model}")
    return 0 if found.fits else 1
