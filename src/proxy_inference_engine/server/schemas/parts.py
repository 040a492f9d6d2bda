"""What the contents of messages have in common in every API: a text or a list of parts, some of which nothing reads."""

from collections.abc import Collection

from pydantic import BeforeValidator, Discriminator

from proxy_inference_engine.server.schemas.base import unsupported

MAX_PARTS = 1024


def text_or(tag: str) -> Discriminator:
    """Tells a list, which has this tag, from a text, whose tag is `<string>`."""
    return Discriminator(lambda value: tag if isinstance(value, list) else "<string>")


def without(kinds: Collection[str], reason: str | None = None) -> BeforeValidator:
    """Refuses parts of types that the API has and no version here reads; `{kind}` in the reason is the type."""

    def check(value: object) -> object:
        kind = value.get("type") if isinstance(value, dict) else None
        if isinstance(kind, str) and kind in kinds:
            raise unsupported() if reason is None else unsupported(reason.format(kind=repr(kind)))
        return value

    return BeforeValidator(check)
