"""Property tests have no deadline: on a busy machine it would only measure the machine.

`make test` tries some examples of each, different ones every time; `make soak` many,
with `--hypothesis-profile=many`.
"""

from hypothesis import settings

settings.register_profile("some", deadline=None, max_examples=40)
settings.register_profile("many", deadline=None, max_examples=600)
settings.load_profile("some")
