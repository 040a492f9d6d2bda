"""`pie chat` and `pie run`: a conversation with a model here or on a running server."""
