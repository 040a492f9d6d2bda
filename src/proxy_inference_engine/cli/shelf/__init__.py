"""Commands about the models that lie on this machine, or could."""
