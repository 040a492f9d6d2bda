"""`pie models`: what lies on this machine, and what of it the running server has loaded."""

import json
from typing import Any

from proxy_inference_engine.cli.choices import fitting, gpu_bytes, program, unused_gpu
from proxy_inference_engine.cli.remote.running_server import ListedModel, RunningServer, find_server
from proxy_inference_engine.cli.shelf.inventory import StockedModel, inventory, unfinished
from proxy_inference_engine.cli.terminal import paint, table
from proxy_inference_engine.config import Config, available_memory
from proxy_inference_engine.config.sizes import format_size


def models(config: Config, *, as_json: bool = False) -> int:
    stocked, server = inventory(config), find_server(config)
    if as_json:
        print(json.dumps([_document(each, _served(each, server)) for each in stocked]))
        return 0
    if stocked:
        rows = [("NAME", "SIZE", "KIND", "FROM", "STATE")]
        rows += [
            (each.name, format_size(each.num_bytes), each.file.kind, each.origin, _state(each, server))
            for each in stocked
        ]
        print(table(rows, numbers=frozenset({1}), spare=(3, 2)))
    else:
        print("There is no model here yet.\n")
        print("\n".join(fitting(available_memory(), gpu_bytes(config), has_unused_gpu=unused_gpu())))
    for name in unfinished():
        print(paint(f"{name} is not whole: `{program()} pull {name}` goes on with it", "yellow"))
    return 0


def _served(stocked: StockedModel, server: RunningServer | None) -> ListedModel | None:
    if server is None:
        return None
    names = (stocked.name, stocked.file.name)
    return next((model for model in server.models if model.id in names), None)


def _state(stocked: StockedModel, server: RunningServer | None) -> str:
    served = _served(stocked, server)
    return "" if served is None else served.state


def _document(stocked: StockedModel, served: ListedModel | None) -> dict[str, Any]:
    return {
        "name": stocked.name,
        "path": str(stocked.file.path),
        "kind": stocked.file.kind,
        "origin": stocked.origin,
        "bytes": stocked.num_bytes,
        "state": None if served is None else served.state,
    }
