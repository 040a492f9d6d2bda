"""Prints the table of settings."""

from proxy_inference_engine.config.catalogue import settings_table

if __name__ == "__main__":
    print(settings_table())
