"""A GPT-2 and its training step, in the order of operations of the published ladder.

The ladder is that of a book on efficient PyTorch: its code zeroes the gradients between
forward and backward, once a micro-batch, which throws those of the first one away. That
is kept, as the published numbers come from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True, kw_only=True)
class Shape:
    layers: int
    heads: int
    width: int
    tokens: int
    vocabulary: int = 65
    dropout: float = 0.1


@dataclass(frozen=True, kw_only=True)
class Savings:
    """What a step does to need less memory."""

    micro_batches: int = 1
    checkpointing: bool = False
    foreach: bool | None = None
    fused_attention: bool = False
    autocast: bool = False


MINI = Shape(layers=6, heads=6, width=192, tokens=64)


class TanhGelu(nn.Module):
    """Composed of elementwise operations, each of which saves its input."""

    def forward(self, x: Any) -> Any:
        # one expression: a name would keep what is inside alive to the end
        return (
            0.5
            * x
            * (
                1.0
                + torch.tanh(
                    math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
                )
            )
        )


class Attention(nn.Module):
    def __init__(self, shape: Shape, *, fused: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.fused = shape.heads, shape.dropout, fused
        self.project = nn.Linear(shape.width, 3 * shape.width)
        self.join = nn.Linear(shape.width, shape.width)
        self.drop_weights = nn.Dropout(shape.dropout)
        self.drop = nn.Dropout(shape.dropout)
        mask = torch.tril(torch.ones(shape.tokens, shape.tokens))
        self.register_buffer("mask", mask.view(1, 1, shape.tokens, shape.tokens))

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        query, key, value = self.project(x).split(width, dim=2)
        key = self._by_head(key)
        query = self._by_head(query)
        value = self._by_head(value)
        if self.fused:
            dropout = self.dropout if self.training else 0.0
            mixed = nn.functional.scaled_dot_product_attention(
                query, key, value, is_causal=True, dropout_p=dropout
            )
        else:
            mixed = self._weights(query, key, tokens) @ value
        joined = mixed.transpose(1, 2).contiguous().view(batch, tokens, width)
        return self.drop(self.join(joined))

    def _by_head(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

    def _weights(self, query: Any, key: Any, tokens: int) -> Any:
        weights = (query @ key.transpose(-2, -1)) * (1.0 / math.sqrt(key.size(-1)))
        hidden = self.mask[:, :, :tokens, :tokens] == 0
        weights = weights.masked_fill(hidden, float("-inf"))
        weights = nn.functional.softmax(weights, dim=-1)
        return self.drop_weights(weights)


class Layer(nn.Module):
    def __init__(self, shape: Shape, *, fused: bool) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape, fused=fused)
        self.before_widening = nn.LayerNorm(shape.width)
        self.widen = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)
        self.activation = TanhGelu()
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.before_attention(x))
        # no names here either
        return x + self.drop(
            self.narrow(self.activation(self.widen(self.before_widening(x))))
        )


class Gpt(nn.Module):
    def __init__(self, shape: Shape, savings: Savings) -> None:
        super().__init__()
        self.checkpointing = savings.checkpointing
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.tokens, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.layers = nn.ModuleList(
            Layer(shape, fused=savings.fused_attention) for _ in range(shape.layers)
        )
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, tokens: Any, targets: Any) -> tuple[Any, Any]:
        places = torch.arange(0, tokens.shape[1], device=tokens.device).unsqueeze(0)
        x = self.drop(self.tokens(tokens) + self.positions(places))
        for layer in self.layers:
            if self.checkpointing:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        scores = self.head(self.norm(x))
        flat = scores.view(-1, scores.size(-1))
        loss = nn.functional.cross_entropy(flat, targets.view(-1), ignore_index=-1)
        return scores, loss


def adamw(model: Gpt, savings: Savings) -> torch.optim.AdamW:
    """Decay the weights of products only, as GPT-2's training does."""
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        is_embedding = name in {"tokens.weight", "positions.weight"}
        decays = parameter.dim() > 1 and not is_embedding
        (decayed if decays else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": 0.1},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=5e-4, betas=(0.9, 0.95), foreach=savings.foreach
    )


class Training:
    """A model on the GPU, its optimizer, and one step of them, called."""

    def __init__(self, shape: Shape, savings: Savings, *, batch: int) -> None:
        with torch.device("cuda"):
            self.model = Gpt(shape, savings)
        self.optimizer = adamw(self.model, savings)
        self.shape, self.savings = shape, savings
        self.rows = batch // savings.micro_batches
        self.tokens = self.targets = self.scores = self.loss = None

    def __call__(self) -> None:
        """Take one step; like the published code it keeps its last batch and scores."""
        if self.savings.micro_batches > 1:
            self.model.zero_grad(set_to_none=True)
        for _ in range(self.savings.micro_batches):
            self.tokens, self.targets = self._drawn(), self._drawn()
            with torch.autocast(
                "cuda", dtype=torch.bfloat16, enabled=self.savings.autocast
            ):
                self.scores, self.loss = self.model(self.tokens, self.targets)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def _drawn(self) -> Any:
        size = (self.rows, self.shape.tokens)
        return torch.randint(0, self.shape.vocabulary, size, device="cuda")
