"""`pie rm NAME`: delete a model that was downloaded. Files that a person put somewhere are not ours to delete."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from proxy_inference_engine.cli.remote.running_server import find_server
from proxy_inference_engine.cli.shelf.inventory import inventory
from proxy_inference_engine.cli.terminal import agrees
from proxy_inference_engine.config import Config
from proxy_inference_engine.config.sizes import format_size
from proxy_inference_engine.errors import StartupError
from proxy_inference_engine.models import hub
from proxy_inference_engine.models.resolve import BUNDLED_WORD, models_among, parts_of, resolve


def rm(config: Config, *, model: str, is_sure: bool = False) -> int:
    """Asks before, unless it is told not to. Raises StartupError."""
    doomed = _doomed(config, model)
    _check_unused(config, doomed)
    num_bytes = sum(path.stat().st_size for path in _files(doomed) if not path.is_symlink())
    if not is_sure and not agrees(f"Delete {model}, {format_size(num_bytes)}?"):
        print("Nothing was deleted.")
        return 1
    for path in doomed:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    print(f"Deleted {model}, {format_size(num_bytes)}.")
    return 0


def _doomed(config: Config, model: str) -> list[Path]:
    """The folder of a repository, or the files of one GGUF model among several in it."""
    if model == BUNDLED_WORD:
        folder = config.cache_dir / BUNDLED_WORD
        if not folder.is_dir():
            raise StartupError("the bundled model is part of the installation, and is not deleted")
        return [folder]
    name = hub.parse_name(model)
    if name is None and Path(model).expanduser().exists():
        raise StartupError(f"{model!r} was not downloaded by us: delete the file yourself")
    if name is None:
        raise StartupError(f"there is no model {model!r}; `pie models` lists what is here")
    repository = hub.cache_folder() / hub.folder_name(name)
    if not repository.is_dir():
        raise StartupError(f"model {model!r} is not in the Hugging Face cache; `pie models` lists what is")
    others = models_among((repository / "snapshots").rglob("*.gguf"))
    if name.file is None or len(others) < 2:
        return [repository]
    links = parts_of(resolve(model, config.cache_dir).path)
    return [*links, *(link.resolve() for link in links if link.is_symlink())]


def _check_unused(config: Config, doomed: list[Path]) -> None:
    """A server that was started with one model has it under the name of its file."""
    server = find_server(config)
    if server is None:
        return
    going = [each for each in inventory(config) if any(each.file.path.is_relative_to(path) for path in doomed)]
    names = {name for each in going for name in (each.name, each.file.name)}
    for each in server.models:
        if each.id in names and each.state != "unloaded":
            raise StartupError(f"the server at {server.url} has {each.id} loaded: `pie stop {each.id}` first")


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        yield from (below for below in path.rglob("*") if below.is_file()) if path.is_dir() else (path,)
