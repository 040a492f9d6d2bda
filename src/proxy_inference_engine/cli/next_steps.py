"""`pie` alone: what a person can do next, by what is there: a server, a model, or nothing yet."""

from proxy_inference_engine import __version__
from proxy_inference_engine.cli.choices import fitting, gpu_bytes, program, unused_gpu
from proxy_inference_engine.cli.remote.running_server import RunningServer, find_server
from proxy_inference_engine.cli.shelf.inventory import StockedModel, inventory
from proxy_inference_engine.cli.terminal import fitted, paint
from proxy_inference_engine.config import Config, available_memory
from proxy_inference_engine.errors import StartupError

Advice = tuple[str, str]  # what to type, and what comes of it


def next_steps(config: Config) -> int:
    print(f"{paint('Proxy Inference Engine', 'bold')} {__version__}\n")
    try:
        server = find_server(config)
    except StartupError as error:
        print(f"{error.message}.\n")
        server = None
    stocked = inventory(config)
    if server is not None:
        _with_server(server)
    elif stocked:
        _with_models(stocked)
    else:
        _with_nothing(config)
    print("\n" + fitted(f"`{program()} --help` lists every command, `{program()} doctor` looks at this machine.", 0))
    return 0


def _with_server(server: RunningServer) -> None:
    model = server.model(None)
    more = f" and {len(server.models) - 1} more" if len(server.models) > 1 else ""
    print(f"A server runs at {paint(server.url, 'bold')} with {model.id}{more}.\n")
    _list(
        (f"{program()} chat", "talk with it"),
        (f'{program()} run "…"', "ask one question"),
        (server.url, "open it in a browser: a playground"),
        (f"{program()} launch claude", "use it from Claude Code; codex and opencode too"),
        (f"{program()} ps", "see what it is doing"),
        (f"{program()} bench", "measure it"),
        (f"{program()} stop", "end it"),
    )


def _with_models(stocked: list[StockedModel]) -> None:
    names = ", ".join(each.name for each in stocked[:3]) + (", …" if len(stocked) > 3 else "")
    flag = "" if stocked[0].origin == "bundled" else f" --model {stocked[0].name}"
    print(fitted(f"No server is running. {len(stocked)} model{'s' * (len(stocked) > 1)} here: {names}.", 0) + "\n")
    _list(
        (f"{program()} serve{flag}", "start the server for programs and browsers"),
        (f"{program()} chat{flag}", "talk with the model on this terminal"),
        (f'{program()} run "…"{flag}', "ask one question"),
        (f"{program()} models", "see which models are here"),
        (f"{program()} fit owner/model", "ask whether another would fit, before it is downloaded"),
    )


def _with_nothing(config: Config) -> None:
    print("There is no model here yet. The smallest to try with, 89 MiB:\n")
    _list((f"{program()} serve --model bundled", "downloads it once, and starts the server"))
    print("\n" + "\n".join(fitting(available_memory(), gpu_bytes(config), has_unused_gpu=unused_gpu())))


def _list(*steps: Advice) -> None:
    width = max(len(what) for what, _ in steps)
    for what, why in steps:
        print(f"  {paint(f'{what:<{width}}', 'blue')}  {fitted(why, width + 4)}")
