"""A pytest plugin that only imports what a fork server on the scripted device does not.

Each of its children would import it again.
"""

from __future__ import annotations

import importlib


for name in ("torch", "torch._dynamo"):
    importlib.import_module(name)
