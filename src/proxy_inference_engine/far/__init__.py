"""Engines that are elsewhere: vLLM behind HTTP, one or several for one model."""
