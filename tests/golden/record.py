"""Writes recordings anew: `python -m tests.golden.record [group …]`, one of them `mutations`.

Look at the diff before you believe it.
"""

import sys

from tests.golden.bodies import BODIES
from tests.golden.brief import record_mutations, write_mutations
from tests.golden.cases import GROUPS
from tests.golden.recording import record, write
from tests.golden.servers import Servers


def main(names: list[str]) -> None:
    for name in [name for name in GROUPS if not names or name in names]:
        recording = record(GROUPS[name])
        write(name, recording)
        print(f"{name}: {len(recording)} cases")
    if not names or "mutations" in names:
        with Servers() as servers:
            for name in BODIES:
                lines = record_mutations(name, servers)
                write_mutations(name, lines)
                print(f"mutations of {name}: {len(lines)}")


if __name__ == "__main__":
    main(sys.argv[1:])
