"""Whether blame by operation names the planted line, and nothing where nothing changed.

``python benchmarks/blame.py`` plants 20 changes in a small GPT, then compares 200 times code
with itself, half of them with other line numbers. ``python benchmarks/blame.py cost`` says
what the digest adds to a measurement, in turns with and without it, and its bytes.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from pytest_gpuperf.devices.cpu.device import CpuDevice
from pytest_gpuperf.devices.operations import OperationLog
from pytest_gpuperf.devices.operations import operations_of_step
from pytest_gpuperf.devices.pretend.device import PretendDevice
from pytest_gpuperf.judge.operations import Digest
from pytest_gpuperf.judge.operations import blamed
from pytest_gpuperf.measure.plan import MeasurePlan
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.environment import Environment
from pytest_gpuperf.model.environment import Hardware
from pytest_gpuperf.model.measurement import Measurement
from pytest_gpuperf.report.screen.operations import blame_texts
from pytest_gpuperf.worker.items import below
from pytest_gpuperf.worker.measurer import measured_call


PROGRAM = """\
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(batch, length, self.heads, -1).transpose(1, 2)
        k = k.view(batch, length, self.heads, -1).transpose(1, 2)
        v = v.view(batch, length, self.heads, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(batch, length, width)
        return self.out(y)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def mlp(self, x):
        x = F.gelu(self.up(x))
        return self.down(x)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, width=32, heads=4, layers=4, words=64):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def scores(logits, targets):
    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    return losses


def mixed(table, rows):
    return torch.matmul(table, rows)


def trainer(device="cpu"):
    torch.manual_seed(0)
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    tokens = torch.randint(0, 64, (4, 16), device=device)
    table = torch.randn(8, 16, 16, device=device)
    rows = torch.randn(8, 16, 16, device=device)

    def step():
        optimizer.zero_grad()
        logits = model(tokens)
        loss = scores(logits, tokens)
        loss = loss + mixed(table, rows).mean()
        loss.backward()
        optimizer.step()

    return step
