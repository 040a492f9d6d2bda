"""The API described by itself: `document.py` makes /openapi.json from the request schemas and two tables."""
