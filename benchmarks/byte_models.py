"""Models as people write them, small: what `agreement_bytes.py` trains.

Of words first, then of images, sound, tables and sequences.
"""

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


def normed(inputs: int, outputs: int, kernel: int, **options: Any) -> nn.Sequential:
    options.setdefault("padding", kernel // 2)
    convolution = nn.Conv2d(inputs, outputs, kernel, bias=False, **options)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.drop = nn.Dropout2d(0.25)
        self.hidden, self.out = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.second(F.relu(self.first(x)))), 2)
        x = F.relu(self.hidden(torch.flatten(self.drop(x), 1)))
        return F.log_softmax(self.out(F.dropout(x, 0.5, self.training)), dim=1)


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.reduce = normed(inputs, width, 1)
        self.middle = normed(width, width, 3, stride=stride)
        self.widen = normed(width, 4 * width, 1)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            normed(inputs, 4 * width, 1, stride=stride)
            if stride != 1 or inputs != 4 * width
            else None
        )

    def forward(self, x: Any) -> Any:
        out = self.relu(self.middle(self.relu(self.reduce(x))))
        out = self.widen(out)
        out += x if self.shortcut is None else self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, width: int = 32, classes: int = 100) -> None:
        super().__init__()
        self.stem = normed(3, width, 7, stride=2)
        self.relu, self.pool = nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)
        layers: list[nn.Module] = []
        inputs = width
        for stage in range(3):
            for block in range(2):
                stride = 2 if stage and not block else 1
                layers.append(Bottleneck(inputs, width << stage, stride))
                inputs = 4 * (width << stage)
        self.layers = nn.Sequential(*layers)
        self.mean, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, classes)

    def forward(self, x: Any) -> Any:
        x = self.layers(self.pool(self.relu(self.stem(x))))
        return self.head(torch.flatten(self.mean(x), 1))


class Inverted(nn.Module):
    """A block of MobileNetV2 with the squeeze of V3."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = 4 * inputs
        self.adds = stride == 1 and inputs == outputs
        self.widen, self.act = normed(inputs, hidden, 1), nn.Hardswish()
        self.depth = normed(hidden, hidden, 3, stride=stride, groups=hidden)
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(hidden, hidden // 4, 1),
            nn.ReLU(),
            nn.Conv2d(hidden // 4, hidden, 1),
            nn.Hardsigmoid(),
        )
        self.narrow = normed(hidden, outputs, 1)

    def forward(self, x: Any) -> Any:
        out = self.act(self.depth(self.act(self.widen(x))))
        out = self.narrow(out * self.squeeze(out))
        return x + out if self.adds else out


class MobileNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, 16, 3, stride=2), nn.ReLU6(inplace=True))
        self.blocks = nn.Sequential(
            Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 48, 2)
        )
        self.head = nn.Linear(48, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class LayerNorm2d(nn.LayerNorm):
    def forward(self, x: Any) -> Any:
        x = x.permute(0, 2, 3, 1)
        return super().forward(x).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depth = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x: Any) -> Any:
        out = self.depth(x).permute(0, 2, 3, 1)
        out = self.scale * self.down(F.gelu(self.up(self.norm(out))))
        return x + self.dropped(out.permute(0, 3, 1, 2))

    def dropped(self, x: Any) -> Any:
        if not self.training:
            return x
        mask = x.new_empty((x.size(0), 1, 1, 1)).bernoulli_(0.9)
        return x * mask.div_(0.9)


class ConvNext(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (48, 96, 192)) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            nn.Conv2d(3, widths[0], 4, stride=4),
            LayerNorm2d(widths[0]),
        ]
        for width, wider in zip(widths, (*widths[1:], 0), strict=True):
            layers += [ConvNextBlock(width), ConvNextBlock(width)]
            if wider:
                layers += [LayerNorm2d(width), nn.Conv2d(width, wider, 2, stride=2)]
        self.layers = nn.Sequential(*layers)
        self.norm, self.head = nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 100)

    def forward(self, x: Any) -> Any:
        return self.head(self.norm(self.layers(x).mean([-2, -1])))


def twice(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        normed(inputs, outputs, 3),
        nn.ReLU(inplace=True),
        normed(outputs, outputs, 3),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.a, self.b = twice(3, width), twice(width, 2 * width)
        self.c = twice(2 * width, 4 * width)
        self.up_b = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up_a = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.d, self.e = twice(4 * width, 2 * width), twice(2 * width, width)
        self.head = nn.Conv2d(width, 1, 1)

    def forward(self, x: Any) -> Any:
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        b = self.d(torch.cat((self.up_b(c), b), dim=1))
        return self.head(self.e(torch.cat((self.up_a(b), a), dim=1)))


class TimedBlock(nn.Module):
    """A residual block that is given the time of the diffusion."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.before, self.between = (
            nn.GroupNorm(8, inputs),
            nn.GroupNorm(8, outputs),
        )
        self.time = nn.Linear(128, outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Any, time: Any) -> Any:
        out = self.first(F.silu(self.before(x)))
        out = out + self.time(F.silu(time))[:, :, None, None]
        out = self.second(self.drop(F.silu(self.between(out))))
        return out + (x if self.skip is None else self.skip(x))


