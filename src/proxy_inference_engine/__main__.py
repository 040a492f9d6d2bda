"""Where `pie` and `python -m proxy_inference_engine` begin: Ctrl-C is quiet from the first line on."""

import sys


def main() -> int:
    try:
        from proxy_inference_engine.cli import main as pie
    except KeyboardInterrupt:
        return 130  # cli.exit.INTERRUPTED, which is not there yet
    return pie()


if __name__ == "__main__":
    sys.exit(main())
