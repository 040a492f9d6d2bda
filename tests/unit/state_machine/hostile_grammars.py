"""Grammars that take more than anybody has."""

_NUMBERS = [10_007 + 2 * number for number in range(300)]

# Memory, or the fuel that the library gives a grammar: a second and a half of a fast processor.
LARGE = 'start: %json {"type": "integer", "multipleOf": 2147483647}'
# Half a minute in small pieces, none of which takes that fuel or much memory.
SLOW = f"start: {' | '.join(f't{number}' for number in _NUMBERS)}\n" + "\n".join(
    f't{number}: %json {{"type": "integer", "multipleOf": {number}}}' for number in _NUMBERS
)