class Looking(nn.Module):
    """Attention among the places of an image, by matrix products."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, dim=1)
        weights = torch.bmm(q.transpose(1, 2), k) * q.size(1) ** -0.5
        seen = torch.bmm(v, weights.softmax(dim=-1).transpose(1, 2))
        return x + self.out(seen.view_as(x))


class Denoiser(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 128))
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.a = TimedBlock(width, width)
        self.down = nn.Conv2d(width, width, 3, stride=2, padding=1)
        self.b, self.look = TimedBlock(width, 2 * width), Looking(2 * width)
        self.c = TimedBlock(2 * width, 2 * width)
        self.up = nn.Conv2d(2 * width, width, 3, padding=1)
        self.d, self.norm = TimedBlock(2 * width, width), nn.GroupNorm(8, width)
        self.head = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Any, times: Any) -> Any:
        turns = torch.exp(torch.arange(32, device=x.device) * (-math.log(10000) / 31))
        angles = times.float()[:, None] * turns[None]
        time = self.time(torch.cat((angles.sin(), angles.cos()), dim=-1))
        a = self.a(self.stem(x), time)
        b = self.c(self.look(self.b(self.down(a), time)), time)
        b = self.up(F.interpolate(b, scale_factor=2.0, mode="nearest"))
        return self.head(F.silu(self.norm(self.d(torch.cat((b, a), dim=1), time))))


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside, self.mean = nn.Linear(784, 400), nn.Linear(400, 20)
        self.spread, self.back = nn.Linear(400, 20), nn.Linear(20, 400)
        self.out = nn.Linear(400, 784)

    def forward(self, x: Any) -> tuple[Any, Any, Any]:
        hidden = F.relu(self.inside(x.view(-1, 784)))
        mean, spread = self.mean(hidden), self.spread(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return torch.sigmoid(self.out(F.relu(self.back(code)))), mean, spread


class VqVae(nn.Module):
    """Codes of a fixed book, the nearest of which replaces each place."""

    def __init__(self, width: int = 32, codes: int = 128) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, width, 4, 2, 1)
        )
        self.book = nn.Embedding(codes, width)
        self.decode = nn.Sequential(
            nn.ConvTranspose2d(width, width, 4, 2, 1),
            nn.ReLU(),
            nn.ConvTranspose2d(width, 3, 4, 2, 1),
        )

    def forward(self, x: Any) -> tuple[Any, Any]:
        made = self.encode(x).permute(0, 2, 3, 1).contiguous()
        nearest = torch.cdist(made.flatten(0, 2), self.book.weight).argmin(dim=1)
        code = self.book(nearest).view_as(made)
        loss = F.mse_loss(code, made.detach()) + 0.25 * F.mse_loss(made, code.detach())
        code = made + (code - made).detach()
        return self.decode(code.permute(0, 3, 1, 2)), loss


def generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(64, 128, 4, 1, 0, bias=False),
        nn.BatchNorm2d(128),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(128, 64, 4, 2, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False),
        nn.Tanh(),
    )


def discriminator() -> nn.Module:
    return nn.Sequential(
        nn.utils.spectral_norm(nn.Conv2d(3, 64, 4, 2, 1, bias=False)),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(64, 128, 4, 2, 1, bias=False),
        nn.InstanceNorm2d(128, affine=True),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(128, 1, 4, 1, 0, bias=False),
        nn.Flatten(),
    )


class Upscaler(nn.Module):
    """Sub-pixel convolution."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.PReLU(),
            nn.Conv2d(width, width, 3, padding=1, padding_mode="reflect"),
            nn.PReLU(width),
            nn.Conv2d(width, 3 * 4, 3, padding=1),
            nn.PixelShuffle(2),
        )

    def forward(self, x: Any) -> Any:
        large = F.interpolate(
            x, scale_factor=2, mode="bilinear", align_corners=False, antialias=False
        )
        return self.layers(x) + large


