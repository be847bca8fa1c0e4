"""GELU as it was spelled out when it had no operation of its own."""

from __future__ import annotations

import torch


def spelled_out(x):
    return x * 0.5 * (1.0 + torch.erf(x / 1.41421))
