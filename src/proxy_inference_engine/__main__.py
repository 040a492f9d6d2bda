"""`python -m proxy_inference_engine` is `pie`."""

import sys

from proxy_inference_engine.cli import main

if __name__ == "__main__":
    sys.exit(main())
