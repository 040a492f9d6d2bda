"""What one front end before far engines carries, and how it compares with vLLM's own.

    python -m benchmarks.far limit               # a fake far engine: our own limit
    python -m benchmarks.far grow                # `pie serve --processes` 1, 2 and 4 before fake far engines
    python -m benchmarks.far beside              # the real vLLM (`make vllm`) through both front ends
    python -m benchmarks.far beside --streams 1,16 --tokens 32 --rounds 1

Leave the machine alone meanwhile. With two cores the front end has one, and the fake engine shares the other with the
client.
"""

import argparse

from benchmarks.far.beside import beside
from benchmarks.far.grow import grow
from benchmarks.far.limit import limit


def main() -> None:
    parser = argparse.ArgumentParser(description="Front ends before far engines.")
    commands = parser.add_subparsers(required=True, dest="command")
    first = commands.add_parser("limit", help="a front end before a fake far engine")
    first.add_argument("--streams", default="100,500")
    first.add_argument("--tokens", type=int, default=600, help="of each answer")
    first.add_argument(
        "--gap-ms", type=float, default=25.0, help="between two tokens of a stream; 0: as fast as it goes"
    )
    first.add_argument("--processes", type=int, default=1, help="front ends on one port")
    third = commands.add_parser("grow", help="several front ends on one port before fake far engines")
    third.add_argument("--streams", default="500")
    third.add_argument("--tokens", type=int, default=300, help="of each answer")
    third.add_argument(
        "--gap-ms", type=float, default=0.0, help="between two tokens of a stream; 0: as fast as it goes"
    )
    third.add_argument("--processes", default="1,2,4")
    second = commands.add_parser("beside", help="the real vLLM through both front ends, in turns")
    second.add_argument("--streams", default="1,16,64")
    second.add_argument("--tokens", type=int, default=128)
    second.add_argument("--rounds", type=int, default=3)
    second.add_argument("--url", help="a vLLM that runs already, over the bundled model")
    options = parser.parse_args()
    counts = [int(word) for word in options.streams.split(",")]
    if options.command == "limit":
        for count in counts:
            limit(count, options.tokens, options.gap_ms, options.processes)
    elif options.command == "grow":
        for count in counts:
            for number in map(int, options.processes.split(",")):
                grow(count, options.tokens, options.gap_ms, number)
    else:
        beside(counts, options.tokens, options.rounds, options.url)


if __name__ == "__main__":
    main()
