"""Properties are about values, never about time: a busy machine must not fail them."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
