"""Models in safetensors, on MLX."""

from proxy_inference_engine.runners.mlx import library as library
