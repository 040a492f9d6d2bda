"""The schemas of `python -m benchmarks.structured`, each with an instance that shows about how long an answer is.

`ASKED` are what servers are asked for: objects of about 100 tokens whose length every server has to keep to, from many
keys and short values to one long text. `WALKED` are for the costs of grammars alone; they reach into the keywords that
make grammars dear.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    task: str  # what the prompt asks for
    schema: Mapping[str, Any]
    instance: Any


def _object(**properties: Any) -> dict[str, Any]:
    """A schema of an object that has these properties, all of them, and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _array(items: Any, num_items: int) -> dict[str, Any]:
    return {"type": "array", "items": items, "minItems": num_items, "maxItems": num_items}


def _text(shortest: int, longest: int) -> dict[str, Any]:
    return {"type": "string", "minLength": shortest, "maxLength": longest}


def _one_of(*values: Any) -> dict[str, Any]:
    return {"enum": list(values)}


def _whole(least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "minimum": least, "maximum": most}


def _matching(pattern: str) -> dict[str, Any]:
    return {"type": "string", "pattern": f"^{pattern}$"}


_BOOLEAN = {"type": "boolean"}

ASKED = (
    Case(
        "person",
        "Describe a person for an address book.",
        _object(
            first_name=_text(3, 10),
            last_name=_text(3, 12),
            age=_whole(18, 80),
            email=_matching("[a-z]{5,8}@example\\.com"),
            address=_object(
                street=_text(6, 16), house_number=_whole(1, 99), postcode=_matching("[0-9]{5}"), city=_text(4, 12)
            ),
            is_customer=_BOOLEAN,
            languages=_array(_one_of("English", "French", "German", "Spanish"), 2),
        ),
        {
            "first_name": "Maria",
            "last_name": "Fischer",
            "age": 41,
            "email": "fischer@example.com",
            "address": {"street": "Garden Lane", "house_number": 12, "postcode": "10437", "city": "Bridgetown"},
            "is_customer": True,
            "languages": ["German", "English"],
        },
    ),
    Case(
        "invoice",
        "Write an invoice.",
        _object(
            number=_matching("INV-[0-9]{4}"),
            currency=_one_of("EUR", "USD", "GBP"),
            customer=_text(6, 16),
            items=_array(
                _object(product=_text(5, 12), quantity=_whole(1, 20), price=_whole(10, 999)),
                3,
            ),
            is_paid=_BOOLEAN,
        ),
        {
            "number": "INV-2041",
            "currency": "EUR",
            "customer": "Silver Market",
            "items": [
                {"product": "Lantern", "quantity": 4, "price": 25},
                {"product": "Copper pan", "quantity": 1, "price": 80},
                {"product": "Letter box", "quantity": 2, "price": 110},
            ],
            "is_paid": False,
        },
    ),
    Case(
        "event",
        "Enter an event into the calendar.",
        _object(
            title=_text(12, 30),
            date=_matching("20[0-9]{2}-[01][0-9]-[0-3][0-9]"),
            start_hour=_whole(8, 18),
            duration_minutes=_one_of(15, 30, 45, 60, 90),
            day=_one_of(*_DAYS),
            place=_object(building=_text(4, 14), room=_whole(1, 40), floor=_whole(0, 9)),
            attendees=_array(_text(3, 10), 3),
            is_recurring=_BOOLEAN,
            reminder=_object(channel=_one_of("email", "phone", "none"), minutes_before=_one_of(5, 10, 30)),
        ),
        {
            "title": "Music in the village garden",
            "date": "2026-05-14",
            "start_hour": 14,
            "duration_minutes": 90,
            "day": "Thursday",
            "place": {"building": "Town hall", "room": 12, "floor": 1},
            "attendees": ["Anna", "Peter", "Joan"],
            "is_recurring": False,
            "reminder": {"channel": "email", "minutes_before": 30},
        },
    ),
    Case(
        "readings",
        "Report what the weather stations measured.",
        _object(
            stations=_array(
                _object(
                    station=_one_of("north", "south", "east", "west"),
                    celsius=_whole(-20, 40),
                    humidity=_whole(10, 99),
                    is_working=_BOOLEAN,
                ),
                4,
            )
        ),
        {
            "stations": [
                {"station": "north", "celsius": 12, "humidity": 71, "is_working": True},
                {"station": "south", "celsius": 19, "humidity": 40, "is_working": True},
                {"station": "east", "celsius": -3, "humidity": 88, "is_working": False},
                {"station": "west", "celsius": 15, "humidity": 65, "is_working": True},
            ]
        },
    ),
    Case(
        "ticket",
        "Sort this into the support desk's tickets.",
        _object(
            category=_one_of("billing", "delivery", "account", "defect", "other"),
            priority=_one_of("low", "normal", "high", "urgent"),
            sentiment=_one_of("negative", "neutral", "positive"),
            summary=_text(40, 80),
            product=_object(name=_text(4, 14), version=_matching("[0-9]\\.[0-9]{1,2}")),
            needs_reply=_BOOLEAN,
            reply=_text(40, 80),
            tags=_array(_text(3, 10), 3),
        ),
        {
            "category": "defect",
            "priority": "high",
            "sentiment": "negative",
            "summary": "The lantern went out after one winter and the window of it broke.",
            "product": {"name": "Lantern", "version": "2.1"},
            "needs_reply": True,
            "reply": "We are sorry about it. A new lantern is on its way to you.",
            "tags": ["glass", "light", "return"],
        },
    ),
    Case(
        "review",
        "Review the place in a few sentences.",
        _object(stars=_whole(1, 5), review=_text(300, 420), would_return=_BOOLEAN),
        {
            "stars": 4,
            "review": "We came over the bridge early in the morning and found the kitchen open. The bread was fresh, "
            "the music was quiet, and the people who work there know every guest by name. It is a small room with one "
            "long window to the harbour, and in winter it must be the best place of the whole village. Only the "
            "journey back through the forest took too long.",
            "would_return": True,
        },
    ),
)

