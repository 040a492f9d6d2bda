"""What a front end before far engines carries, and how it compares with vLLM's own."""
