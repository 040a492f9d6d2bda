"""What is compared with here comes with MLX: transformers, and models made for the tests."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("mlx") else ["test_*.py"]
