"""All the golden traffic, in groups: each is played against servers of its own and has a file of recordings."""

from collections.abc import Callable, Iterator

from tests.golden import (
    cases_admin,
    cases_batches,
    cases_chat,
    cases_chat_errors,
    cases_completions,
    cases_conversations,
    cases_http,
    cases_images,
    cases_lifecycle,
    cases_limits,
    cases_llama_cpp,
    cases_message_errors,
    cases_messages,
    cases_ollama,
    cases_reasoning,
    cases_response_errors,
    cases_responses,
    cases_rest,
    cases_stored_chats,
    cases_structured,
)
from tests.golden.case import Case

_CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "chat": cases_chat.cases,
    "chat_errors": cases_chat_errors.cases,
    "stored_chats": cases_stored_chats.cases,
    "structured": cases_structured.cases,
    "reasoning": cases_reasoning.cases,
    "completions": cases_completions.cases,
    "responses": cases_responses.cases,
    "response_errors": cases_response_errors.cases,
    "lifecycle": cases_lifecycle.cases,
    "conversations": cases_conversations.cases,
    "http": cases_http.cases,
    "images": cases_images.cases,
    "limits": cases_limits.cases,
    "llama_cpp": cases_llama_cpp.cases,
    "message_errors": cases_message_errors.cases,
    "messages": cases_messages.cases,
    "ollama": cases_ollama.cases,
    "rest": cases_rest.cases,
    "admin": cases_admin.cases,
    "batches": cases_batches.cases,
}
GROUPS: dict[str, list[Case]] = {name: list(cases()) for name, cases in _CASES.items()}
