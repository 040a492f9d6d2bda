"""Other names under which clients may ask for the model: a table as TOML gives it, or JSON as the environment does."""

import json

MAX_ALIASES = 1000


def parse_aliases(value: object) -> object:
    """The table of names and what they stand for. Raises ValueError that names the place."""
    if value is None:
        return None
    try:
        table = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise ValueError("should be a JSON object") from None
    if not isinstance(table, dict):
        raise ValueError("should be a table of names")
    if len(table) > MAX_ALIASES:
        raise ValueError(f"should have at most {MAX_ALIASES} names")
    for name, target in table.items():
        if not name.strip() or not isinstance(target, str) or not target:
            raise ValueError(f"{name!r}: should be a name that stands for a model's name")
    return table
