"""Property tests have no deadline: on a busy machine it would only measure the machine."""

from hypothesis import settings

settings.register_profile("llmc", deadline=None)
settings.load_profile("llmc")
