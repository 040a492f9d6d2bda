"""What working on a client's schema may cost, in steps and not in time: the same schema always ends in the same way."""

from collections.abc import Callable, Hashable

MAX_STEPS = 120_000  # a few microseconds each
# Reasoning about a pattern looks at the parts of its terms; so many of them take about as long as one step.
PARTS_PER_STEP = 8
# Pointers and identifiers are written out for every schema that stands below a long name.
CHARS_PER_STEP = 64
# Of all schemas of one request: each may take long by itself, and there may be many.
MAX_TOGETHER = 4 * MAX_STEPS

Spend = Callable[[int], None]


class OutOfSteps(Exception):
    """A schema asks for more work than is reasonable."""


class StepBudget:
    """Every loop over what a client wrote spends from it, before it does the work."""

    def __init__(self, most: int = MAX_STEPS, whole: "StepBudget | None" = None) -> None:
        """`whole`: what this is a part of, which pays too."""
        self.num_spent = 0
        self._most = most
        self._whole = whole
        self._num_parts = 0
        self._asked: set[Hashable] = set()

    def spend(self, steps: int = 1) -> None:
        """Raises OutOfSteps."""
        self.num_spent += steps
        if self.num_spent > self._most:
            raise OutOfSteps
        if self._whole is not None:
            self._whole.spend(steps)

    def think(self, parts: int) -> None:
        """Spend what looking at parts of a pattern's terms costs; what is left of a step is not forgotten."""
        steps, self._num_parts = divmod(self._num_parts + parts, PARTS_PER_STEP)
        self.spend(steps)

    def ask(self, question: Hashable, parts: int) -> None:
        """Spend what a question costs whose answer is kept: the whole price once, and next to nothing after that."""
        self.think(1 if question in self._asked else parts)
        self._asked.add(question)
