"""Models of images, sound, tables and sequences: what `agreement_bytes.py` trains."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, as everybody writes it
from torch import nn


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
