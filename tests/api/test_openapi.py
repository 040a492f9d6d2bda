"""The API described by itself: every route, every field with a meaning and its 400, and what it says is true."""

from typing import Any

import httpx
import jsonschema
import pytest
from openapi_spec_validator import validate
from starlette.routing import Route

from proxy_inference_engine.server.apis.shared.fields import RequestSchema
from proxy_inference_engine.server.http.guard import kind_of
from proxy_inference_engine.server.openapi.document import all_schemas, make, meaning
from proxy_inference_engine.server.openapi.meanings import BY_NAME, BY_SCHEMA
from proxy_inference_engine.server.openapi.operations import OPERATIONS
from tests.api.running import HELLO, MODEL
from tests.api.test_keys import all_routes

DOCUMENT = make()
SCHEMAS: dict[str, Any] = DOCUMENT["components"]["schemas"]


def routes() -> set[str]:
    found: list[Route] = all_routes()
    return {
        f"{method} {route.path.replace(':path', '')}"
        for route in found
        for method in (route.methods or set()) - ({"HEAD"} if "GET" in (route.methods or set()) else set())
    }


def test_every_route_is_described_and_no_other() -> None:
    assert set(OPERATIONS) == routes()


def test_it_is_openapi(http: httpx.Client) -> None:
    answer = http.get("/openapi.json")
    assert answer.headers["content-type"] == "application/json"
    validate(answer.json())
    assert answer.json()["openapi"] == "3.1.0"


def test_every_field_of_every_request_has_a_meaning() -> None:
    schemas = set(all_schemas(RequestSchema))
    assert len(schemas) > 60
    for schema in schemas:
        for name in schema.model_fields:
            assert meaning(schema, name).endswith("."), (schema.__name__, name)


def test_no_meaning_is_left_over() -> None:
    fields = {(owner.__name__, name) for schema in all_schemas(RequestSchema) for name in schema.model_fields
              for owner in schema.__mro__}  # fmt: skip
    assert {name for _, name in fields} == set(BY_NAME)
    assert {f"{owner}.{name}" for owner, name in fields} >= set(BY_SCHEMA)


def test_every_property_says_what_is_refused() -> None:
    for name, schema in SCHEMAS.items():
        for field, described in schema.get("properties", {}).items():
            assert name == "Error" or (described["description"] and described["x-refused"].endswith(".")), (name, field)


def test_the_kind_of_key_is_that_of_the_guard() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for operation in methods.values():
            assert operation["x-key"] == kind_of(path.replace("{", "").replace("}", ""))
            assert (operation["security"] == []) == (operation["x-key"] == "public")


@pytest.mark.parametrize(
    ("field", "wrong", "right"),
    [("temperature", 2.5, 2), ("top_p", -0.1, 0.5), ("n", 0, 1), ("stop", ["a"] * 17, "a"),
     ("seed", "x", 5), ("logprobs", 1, True), ("stream_options", 5, None), ("min_tokens", -1, 0)],
)  # fmt: skip
def test_what_it_says_of_a_field_is_what_happens(http: httpx.Client, field: str, wrong: Any, right: Any) -> None:
    """Values on both sides of what the description draws, against the route itself."""
    schema = {"$ref": "#/components/schemas/ChatRequest", "components": DOCUMENT["components"]}
    body = {"model": MODEL, "messages": HELLO, "max_tokens": 1}
    for value, is_right in ((wrong, False), (right, True)):
        tried = {**body, field: value}
        described = jsonschema.Draft202012Validator(schema).is_valid(tried) or value is None
        answer = http.post("/v1/chat/completions", json=tried)
        assert (answer.status_code == 200) == described == is_right
        assert is_right or answer.json()["error"]["param"].startswith(field)


def test_it_names_no_other_host(http: httpx.Client) -> None:
    assert "http://" not in http.get("/openapi.json").text and "https://" not in http.get("/openapi.json").text


def test_the_page_is_ours_alone(http: httpx.Client) -> None:
    answer = http.get("/docs")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    assert "http" not in answer.text.replace("http-equiv", "")
    again = http.get("/docs", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304
