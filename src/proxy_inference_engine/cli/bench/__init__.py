"""`pie bench`: a running server measured, and drawn."""
