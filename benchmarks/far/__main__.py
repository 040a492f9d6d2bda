"""What one front end before far engines carries, and how it compares with vLLM's own.

    python -m benchmarks.far limit               # a fake far engine: our own limit; four minutes
    python -m benchmarks.far grow                # `pie serve --processes` 1, 2 and 4 before fake engines; two minutes
    python -m benchmarks.far beside              # the real vLLM (`make vllm`) through both front ends; eight minutes
    python -m benchmarks.far beside --streams 1,16 --tokens 32 --rounds 1
    python -m benchmarks.far beside --tokens 24 --apart 0.15    # the first tokens of streams that begin in turn

Each ends with the rows of a table for docs/cluster.md or docs/vllm.md. Leave the machine alone meanwhile. With two
cores the front end has one, and the fake engine shares the other with the client.
"""

import argparse

from benchmarks.far.beside import Plan, beside
from benchmarks.far.grow import grow
from benchmarks.far.limit import limit


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="Front ends before far engines.")
    commands = parser.add_subparsers(required=True, dest="command")
    first = commands.add_parser("limit", help="one front end before a fake far engine")
    first.add_argument("--rates", type=numbers, default="20000,25000,30000,40000", help="tokens a second, one by one")
    first.add_argument("--streams", type=numbers, default="500,1000", help="the first for all rates, all for the first")
    first.add_argument("--seconds", type=float, default=20.0, help="of each, after the streams have begun")
    second = commands.add_parser("grow", help="several front ends on one port before fake far engines")
    second.add_argument("--streams", type=int, default=500)
    second.add_argument("--tokens", type=int, default=600, help="of each answer")
    second.add_argument("--processes", type=numbers, default="1,2,4")
    third = commands.add_parser("beside", help="the real vLLM through both front ends, in turns")
    third.add_argument("--streams", type=numbers, default="1,16,64")
    third.add_argument("--tokens", type=int, default=128)
    third.add_argument("--rounds", type=int, default=9, help="at most")
    third.add_argument("--minutes", type=float, default=8.0, help="in which no other round begins")
    third.add_argument("--apart", type=float, default=0.0, help="seconds between the beginnings of two streams")
    third.add_argument("--url", help="a vLLM that runs already, over the bundled model")
    options = parser.parse_args()
    if options.command == "limit":
        limit(options.rates, options.streams, options.seconds)
    elif options.command == "grow":
        grow(options.streams, options.tokens, options.processes)
    else:
        plan = Plan(options.streams, options.tokens, options.rounds, options.minutes, options.apart)
        beside(plan, options.url)


if __name__ == "__main__":
    main()
