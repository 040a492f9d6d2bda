"""Commands that speak to a running server, and how it is found and spoken to."""
