"""Turns of a conversation, as short as tests want to write and read them."""

from types import MappingProxyType

from proxy_inference_engine.interaction import Content, Interaction, Role, ToolCall


def user(text: str) -> Interaction:
    return Interaction.of(Role.USER, text)


def said(text: str) -> Interaction:
    return Interaction.of(Role.ASSISTANT, text)


def call(id_: str) -> Interaction:
    return Interaction(Role.ASSISTANT, (), MappingProxyType({"tool_calls": (ToolCall(id_, "f", "{}"),)}))


def result(id_: str) -> Interaction:
    metadata = MappingProxyType({"tool_call_id": id_, "name": "f"})
    return Interaction(Role.TOOL, (Content.of(f"of {id_}"),), metadata)


def written(turn: Interaction) -> str:
    """Role, text, and in brackets what was thought and called."""
    thoughts = turn.metadata.get("reasoning_content")
    calls = [one.id for one in turn.metadata.get("tool_calls", ())]
    parts = [turn.role.value, turn.text, f"({thoughts})" if thoughts else "", f"[{','.join(calls)}]" if calls else ""]
    return " ".join(part for part in parts if part)