WALKED = (
    Case("any object", "", {"type": "object"}, {"name": "stone", "parts": [1, 2.5e3, None, {"deep": [True, "é"]}]}),
    Case(
        "tree",
        "",
        {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "number"},
                        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                    },
                    "required": ["value"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        },
        {"value": 1, "children": [{"value": -2.5, "children": []}, {"value": 3, "children": [{"value": 4}]}]},
    ),
    Case(
        "shapes",
        "",
        {
            "oneOf": [
                _object(kind={"const": "circle"}, radius={"type": "number", "exclusiveMinimum": 0}),
                _object(kind={"const": "rectangle"}, width={"type": "number"}, height={"type": "number"}),
                _object(kind={"const": "polygon"}, points=_array(_array({"type": "number"}, 2), 3)),
            ]
        },
        {"kind": "polygon", "points": [[0, 0], [1.5, 0], [0.25, 2]]},
    ),
    Case(
        "optional properties",
        "",
        {
            "type": "object",
            "properties": {f"field_{number}": {"type": ["string", "null"]} for number in range(40)},
            "additionalProperties": False,
        },
        {"field_3": "river", "field_17": None, "field_39": "stone"},
    ),
    Case(
        "large enum",
        "",
        _object(code={"enum": [f"{letter}{number:03}" for letter in "ABCDE" for number in range(100)]}),
        {"code": "D042"},
    ),
    Case(
        "formats",
        "",
        _object(
            id={"type": "string", "format": "uuid"},
            at={"type": "string", "format": "date-time"},
            mail={"type": "string", "format": "email"},
            host={"type": "string", "format": "ipv4"},
        ),
        {
            "id": "0b8f8a52-6f0e-4a7e-9a57-2c1d3f1f5b11",
            "at": "2026-05-14T08:30:00Z",
            "mail": "anna@example.org",
            "host": "192.168.0.12",
        },
    ),
    Case(
        "map of numbers",
        "",
        {
            "type": "object",
            "patternProperties": {"^x_": {"type": "integer"}},
            "additionalProperties": {"type": "number", "minimum": -1.5, "maximum": 1024},
        },
        {"x_first": 12, "temperature": 20.125, "depth": -1.25},
    ),
    Case(
        "long text", "", _object(text={"type": "string", "maxLength": 4000}), {"text": "the river and the stone " * 12}
    ),
    Case(
        "if and then",
        "",
        {
            "type": "object",
            "properties": {"country": _one_of("US", "DE"), "code": {"type": "string"}},
            "required": ["country", "code"],
            "additionalProperties": False,
            "if": {"properties": {"country": {"const": "US"}}},
            "then": {"properties": {"code": {"pattern": "^[0-9]{5}(-[0-9]{4})?$"}}},
            "else": {"properties": {"code": {"pattern": "^[0-9]{5}$"}}},
        },
        {"country": "US", "code": "12345-6789"},
    ),
    Case(
        "alternatives",
        "",
        {
            "type": "array",
            "items": {
                "anyOf": [{"type": "integer"}, {"type": "boolean"}, _object(id=_whole(0, 9)), _text(1, 8)],
            },
            "maxItems": 12,
        },
        [1, False, {"id": 7}, "stone", 12, "a"],
    ),
)