class Speech(nn.Module):
    """Convolutions along time and a score of each letter."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(40, width, 11, stride=2, padding=5),
            nn.BatchNorm1d(width),
            nn.Hardtanh(0, 20),
            nn.Conv1d(width, width, 11, padding=5, groups=4),
            nn.GLU(dim=1),
            nn.Conv1d(width // 2, 29, 1),
        )

    def forward(self, x: Any) -> Any:
        return F.log_softmax(self.layers(x).permute(2, 0, 1), dim=-1)


class Dlrm(nn.Module):
    """Bags of categories and dense features, which meet in products of pairs."""

    def __init__(self, width: int = 32, *, sparse: bool = False) -> None:
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(n, width, mode="sum", sparse=sparse)
            for n in (5000, 3000, 100)
        )
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width))
        self.top = nn.Sequential(nn.Linear(width + 6, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, dense: Any, bags: Any, offsets: Any) -> Any:
        x = F.relu(self.dense(dense))
        parts = [x, *(b(i, offsets) for b, i in zip(self.bags, bags, strict=True))]
        together = torch.stack(parts, dim=1)
        pairs = torch.bmm(together, together.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, -1, device=x.device)
        return self.top(torch.cat((x, pairs[:, rows, columns]), dim=1)).squeeze(1)


class Recurrent(nn.Module):
    """Words one after the other, by a layer or by single cells."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.words, self.layer = nn.Embedding(500, width), layer
        self.head = nn.Linear(width, 500)

    def forward(self, ids: Any) -> Any:
        return self.head(self.layer(self.words(ids))[0])


class Cells(nn.Module):
    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Any) -> tuple[Any, Any]:
        state, outputs = None, []
        for part in x.unbind(1):
            state = self.cell(part, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, dim=1), state


class Graph(nn.Module):
    """Messages along edges, added up at each node."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.inside, self.out = nn.Linear(width, width), nn.Linear(width, 7)

    def forward(self, x: Any, edges: Any) -> Any:
        for layer in (self.inside, self.out):
            x = layer(x)
            degree = torch.zeros(x.size(0), device=x.device).scatter_add_(
                0, edges[1], torch.ones_like(edges[1], dtype=x.dtype)
            )
            messages = x[edges[0]] * degree.clamp(min=1).rsqrt()[edges[0]].unsqueeze(1)
            x = F.elu(torch.zeros_like(x).index_add(0, edges[1], messages))
        return x


class Radiance(nn.Module):
    """Colours along rays, by an encoding of places in waves."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(63, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.density, self.colour = nn.Linear(width, 1), nn.Linear(width, 3)

    def forward(self, rays: Any, depths: Any) -> Any:
        places = rays[:, None, :3] + rays[:, None, 3:] * depths[..., None]
        waves = [places]
        for octave in range(10):
            waves += [torch.sin(places * 2.0**octave), torch.cos(places * 2.0**octave)]
        hidden = self.layers(torch.cat(waves, dim=-1))
        density = F.softplus(self.density(hidden)).squeeze(-1)
        steps = torch.diff(depths, dim=-1, append=depths[:, -1:] + 1.0)
        alpha = 1.0 - torch.exp(-density * steps)
        seen = torch.cumsum(torch.log(1.0 - alpha + 1e-10), dim=-1).exp()
        weights = alpha * seen
        return (weights[..., None] * torch.sigmoid(self.colour(hidden))).sum(dim=1)


class Clip(nn.Module):
    """Two encoders with outputs that are compared with each other."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 32, 8, stride=8), nn.Flatten(), nn.Linear(32 * 64, width)
        )
        self.words = nn.Embedding(1000, width)
        layer = nn.TransformerEncoderLayer(width, 4, 256, batch_first=True)
        self.text = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.warmth = nn.Parameter(torch.tensor(2.6592))

    def forward(self, images: Any, ids: Any) -> Any:
        image = F.normalize(self.image(images), dim=-1)
        text = F.normalize(self.text(self.words(ids)).mean(dim=1), dim=-1)
        return self.warmth.exp() * image @ text.t()
