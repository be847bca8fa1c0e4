"""The pretend GPU as Python knows it and as torch's core does."""

from __future__ import annotations

from typing import Final

import torch


LAZY: Final = torch.device("lazy")
"""What a ghost's device is in torch's core: a type that every wheel has a device guard
for and whose backward runs on the thread that called it, so that its lines are seen."""

CUDA: Final = torch.device("cuda", 0)

CPU: Final = torch.device("cpu")

AUTOCAST_KEY: Final = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)  # noqa: SLF001
"""Lets ``torch.autocast("cuda")`` see ghosts, see ``autocast``."""
