"""Every route in one line: what it does, what body it takes, what its query may say, whether it can stream."""

from typing import NamedTuple

from proxy_inference_engine.server.apis.admin.hub import PullRequest
from proxy_inference_engine.server.apis.batches.schema import BatchRequest
from proxy_inference_engine.server.apis.chat.schema import ChatRequest
from proxy_inference_engine.server.apis.completions.schema import CompletionRequest
from proxy_inference_engine.server.apis.embeddings.schema import EmbeddingRequest, RerankRequest
from proxy_inference_engine.server.apis.llama_cpp.schema import InfillRequest, NativeEmbeddingRequest, NativeRequest
from proxy_inference_engine.server.apis.messages.schema import CountRequest, MessageRequest
from proxy_inference_engine.server.apis.ollama.models import ModelBody, PullBody, ShowBody
from proxy_inference_engine.server.apis.ollama.schema import OllamaChat, OllamaEmbed, OllamaEmbeddings, OllamaGenerate
from proxy_inference_engine.server.apis.responses.conversations import NewConversation, NewItems
from proxy_inference_engine.server.apis.responses.schema import Conversing, ResponseRequest
from proxy_inference_engine.server.apis.schemas.schema import FormatCheck
from proxy_inference_engine.server.apis.shared.fields import RequestSchema
from proxy_inference_engine.server.apis.shared.pages import MetadataUpdate
from proxy_inference_engine.server.apis.tokens.schema import DetokenizeRequest, TemplateRequest, TokenizeRequest

PAGE = {"after": "The id of the last one on the page before.", "limit": "1 to 100; 20 where it is left out.",
        "order": "asc or desc, by time."}  # fmt: skip
INCLUDE = {"include": "Accepted as the format has it."}


class Operation(NamedTuple):
    summary: str
    tag: str
    body: type[RequestSchema] | None = None
    query: dict[str, str] = {}  # noqa: RUF012  # never changed
    streams: bool = False


def _of(tag: str, *rows: tuple[str, str, type[RequestSchema] | None, dict[str, str], bool]) -> dict[str, Operation]:
    return {route: Operation(summary, tag, body, query, streams) for route, summary, body, query, streams in rows}


_NO: dict[str, str] = {}
_STORED = {**PAGE, "model": "Only of this model.", "metadata[key]": "Only with this metadata."}
_FOLLOW = {"stream": "true: as a stream.", "starting_after": "Only events after this number.", **INCLUDE}

