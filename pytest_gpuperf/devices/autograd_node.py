"""Which node of autograd's graph is at work; ``None`` outside of a backward."""

from __future__ import annotations

import torch


current_node = torch._C._current_autograd_node  # noqa: SLF001, no public question exists
