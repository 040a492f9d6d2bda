"""Who speaks in an interaction."""

from enum import StrEnum

from proxy_inference_engine.errors import InvalidRequest


class Role(StrEnum):
    SYSTEM = "system"
    DEVELOPER = "developer"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"

    @classmethod
    def parse(cls, name: str) -> "Role":
        """Read a role as clients write it: `agent` is the assistant, `function` is a tool."""
        try:
            return _ALIASES.get(name) or cls(name)
        except ValueError:
            known = ", ".join(role.value for role in cls)
            raise InvalidRequest(f"unknown role {name[:64]!r}; use one of {known}", param="role") from None


_ALIASES = {"agent": Role.ASSISTANT, "function": Role.TOOL}