OPERATIONS: dict[str, Operation] = {
    **_of(
        "Chat completions",
        ("POST /v1/chat/completions", "Answer a conversation.", ChatRequest, _NO, True),
        ("GET /v1/chat/completions", "List stored chats.", None, _STORED, False),
        ("GET /v1/chat/completions/{completion_id}", "Read a stored chat.", None, _NO, False),
        ("POST /v1/chat/completions/{completion_id}", "Change a stored chat's metadata.", MetadataUpdate, _NO, False),
        ("DELETE /v1/chat/completions/{completion_id}", "Delete a stored chat.", None, _NO, False),
        ("GET /v1/chat/completions/{completion_id}/messages", "List what was asked.", None, PAGE, False),
        ("POST /chat/completions", "The same as /v1/chat/completions.", ChatRequest, _NO, True),
    ),
    **_of("Completions", ("POST /v1/completions", "Go on with a text.", CompletionRequest, _NO, True)),
    **_of(
        "Responses",
        ("POST /v1/responses", "Answer, and keep the answer.", ResponseRequest, _NO, True),
        ("POST /responses", "The same as /v1/responses.", ResponseRequest, _NO, True),
        ("POST /v1/responses/input_tokens", "Count the tokens of an input.", Conversing, _NO, False),
        ("POST /v1/responses/compact", "Shorten a conversation to what matters.", Conversing, _NO, False),
        ("GET /v1/responses/{response_id}", "Read a response, or follow it.", None, _FOLLOW, True),
        ("DELETE /v1/responses/{response_id}", "Delete a response.", None, _NO, False),
        ("POST /v1/responses/{response_id}/cancel", "Stop one in the background.", None, _NO, False),
        ("GET /v1/responses/{response_id}/input_items", "List what was asked.", None, {**PAGE, **INCLUDE}, False),
    ),
    **_of(
        "Conversations",
        ("POST /v1/conversations", "Begin a conversation.", NewConversation, _NO, False),
        ("GET /v1/conversations/{conversation_id}", "Read a conversation.", None, _NO, False),
        ("POST /v1/conversations/{conversation_id}", "Change its metadata.", MetadataUpdate, _NO, False),
        ("DELETE /v1/conversations/{conversation_id}", "Delete a conversation.", None, _NO, False),
        ("GET /v1/conversations/{conversation_id}/items", "List its items.", None, {**PAGE, **INCLUDE}, False),
        ("POST /v1/conversations/{conversation_id}/items", "Add items.", NewItems, INCLUDE, False),
        ("GET /v1/conversations/{conversation_id}/items/{item_id}", "Read an item.", None, INCLUDE, False),
        ("DELETE /v1/conversations/{conversation_id}/items/{item_id}", "Delete an item.", None, _NO, False),
    ),
    **_of(
        "Messages",
        ("POST /v1/messages", "Answer a conversation, in Anthropic's format.", MessageRequest, _NO, True),
        ("POST /v1/messages/count_tokens", "Count the tokens of a prompt.", CountRequest, _NO, False),
    ),
    **_of(
        "Files and batches",
        ("POST /v1/files", "Upload a file, as a form with purpose and file.", None, _NO, False),
        ("GET /v1/files", "List files.", None, {**PAGE, "purpose": "Only of this purpose."}, False),
        ("GET /v1/files/{file_id}", "What is known of a file.", None, _NO, False),
        ("DELETE /v1/files/{file_id}", "Delete a file.", None, _NO, False),
        ("GET /v1/files/{file_id}/content", "The bytes of a file.", None, _NO, False),
        ("POST /v1/batches", "Have the requests of a file answered in idle time.", BatchRequest, _NO, False),
        ("GET /v1/batches", "List batches.", None, PAGE, False),
        ("GET /v1/batches/{batch_id}", "How far a batch is.", None, _NO, False),
        ("POST /v1/batches/{batch_id}/cancel", "Stop a batch; what was answered stays.", None, _NO, False),
    ),
    **_of(
        "Embeddings",
        ("POST /v1/embeddings", "A vector for each text.", EmbeddingRequest, _NO, False),
        ("POST /v1/rerank", "Rank documents by a query.", RerankRequest, _NO, False),
        ("POST /rerank", "The same as /v1/rerank.", RerankRequest, _NO, False),
        ("POST /reranking", "The same as /v1/rerank.", RerankRequest, _NO, False),
        ("POST /v1/reranking", "The same as /v1/rerank.", RerankRequest, _NO, False),
    ),
    **_of(
        "Models",
        ("GET /v1/models", "What is served, and how far each is.", None, _NO, False),
        ("GET /models", "The same as /v1/models.", None, _NO, False),
        ("GET /v1/models/{model_id}", "One model.", None, _NO, False),
        ("DELETE /v1/models/{model_id}", "Always refused: no model here is fine-tuned.", None, _NO, False),
    ),
    **_of(
        "Tokens and formats",
        ("POST /tokenize", "A text or a conversation as token ids.", TokenizeRequest, _NO, False),
        ("POST /detokenize", "Token ids as a text.", DetokenizeRequest, _NO, False),
        ("POST /apply-template", "A conversation as the model's prompt.", TemplateRequest, _NO, False),
        ("POST /v1/schemas/check", "Can a format be enforced, why not, what does it cost?", FormatCheck, _NO, False),
    ),
    **_of(
        "Operating",
        ("GET /health", "The process lives.", None, _NO, False),
        ("GET /v1/health", "The same as /health.", None, _NO, False),
        ("GET /ready", "The engines make progress.", None, _NO, False),
        ("GET /metrics", "Figures for Prometheus.", None, _NO, False),
        ("GET /openapi.json", "This description.", None, _NO, False),
        ("GET /docs", "This description as a page.", None, _NO, False),
        ("GET /", "The playground.", None, _NO, False),
        ("GET /page/settings.json", "What it may call beside this server.", None, _NO, False),
        ("GET /page/{version}/{name}", "Its files.", None, _NO, False),
    ),
    **_of(
        "Admin",
        ("GET /admin/usage", "What each key has used.", None, _NO, False),
        ("GET /admin/requests", "What runs now.", None, _NO, False),
        ("POST /admin/requests/{request_id}/cancel", "Stop a request.", None, _NO, False),
        ("POST /admin/keys/reload", "Read the key file again.", None, _NO, False),
        ("POST /admin/reload", "Read the configuration again: models come and go.", None, _NO, False),
        ("POST /admin/stop", "End the server: what runs gets its time.", None, _NO, False),
        ("GET /admin/stats", "The figures of /metrics as JSON.", None, _NO, False),
        (
            "GET /admin/cache",
            "The tree of the prefix cache.",
            None,
            {
                "model": "Whose; the first where it is left out.",
                "nodes": "At most so many pieces, 1 to 1000.",
                "texts": "true: how the pieces of one's own key begin.",
            },
            False,
        ),
        ("GET /admin/hub/search", "Search Hugging Face.", None, {"q": "Words of a name."}, False),
        ("GET /admin/hub/files", "What of a repository can be pulled.", None, {"model": "owner/model."}, False),
        ("GET /admin/fit", "Whether a model fits, before a byte is loaded.", None, {"model": "Its name."}, False),
        ("GET /admin/pulls", "Downloads, and how far they are.", None, _NO, False),
        ("POST /admin/pulls", "Download a model.", PullRequest, _NO, False),
        ("GET /admin/pulls/events", "The list whenever it changes.", None, _NO, True),
        ("POST /admin/pulls/{pull_id}/cancel", "Stop a download; what came stays.", None, _NO, False),
        ("GET /admin/models", "The pool: what is loaded, what it takes, where it lies.", None, _NO, False),
        ("GET /admin/models/events", "The pool whenever it changes.", None, _NO, True),
        ("POST /admin/models/{model_id}/load", "Load a model.", None, _NO, False),
        ("POST /admin/models/{model_id}/unload", "Unload a model that is idle.", None, _NO, False),
        ("POST /admin/models/{model_id}/pin", "Never unload it to make room.", None, _NO, False),
        ("POST /admin/models/{model_id}/unpin", "It may go again.", None, _NO, False),
    ),
    **_of(
        "Ollama",
        ("POST /api/chat", "Answer a conversation.", OllamaChat, _NO, True),
        ("POST /api/generate", "Go on with a text.", OllamaGenerate, _NO, True),
        ("POST /api/embed", "A vector for each text.", OllamaEmbed, _NO, False),
        ("POST /api/embeddings", "A vector for one text.", OllamaEmbeddings, _NO, False),
        ("GET /api/tags", "What is served.", None, _NO, False),
        ("GET /api/ps", "What is loaded.", None, _NO, False),
        ("GET /api/version", "The version of the API.", None, _NO, False),
        ("POST /api/show", "What a model is.", ShowBody, _NO, False),
        ("POST /api/pull", "Says that it is here, where it is.", PullBody, _NO, True),
        ("DELETE /api/delete", "Always refused: models are the operator's.", ModelBody, _NO, False),
        ("POST /api/create", "Always refused: models are the operator's.", None, _NO, False),
        ("POST /api/copy", "Always refused: models are the operator's.", None, _NO, False),
        ("POST /api/push", "Always refused: models are the operator's.", None, _NO, False),
        ("POST /api/blobs/{digest}", "Always refused: models are the operator's.", None, _NO, False),
        ("HEAD /api/blobs/{digest}", "There are none.", None, _NO, False),
    ),
    **_of(
        "llama.cpp",
        ("POST /completion", "Go on with a text.", NativeRequest, _NO, True),
        ("POST /completions", "Go on with a text.", NativeRequest, _NO, True),
        ("POST /infill", "Fill a gap in code.", InfillRequest, _NO, True),
        ("POST /embedding", "A vector for each text.", NativeEmbeddingRequest, _NO, False),
        ("POST /embeddings", "A vector for each text.", NativeEmbeddingRequest, _NO, False),
        ("POST /v1/audio/transcriptions", "Always refused: no model here hears.", None, _NO, False),
        ("GET /props", "What the model is and how it is set.", None, {"model": "Which."}, False),
        ("GET /slots", "What each slot does.", None, {"model": "Which."}, False),
        ("GET /lora-adapters", "The adapters there are.", None, {"model": "Which."}, False),
        ("GET /tokenizer_info", "What the tokenizer is.", None, {"model": "Which."}, False),
    ),
}
