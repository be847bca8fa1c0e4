"""The scripted device of the plugin's tests, here and in processes that are started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final


_ROOT: Final = Path(__file__).resolve().parents[1]

ON_PATH: Final = {"PYTHONPATH": os.pathsep.join([str(_ROOT), str(_ROOT / "tests")])}
"""What a process is started with."""

sys.path.append(str(_ROOT / "tests"))

from scripted_device import ScriptedDevice  # noqa: E402, after the path


__all__ = ["ON_PATH", "ScriptedDevice"]
