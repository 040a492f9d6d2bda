"""Prints the list of settings."""

from proxy_inference_engine.config.catalogue import settings_list

if __name__ == "__main__":
    print(settings_list())
