"""Models by the names that Ollama's clients give them."""

from proxy_inference_engine.pool.pool import ModelPool

_LATEST = ":latest"  # the tag that its clients add where there is none


def known_name(models: ModelPool, name: str | None) -> str | None:
    """The name under which a model is served, or what the client said where there is none; None: nothing was said."""
    if not name:
        return None
    bare = name.removesuffix(_LATEST)
    return bare if models.get(name) is None and models.get(bare) is not None else name
