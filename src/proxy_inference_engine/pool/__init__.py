"""Several models under one memory budget: who is loaded, who waits, who has to go."""
