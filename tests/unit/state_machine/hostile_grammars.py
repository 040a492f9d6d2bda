"""Grammars that take more than anybody has."""

ROOM = 64 << 30  # bytes, and no grammar comes to take them
_NUMBERS = [10_007 + 2 * number for number in range(300)]

# Memory, or the fuel that the library gives a grammar: a second of a fast processor.
LARGE = 'start: %json {"type": "integer", "multipleOf": 2147483647}'
# A quarter of a minute of a fast processor, in small pieces, none of which takes that fuel. Together they take a
# gigabyte and more: with `ROOM` it is time that ends it, on however fast a processor.
SLOW = f"start: {' | '.join(f't{number}' for number in _NUMBERS)}\n" + "\n".join(
    f't{number}: %json {{"type": "integer", "multipleOf": {number}}}' for number in _NUMBERS
)
