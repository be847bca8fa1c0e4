"""A module whose import fails."""

from __future__ import annotations


msg = "libcudart.so.13: cannot open shared object file"
raise ImportError(msg)
