"""Models as people write them, small: what `agreement_bytes.py` trains."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as everybody writes it
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        parts = self.qkv(self.before(x)).chunk(3, dim=-1)
        q, k, v = (t.view(batch, tokens, self.heads, -1).transpose(1, 2) for t in parts)
        p = self.dropout if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, tokens, width))
        return x + F.dropout(
            self.down(F.gelu(self.up(self.between(x)))), self.dropout, self.training
        )


class Gpt(nn.Module):
    def __init__(  # noqa: PLR0913, a model's sizes
        self,
        width: int = 256,
        heads: int = 4,
        layers: int = 3,
        vocabulary: int = 2000,
        dropout: float = 0.0,
        *,
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(512, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Any) -> Any:
        places = torch.arange(ids.size(1), device=ids.device)
        x = self.tokens(ids) + self.places(places)
        for block in self.blocks:
            if self.checkpointed:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return self.head(self.norm(x))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.p = heads, dropout
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.after, self.last = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)

    def split(self, x: Any) -> Any:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: Any, mask: Any) -> Any:
        q, k, v = (self.split(f(x)) for f in (self.query, self.key, self.value))
        p = self.p if self.training else 0.0
        seen = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
        seen = self.out(seen.transpose(1, 2).flatten(2))
        x = self.after(x + self.drop(seen))
        return self.last(x + self.drop(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """Encoder with a mask of padding and a head for masked words."""

    def __init__(
        self,
        width: int = 192,
        heads: int = 3,
        layers: int = 3,
        vocabulary: int = 1500,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(256, width)
        self.kinds = nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            BertLayer(width, heads, dropout) for _ in range(layers)
        )
        self.turn = nn.Linear(width, width)
        self.turned = nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, ids: Any, attended: Any) -> Any:
        places = torch.arange(ids.size(1), device=ids.device)
        kinds = torch.zeros_like(ids)
        x = self.words(ids) + self.places(places) + self.kinds(kinds)
        x = self.drop(self.norm(x))
        mask = attended[:, None, None, :].to(x.dtype)
        mask = (1.0 - mask) * torch.finfo(x.dtype).min
        mask = mask.expand(-1, -1, ids.size(1), -1)
        for layer in self.layers:
            x = layer(x, mask)
        x = self.turned(F.gelu(self.turn(x)))
        return F.linear(x, self.words.weight, self.bias)


class T5Norm(nn.Module):
    """RMSNorm as T5 writes it, of single operations."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Any) -> Any:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + 1e-6))


class T5Attention(nn.Module):
    """Attention by matrix products, with a learned bias of relative places."""

    def __init__(self, width: int, heads: int, *, biased: bool, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.bias = nn.Embedding(32, heads) if biased else None

    def forward(self, x: Any, memory: Any, bias: Any = None) -> tuple[Any, Any]:
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k = self.k(memory).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        v = self.v(memory).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(3, 2))
        if bias is None:
            bias = self.relative(x.size(1), memory.size(1), x.device)
        scores += bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        weights = F.dropout(weights, p=0.1, training=self.training)
        return self.o(torch.matmul(weights, v).transpose(1, 2).flatten(2)), bias

    def relative(self, queries: int, keys: int, device: Any) -> Any:
        rows = torch.arange(queries, dtype=torch.long, device=device)[:, None]
        columns = torch.arange(keys, dtype=torch.long, device=device)[None, :]
        away = (columns - rows).abs()
        exact = away < 16
        far = 16 + (torch.log(away.float() / 16) / math.log(8) * 16).to(torch.long)
        far = torch.min(far, torch.full_like(far, 31))
        bucket = torch.where(exact, away, far).clamp(0, 31)
        if self.bias is None:
            return torch.zeros((1, self.heads, queries, keys), device=device)
        found = self.bias(bucket).permute(2, 0, 1).unsqueeze(0)
        if self.causal:
            hidden = torch.ones(queries, keys, device=device).tril() == 0
            found = found.masked_fill(hidden, torch.finfo(found.dtype).min)
        return found


class T5Layer(nn.Module):
    def __init__(self, width: int, heads: int, *, decodes: bool, first: bool) -> None:
        super().__init__()
        self.norm = T5Norm(width)
        self.own = T5Attention(width, heads, biased=first, causal=decodes)
        self.cross_norm = T5Norm(width) if decodes else None
        self.cross = (
            T5Attention(width, heads, biased=False, causal=False) if decodes else None
        )
        self.last = T5Norm(width)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Any, memory: Any = None, bias: Any = None) -> tuple[Any, Any]:
        normed = self.norm(x)
        seen, bias = self.own(normed, normed, bias)
        x = x + F.dropout(seen, 0.1, self.training)
        if self.cross is not None and self.cross_norm is not None:
            x = x + F.dropout(
                self.cross(self.cross_norm(x), memory)[0], 0.1, self.training
            )
        normed = self.last(x)
        hidden = F.gelu(self.gate(normed), approximate="tanh") * self.up(normed)
        return x + self.down(F.dropout(hidden, 0.1, self.training)), bias


