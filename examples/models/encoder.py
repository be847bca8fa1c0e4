"""An encoder of post-norm layers over a few measurements a day, and what its norm keeps."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class SpelledOut(nn.LayerNorm):
    """A layer norm by hand: each of its operations keeps what its backward needs."""

    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + self.eps) * self.weight + self.bias


class InLowPrecision(nn.LayerNorm):
    """One operation, in the precision of what comes in; autocast would take float32."""

    def forward(self, x):
        with torch.autocast(x.device.type, enabled=False):
            scale, shift = self.weight.to(x.dtype), self.bias.to(x.dtype)
            return F.layer_norm(x, self.normalized_shape, scale, shift, self.eps)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.join = nn.Linear(width, width)

    def forward(self, x):
        rows, steps, width = x.shape
        query, key, value = (
            part.view(rows, steps, self.heads, -1).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )
        scores = F.softmax(query @ key.transpose(-2, -1) / math.sqrt(key.size(-1)), -1)
        mixed = scores.to(value.dtype) @ value
        return self.join(mixed.transpose(1, 2).reshape(rows, steps, width))


class Layer(nn.Module):
    def __init__(self, width, heads, norm):
        super().__init__()
        self.attend, self.after_attention = Attention(width, heads), norm(width)
        self.widen, self.narrow = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
        )
        self.after_all = norm(width)

    def forward(self, x):
        x = self.after_attention(x + self.attend(x))
        return self.after_all(x + self.narrow(F.gelu(self.widen(x))))


class Encoder(nn.Sequential):
    """Measurements of each step in, one number of the last step out."""

    def __init__(self, norm, *, measured=188, width=512, heads=8, layers=4):
        super().__init__(
            nn.Linear(measured, width),
            *(Layer(width, heads, norm) for _ in range(layers)),
            nn.Linear(width, 1),
        )

    def forward(self, x):
        return super().forward(x)[:, -1]


def training(norm, device, *, mixed=True):
    """Return a step of a batch of 512, in mixed precision or in float32."""
    with torch.device(device):
        model = Encoder(norm)
        rows, wanted = torch.rand(512, 13, 188), torch.rand(512, 1)
    optimizer = torch.optim.Adam(model.parameters())

    def step():
        with torch.autocast(device, torch.float16, enabled=mixed):
            found = model(rows)
        optimizer.zero_grad()
        F.binary_cross_entropy_with_logits(found.float(), wanted).backward()
        optimizer.step()

    return step
