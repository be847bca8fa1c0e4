"""A module that remembers whether garbage is collected while it is imported."""

from __future__ import annotations

import gc


IS_COLLECTED = gc.isenabled()