class T5(nn.Module):
    def __init__(self, width: int = 128, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, width)
        self.encoder = nn.ModuleList(
            T5Layer(width, heads, decodes=False, first=not i) for i in range(layers)
        )
        self.decoder = nn.ModuleList(
            T5Layer(width, heads, decodes=True, first=not i) for i in range(layers)
        )
        self.encoded, self.decoded = T5Norm(width), T5Norm(width)
        self.head = nn.Linear(width, 1000, bias=False)

    def forward(self, source: Any, target: Any) -> Any:
        x, bias = self.words(source), None
        for layer in self.encoder:
            x, bias = layer(x, bias=bias)
        memory, bias = self.encoded(x), None
        y = self.words(target)
        for layer in self.decoder:
            y, bias = layer(y, memory, bias)
        return self.head(self.decoded(y))


class Vit(nn.Module):
    def __init__(self, width: int = 192, heads: int = 3, layers: int = 3) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, stride=16)
        self.kind = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.layers = nn.ModuleList(BertLayer(width, heads, 0.0) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, images: Any) -> Any:
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.kind.expand(x.size(0), -1, -1), x), dim=1) + self.places
        for layer in self.layers:
            x = layer(x, None)
        return self.head(self.norm(x)[:, 0])


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Experts(nn.Module):
    """Two of several feed-forward layers a token, each of a fixed capacity."""

    def __init__(self, width: int, experts: int = 4) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.aside = nn.Parameter(torch.randn(experts, width, 2 * width) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * 0.02)

    def forward(self, x: Any) -> Any:
        flat = x.flatten(0, 1)
        capacity = flat.size(0) // 2
        chances = F.softmax(self.gate(flat), dim=1, dtype=torch.float)
        weights, chosen = torch.topk(chances, 2, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(flat.dtype)
        routed = torch.zeros_like(chances).scatter(1, chosen, weights.float())
        share, rows = torch.topk(routed.t(), capacity, dim=-1)
        taken = flat[rows]
        hidden = F.silu(torch.bmm(taken, self.up)) * torch.bmm(taken, self.aside)
        made = torch.bmm(hidden, self.down) * share.unsqueeze(-1).to(flat.dtype)
        out = torch.zeros_like(flat)
        out.index_add_(0, rows.flatten(), made.flatten(0, 1).to(flat.dtype))
        return out.view_as(x)


class LlamaLayer(nn.Module):
    def __init__(
        self, width: int, heads: int, shared: int, *, moe: bool, fused: bool
    ) -> None:
        super().__init__()
        self.heads, self.groups, self.fused = heads, shared, fused
        size = width // heads
        self.before, self.between = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, shared * size, bias=False)
        self.v = nn.Linear(width, shared * size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.experts = Experts(width) if moe else None
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Any, cos: Any, sin: Any) -> Any:
        x = x + self.attended(self.before(x), cos, sin)
        normed = self.between(x)
        if self.experts is not None:
            return x + self.experts(normed)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))

    def attended(self, x: Any, cos: Any, sin: Any) -> Any:
        q = rotated(self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2), cos, sin)
        k = self.k(x).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        v = self.v(x).unflatten(-1, (self.groups, -1)).transpose(1, 2)
        k = rotated(k, cos, sin)
        if not self.fused:
            times = self.heads // self.groups
            k, v = (t.repeat_interleave(times, dim=1) for t in (k, v))
        seen = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=self.fused
        )
        return self.o(seen.transpose(1, 2).flatten(2))


class Llama(nn.Module):
    """RMSNorm, rotary places, grouped queries and SwiGLU; Mixtral's with ``moe``."""

    def __init__(  # noqa: PLR0913, a model's sizes
        self,
        width: int = 256,
        heads: int = 8,
        layers: int = 3,
        *,
        moe: bool = False,
        fused: bool = False,
        checkpointed: bool = False,
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.words = nn.Embedding(2000, width)
        self.layers = nn.ModuleList(
            LlamaLayer(width, heads, 2, moe=moe, fused=fused) for _ in range(layers)
        )
        self.norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, 2000, bias=False)
        turns = 1.0 / 10000 ** (torch.arange(0, width // heads, 2) / (width // heads))
        self.register_buffer("turns", turns.float(), persistent=False)

    def forward(self, ids: Any) -> Any:
        x = self.words(ids)
        places = torch.arange(ids.size(1), device=ids.device).float()
        angles = torch.outer(places, self.turns)
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            if self.checkpointed:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False)
            else:
                x = layer(x, cos, sin)
        return self.head(self.norm(x))


class MixerLayer(nn.Module):
    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along = nn.Sequential(
            nn.Linear(tokens, 256), nn.GELU(), nn.Linear(256, tokens)
        )
        self.across = nn.Sequential(
            nn.Linear(width, 512), nn.GELU(), nn.Dropout(0.1), nn.Linear(512, width)
        )

    def forward(self, x: Any) -> Any:
        x = x + self.along(self.before(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.between(x))


class Mixer(nn.Module):
    def __init__(self, width: int = 128, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.layers = nn.Sequential(*(MixerLayer(144, width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: Any) -> Any:
        x = self.patches(images).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.layers(x)).mean(dim=1))


class Translator(nn.Module):
    """``nn.Transformer`` with masks, as in the tutorial."""

    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(800, width), nn.Embedding(800, width)
        self.transformer = nn.Transformer(
            width, heads, 2, 2, 4 * width, dropout=0.1, batch_first=True
        )
        self.head = nn.Linear(width, 800)

    def forward(self, source: Any, target: Any) -> Any:
        size = target.size(1)
        mask = nn.Transformer.generate_square_subsequent_mask(
            size, device=target.device
        )
        made = self.transformer(
            self.source(source) * math.sqrt(128), self.target(target), tgt_mask=mask
        )
        return self.head(made)