"""

Q = "        q = q.view(batch, length, self.heads, -1).transpose(1, 2)\n"
SDPA = "F.scaled_dot_product_attention(q, k, v, is_causal=True)"
ADD = "        x = x + self.attention(self.norm1(x))\n"
LOOP = "            x = block(x)\n"
LOSS = "    losses = F.cross_entropy(logits.flatten(0, 1), targets.flatten())\n"
CALL = "        logits = model(tokens)\n"

PLANTED: dict[str, tuple[str, str, str]] = {
    "extra contiguous": (Q, Q.replace("2)\n", "2).contiguous()\n"), "contiguous"),
    "cast to double": (LOSS, LOSS.replace("1)", "1).double()"), "double"),
    "cast there and back": (
        ADD,
        ADD + "        x = x.bfloat16().float()\n",
        "bfloat16",
    ),
    "clone": (LOOP, LOOP.replace("x)", "x).clone()"), "clone"),
    "forward twice": (CALL, "        model(tokens)\n" + CALL, "        model(tokens)"),
    "forward twice, one line": (
        "loss = scores(logits, tokens)",
        "loss = scores(logits, tokens) + 0 * scores(model(tokens), tokens)",
        "scores(model",
    ),
    "attention by hand": (
        SDPA,
        "(q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))).softmax(-1) @ v",
        "softmax",
    ),
    "gelu by hand": (
        "F.gelu(self.up(x))",
        "(lambda y: y * (1 + torch.tanh(0.8 * y + 0.04 * y**3)))(self.up(x))",
        "tanh",
    ),
    "loop instead of a batched product": (
        "torch.matmul(table, rows)",
        "torch.stack([a @ b for a, b in zip(table, rows)])",
        "torch.stack",
    ),
    "einsum instead of matmul": (
        "torch.matmul(table, rows)",
        "torch.einsum('bij,bjk->ik', table, rows)",
        "einsum",
    ),
    "added norm": (
        "        return self.out(y)",
        "        y = F.layer_norm(y, (width,))\n        return self.out(y)",
        "F.layer_norm",
    ),
    "optimizer without foreach": ("foreach=True", "foreach=False", "optimizer.step()"),
    "gradients cleared in place": (
        "zero_grad()",
        "zero_grad(set_to_none=False)",
        "zero_grad",
    ),
    "new copy": (CALL, "        tokens.copy_(tokens.flip(0))\n" + CALL, "copy_"),
    "checkpointed layers": (
        "block(x)",
        "checkpoint(block, x, use_reentrant=False)",
        "checkpoint(",
    ),
    "added dropout": (
        "        return self.down(x)",
        "        return F.dropout(self.down(x), 0.1)",
        "dropout",
    ),
    "gradients clipped": (
        "        optimizer.step()\n",
        "        nn.utils.clip_grad_norm_(model.parameters(), 1); optimizer.step()\n",
        "clip_grad",
    ),
    "a norm of all weights logged": (
        "        optimizer.step()\n",
        "        optimizer.step()\n        sum(p.norm() for p in model.parameters())\n",
        "p.norm()",
    ),
    "loss of single rows": (
        LOSS,
        "    losses = sum(F.cross_entropy(a, b) for a, b in zip(logits, targets))\n",
        "F.cross_entropy(a, b)",
    ),
    "hidden states kept": (
        LOOP,
        LOOP + "            self.last = x.detach().cpu().clone()\n",
        "self.last",
    ),
}


class Version:
    """A program in a folder of its own."""

    def __init__(self, folder: Path, text: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.text = folder, text
        path = folder / "net.py"
        path.write_text(text)
        specification = importlib.util.spec_from_file_location("net", path)
        assert specification
        assert specification.loader
        module = importlib.util.module_from_spec(specification)
        specification.loader.exec_module(module)
        self.trainer = module.trainer
        self.step = module.trainer()
        self.step()

    def digest(self) -> Digest:
        found = operations_of_step(self.step, (), str(self.folder))
        hardware = Hardware(kind=DeviceKind.CPU, name="x")
        measured = Measurement(
            test="t",
            environment=Environment(hardware=hardware, software={}),
            operations=found,
        )
        return below(self.folder, measured).operations


def planted(folder: Path) -> int:
    """Print whether each line is found, and return how many are."""
    before = Version(folder / "before", PROGRAM).digest()
    hits = 0
    for name, (old, new, expected) in PLANTED.items():
        assert PROGRAM.count(old) >= 1, name
        text = PROGRAM.replace(old, new, 1)
        after = Version(folder / name.replace(" ", "-"), text).digest()
        found = blamed([before], [after])
        lines = text.splitlines()
        named = [lines[c.location.line - 1] if c.location else "" for c in found[:3]]
        hit = next((n for n, line in enumerate(named, 1) if expected in line), 0)
        hits += hit > 0
        print(f"{f'line {hit}' if hit else 'MISSED':8}{name}")
        for change in found[: 3 if not hit else 1]:
            print("           ", *blame_texts([change]))
    return hits


def unchanged(folder: Path) -> int:
    """Return how many of 200 comparisons of code with itself are blamed for nothing."""
    before = Version(folder / "same", PROGRAM)
    lines = PROGRAM.splitlines(keepends=True)
    others = [
        Version(folder / f"moved{n}", "".join([*lines[:n], "# moved\n", *lines[n:]]))
        for n in range(20)
    ]
    clean = 0
    for number in range(100):
        clean += not blamed([before.digest()], [before.digest()])
        clean += not blamed([before.digest()], [others[number % 20].digest()])
    return clean


def cost_on_cpu(folder: Path) -> None:
    """Print what the digest adds to a run: the median of ratios in turns."""
    version = Version(folder, PROGRAM)
    device = CpuDevice(root=str(folder))
    plan = MeasurePlan(test="t", seconds=60.0, root=folder)
    subject = Subject(step=version.step)
    run: Callable[[], Any] = partial(measured_call, device, subject, plan)
    run()
    ratios = []
    for _ in range(5):
        with_it, found = timed(run)
        with patch.object(CpuDevice, "operations", lambda *_: ()):
            without, _ = timed(run)
        ratios.append(with_it / without)
    shown = ", ".join(f"{ratio:.3f}" for ratio in sorted(ratios))
    size = len(json.dumps(encode_briefly(below(folder, found.measurement).operations)))
    print(f"cpu: a run takes {median(ratios):.3f} times as long ({shown})")
    print(f"cpu: {with_it:.2f} s of CPU time a run, digest of {size} bytes")


def cost_on_pretend(folder: Path) -> None:
    """Print what the digest adds to the one step of a run that locates its work."""
    version = Version(folder, PROGRAM)
    device = PretendDevice(root=str(folder))
    device.enter()
    step = version.trainer("cuda")
    plain: Callable[[], Any] = partial(device.audit, step, ())
    located: Callable[[], Any] = partial(device.audit, step, (), locate_work=True)
    plain()
    took: list[tuple[float, float, float]] = []
    for _ in range(15):
        with patch.object(OperationLog, "saw", lambda *_, **__: None):
            without, _ = timed(located)
        took.append((timed(plain)[0], without, timed(located)[0]))
    device.leave()
    shown = [f"{1e3 * median(times):.1f}" for times in zip(*took, strict=True)]
    print(
        f"pretend: a step takes {shown[0]} ms, one that locates its work {shown[1]} ms, "
        f"with the digest {shown[2]} ms"
    )


def timed(run: Callable[[], Any]) -> tuple[float, SimpleNamespace]:
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def main() -> None:
    torch.set_num_threads(1)
    with TemporaryDirectory() as name:
        if "cost" in sys.argv[1:]:
            cost_on_cpu(Path(name) / "cpu")
            cost_on_pretend(Path(name) / "pretend")
            return
        hits, clean = planted(Path(name)), unchanged(Path(name))
    print(f"planted: {hits} of {len(PLANTED)} named within three lines of blame")
    print(f"unchanged: {clean} of 200 blamed for nothing")
    sys.exit(hits < len(PLANTED) - 1 or clean < 200)


if __name__ == "__main__":
    main()
