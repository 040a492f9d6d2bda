"""Settings for every test: examples of hypothesis are the same in each run and know no deadline."""

from hypothesis import settings

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
