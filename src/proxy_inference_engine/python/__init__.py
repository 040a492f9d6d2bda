"""A served model inside a Python program: `Engine`, `AsyncEngine`, and what they answer with."""
