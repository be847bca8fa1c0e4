"""GPT-2 and a training step with the savings of the ladder of memory.

Attention and GELU are spelled out, as in the published code: each of their operations
keeps what its backward needs. Gradients are zeroed behind the forward, as there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Shape:
    layers: int
    heads: int
    width: int
    tokens: int
    batch: int
    dropout: float = 0.0
    vocabulary: int = 65


LARGE = Shape(layers=36, heads=20, width=1280, tokens=128, batch=32, dropout=0.1)
"""What was published: 709 million parameters with the characters of one book."""

WIDE = Shape(layers=4, heads=25, width=1600, tokens=128, batch=32, dropout=0.1)

SMALL = Shape(layers=8, heads=2, width=64, tokens=32, batch=6)
"""For a CPU: about as many tokens to a width, so that activations weigh as much."""

LADDER = (
    {"foreach": True},
    {"foreach": True, "micro_batches": 2},
    {"foreach": True, "micro_batches": 2, "checkpointing": True},
    {"foreach": False, "micro_batches": 2, "checkpointing": True},
)
"""What ``Training`` does on each rung; the last one has a mesh of two GPUs as well."""


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads = shape.heads
        self.project = nn.Linear(shape.width, 3 * shape.width)
        self.join = nn.Linear(shape.width, shape.width)
        self.drop_scores = nn.Dropout(shape.dropout)
        self.drop = nn.Dropout(shape.dropout)
        seen = torch.ones(shape.tokens, shape.tokens).tril()
        self.register_buffer("seen", seen, persistent=False)

    def forward(self, x):
        batch, tokens, width = x.shape
        query, key, value = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.project(x).split(width, dim=2)
        )
        scores = (query @ key.transpose(-2, -1)) / math.sqrt(key.size(-1))
        scores = F.softmax(scores.masked_fill(self.seen == 0, -math.inf), dim=-1)
        mixed = self.drop_scores(scores) @ value
        return self.drop(self.join(mixed.transpose(1, 2).reshape(batch, tokens, width)))


class Gelu(nn.Module):
    def forward(self, x):
        # one expression: a name would hold what is inside to the end
        return (
            0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3))))
        )


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        wide = 4 * shape.width
        self.attend = nn.Sequential(nn.LayerNorm(shape.width), Attention(shape))
        self.think = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, wide),
            Gelu(),
            nn.Linear(wide, shape.width),
            nn.Dropout(shape.dropout),
        )

    def forward(self, x):
        x = x + self.attend(x)
        return x + self.think(x)


class Gpt(nn.Module):
    def __init__(self, shape, *, checkpointing):
        super().__init__()
        self.checkpointing = checkpointing
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.place = nn.Embedding(shape.tokens, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.token(tokens) + self.place(places))
        for block in self.blocks:
            if self.checkpointing:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        scores = self.head(self.norm(x))
        return F.cross_entropy(scores.flatten(0, 1), targets.flatten())


def shard(model, mesh):
    """Let FSDP gather a block at a time."""
    from torch.distributed.fsdp import fully_shard

    for part in (*model.blocks, model):
        fully_shard(part, mesh=mesh)


class Training:
    """A model, its optimizer and a batch on *device*; called, it takes a step.

    Where a *mesh* of ranks is given, each holds its part of the model, and a batch.
    """

    def __init__(  # noqa: PLR0913, the savings of the ladder
        self,
        shape,
        device,
        *,
        micro_batches=1,
        checkpointing=False,
        foreach=None,
        mesh=None,
    ):
        torch.manual_seed(0)
        with torch.device(device):
            self.model = Gpt(shape, checkpointing=checkpointing)
            size = (shape.batch, shape.tokens)
            self.tokens, self.targets = torch.randint(shape.vocabulary, (2, *size))
        if mesh is not None:
            shard(self.model, mesh)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=5e-4, foreach=foreach
        )
        self.micro_batches = micro_batches

    def __call__(self):
        parts = zip(
            self.tokens.chunk(self.micro_batches),
            self.targets.chunk(self.micro_batches),
            strict=True,
        )
        for number, (tokens, targets) in enumerate(parts):
            loss = self.model(tokens, targets) / self.micro_batches
            if number == 0:
                self.optimizer.zero_grad()
            loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
