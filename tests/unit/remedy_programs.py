"""For each remedy a program before it and one after it.

Each is four steps of a loop, or what comes before it and the loop, in a fresh
``SETTING``, and leaves what it computed in ``result``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.metrics import KEPT_GRAPHS
from pytest_gpuperf.model.metrics import LOADER_WAIT


SETTING: Final = """
import io

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal
from torch.utils.data import DataLoader

torch.manual_seed(0)
STEPS = range(4)
device = "cuda"
grid = torch.randn(8, 4, device=device)
row = torch.randn(8, device=device)
labels = torch.randint(0, 4, (8,), device=device)
mask = grid > 0
number = torch.tensor(2.0).to(device)
square = grid.T @ grid + 4 * torch.eye(4, device=device)
lengths = torch.tensor([3, 2, 2, 1])
sequences = torch.randn(3, 4, 1, device=device)
gpu_lengths = lengths.to(device)
order = torch.tensor([3, 1, 2])
rows = torch.arange(32.0).view(8, 4)
model = nn.Linear(4, 4).to(device)
stream = torch.cuda.Stream()


def train(optimizer, scaler=None):
    loss = model(grid).square().mean()
    optimizer.zero_grad()
    (scaler.scale(loss) if scaler else loss).backward()
    return loss
"""


COMPILED: Final = """
import torch
import torch._dynamo
import torch.nn.functional as F

graphs, rows = 0, torch.arange(32.0).view(8, 4)


def compiled(step):
    torch._dynamo.reset()
    return torch.compile(step, backend=counted)


def counted(module, _inputs):
    global graphs
    graphs += 1
    return module.forward
"""

KEPT: Final = """
import weakref

history, outputs = [], []


def loss_of_step():
    output = model(grid)
    outputs.append(weakref.ref(output))
    return output.square().mean()
"""

LOADED: Final = """
from multiprocessing.reduction import ForkingPickler

calls = 0


class Rows:
    def __len__(self):
        return 64

    def __getitem__(self, i):
        global calls
        calls += 1
        return {"x": float(i)}


class Batches(Rows):
    def __getitems__(self, numbers):
        global calls
        calls += 1
        return torch.tensor(numbers, dtype=torch.float32)


def loaded(rows):
    return next(iter(DataLoader(rows, batch_size=64, collate_fn=lambda batch: batch)))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program *before* its remedy and *after* it, each with what it sets up for itself."""

    before: str
    after: str
    setting: str = ""
    on_gpu: bool = True
    until: tuple[int, int] | None = None
    """The release of torch from which on the one before does not wait either."""
    beside: str = ""
    """The rule of another wait on the same line, which ends as well."""


PROGRAMS: Final[dict[str, tuple[Program, ...]]] = {
    "synchronize": (
        Program(
            before="""
for _ in STEPS:
    result = grid @ square
    torch.cuda.synchronize()
""",
            after="""
for _ in STEPS:
    result = grid @ square
""",
        ),
    ),
    "stream-synchronize": (
        Program(
            before="""
for _ in STEPS:
    with torch.cuda.stream(stream):
        side = grid @ square
    stream.synchronize()
    result = side + 1
""",
            after="""
for _ in STEPS:
    with torch.cuda.stream(stream):
        side = grid @ square
    torch.cuda.current_stream().wait_stream(stream)
    result = side + 1
""",
        ),
        Program(
            setting="event = torch.cuda.Event()",
            before="""
for _ in STEPS:
    with torch.cuda.stream(stream):
        side = grid @ square
        event.record()
    event.synchronize()
    result = side + 1
""",
            after="""
for _ in STEPS:
    with torch.cuda.stream(stream):
        side = grid @ square
        event.record()
    torch.cuda.current_stream().wait_event(event)
    result = side + 1
""",
        ),
    ),
    "empty-cache": (
        Program(
            before="""
for _ in STEPS:
    result = grid @ square
    torch.cuda.empty_cache()
""",
            after="""
for _ in STEPS:
    result = grid @ square
""",
        ),
    ),
    "checkpoint": (
        Program(
            setting="file = io.BytesIO()",
            before="""
for step in STEPS:
    file.seek(0)
    torch.save(model.state_dict(), file)
result = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")["weight"]
""",
            after="""
for step in STEPS:
    if step % 4 == 3:
        file.seek(0)
        torch.save(model.state_dict(), file)
result = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")["weight"]
""",
        ),
    ),
    "printed-tensor": (
        Program(
            before="""
for step in STEPS:
    result = grid.mean() + step
    print(f"{result:.3f}")
""",
            after="""
for step in STEPS:
    result = grid.mean() + step
    kept = result.detach()
    if step % 4 == 3:
        print(f"{kept:.3f}")
""",
        ),
    ),
    "size": (
        Program(
            before="""
for _ in STEPS:
    result = grid.split(gpu_lengths.tolist())
""",
            after="""
for _ in STEPS:
    result = grid.split(lengths.tolist())
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = grid[:, : gpu_lengths.max()] + 1
""",
            after="""
for _ in STEPS:
    result = grid[:, : lengths.max()] + 1
""",
        ),
        Program(
            before="""
for _ in STEPS:
    packed = nn.utils.rnn.pack_padded_sequence(sequences, gpu_lengths.cpu())
    result = packed.data
""",
            after="""
for _ in STEPS:
    packed = nn.utils.rnn.pack_padded_sequence(sequences, lengths)
    result = packed.data
""",
        ),
    ),
    "condition": (
        Program(
            before="""
result = grid
for _ in STEPS:
    if result.mean() > 0:
        result = result - 1
    else:
        result = result + 1
""",
            after="""
result = grid
for _ in STEPS:
    result = torch.where(result.mean() > 0, result - 1, result + 1)
""",
        ),
        Program(
            before="""
result = grid
for step in STEPS:
    result = result * 2
    assert result.isfinite().all().item()
""",
            after="""
result = grid
for step in STEPS:
    result = result * 2
    if step % 4 == 3:
        assert result.isfinite().all().item()
""",
        ),
    ),
    "python-max": (
        Program(
            before="""
for _ in STEPS:
    result = max(row[0], row[1])
""",
            after="""
for _ in STEPS:
    result = torch.maximum(row[0], row[1])
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = min(number, 1.0)
""",
            after="""
for _ in STEPS:
    result = number.clamp(max=1.0)
""",
        ),
    ),
    "number-in-formula": (
        Program(
            before="""
for _ in STEPS:
    result = grid / number.item()
""",
            after="""
for _ in STEPS:
    result = grid / number.detach()
""",
        ),
        Program(
            before="""
result = 0.0
for _ in STEPS:
    result = 0.9 * result + 0.1 * float(grid.mean())
""",
            after="""
result = 0.0
for _ in STEPS:
    result = 0.9 * result + 0.1 * grid.mean().detach()
""",
        ),
    ),
    "tensor-of-tensors": (
        Program(
            beside="tensor-from-cpu",
            before="""
for _ in STEPS:
    result = torch.tensor([row[0], row[1]], device=device)
""",
            after="""
for _ in STEPS:
    result = torch.stack([row[0], row[1]])
""",
        ),
    ),
    "one-hot": (
        Program(
            setting="labels[0] = 3",
            before="""
for _ in STEPS:
    result = F.one_hot(labels)
""",
            after="""
for _ in STEPS:
    result = F.one_hot(labels, num_classes=4)
""",
        ),
    ),
    "distribution-check": (
        Program(
            # torch.compile switches the checks off, for all that follows.
            setting="torch.distributions.Distribution.set_default_validate_args(True)",
            before="""
for _ in STEPS:
    result = Categorical(logits=grid).log_prob(labels)
""",
            after="""
for _ in STEPS:
    result = Categorical(logits=grid, validate_args=False).log_prob(labels)
""",
        ),
    ),
    "grad-scaler": (
        Program(
            setting="scaler = torch.amp.GradScaler(init_scale=2.0)",
            before="""
sgd = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in STEPS:
    result = train(sgd, scaler)
    scaler.step(sgd)
    scaler.update()
""",
            after="""
sgd = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
for _ in STEPS:
    result = train(sgd, scaler)
    scaler.step(sgd)
    scaler.update()
""",
        ),
    ),
    "read-number": (
        Program(
            before="""
result = 0.0
for step in STEPS:
    result += (grid.mean() + step).item()
""",
            after="""
total = torch.zeros((), device=device)
for step in STEPS:
    total += (grid.mean() + step).detach()
    if step % 4 == 3:
        result = total.item()
""",
        ),
    ),
    "copy-to-cpu": (
        Program(
            before="""
kept = []
for step in STEPS:
    kept.append((row + step).detach().cpu())
result = torch.stack(kept)
""",
            after="""
kept = []
for step in STEPS:
    kept.append((row + step).detach())
    if step % 4 == 3:
        result = torch.stack(kept).cpu()
""",
        ),
    ),
    "made-on-cpu": (
        Program(
            before="""
for _ in STEPS:
    result = row + torch.zeros(8).to(device)
""",
            after="""
for _ in STEPS:
    result = row + torch.zeros(8, device=device)
""",
        ),
        Program(
            before="""
for step in STEPS:
    result = row + torch.arange(step, step + 8).cuda()
""",
            after="""
for step in STEPS:
    result = row + torch.arange(step, step + 8, device=device)
""",
        ),
    ),
    "constant": (
        Program(
            before="""
for _ in STEPS:
    result = grid * torch.tensor([10.0**n for n in range(4)]).to(device)
""",
            after="""
factors = torch.tensor([10.0**n for n in range(4)]).to(device)
for _ in STEPS:
    result = grid * factors
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = row * row.new_tensor(0.5)
""",
            after="""
half = row.new_tensor(0.5)
for _ in STEPS:
    result = row * half
""",
        ),
    ),
    "tensor-from-cpu": (
        Program(
            before="""
for step in STEPS:
    result = row * torch.tensor([step / 8] * 8, device=device)
""",
            after="""
for step in STEPS:
    weights = torch.tensor([step / 8] * 8, pin_memory=True)
    result = row * weights.to(device, non_blocking=True)
""",
        ),
        Program(
            before="""
for step in STEPS:
    result = row * torch.tensor(step / 8).to(device)
""",
            after="""
for step in STEPS:
    result = row * torch.full((), step / 8, device=device)
""",
        ),
    ),
    "put-number": (
        Program(
            before="""
result = row.clone()
for _ in STEPS:
    result[0] = 5.0
""",
            after="""
result = row.clone()
for _ in STEPS:
    result[0].fill_(5.0)
""",
        ),
        Program(
            before="""
result = grid.clone()
for step in STEPS:
    result[labels] = step / 2
""",
            after="""
result = grid.clone()
for step in STEPS:
    result[labels] = torch.full((), step / 2, device=device)
""",
        ),
    ),
    "pinned-batch": (
        Program(
            setting="loader = list(DataLoader(rows, batch_size=2, pin_memory=True))",
            before="""
result = 0
for batch in loader:
    result = result + batch.to(device)
""",
            after="""
result = 0
for batch in loader:
    result = result + batch.to(device, non_blocking=True)
""",
        ),
    ),
    "pageable-batch": (
        Program(
            before="""
result = 0
for batch in DataLoader(rows, batch_size=2):
    result = result + batch.to(device)
""",
            after="""
result = 0
for batch in DataLoader(rows, batch_size=2, pin_memory=True):
    result = result + batch.to(device, non_blocking=True)
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = grid * rows.cuda()
""",
            after="""
gpu_rows = rows.cuda()
for _ in STEPS:
    result = grid * gpu_rows
""",
        ),
    ),
    "cpu-index": (
        Program(
            before="""
for _ in STEPS:
    result = grid[order]
""",
            after="""
order = order.to(device)
for _ in STEPS:
    result = grid[order]
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = grid[:, [0, 2]]
""",
            after="""
columns = torch.tensor([0, 2], device=device)
for _ in STEPS:
    result = grid[:, columns]
""",
        ),
        Program(
            setting="weight = grid.clone().requires_grad_()",
            before="""
for _ in STEPS:
    chosen = weight[order]
    result, = torch.autograd.grad(chosen.sum(), weight)
""",
            after="""
order = order.to(device)
for _ in STEPS:
    chosen = weight[order]
    result, = torch.autograd.grad(chosen.sum(), weight)
""",
        ),
    ),
    "positions": (
        Program(
            setting="one_hot = F.one_hot(labels, 4)",
            before="""
for _ in STEPS:
    result = one_hot.nonzero()
""",
            after="""
for _ in STEPS:
    result = torch.nonzero_static(one_hot, size=8)
""",
        ),
        Program(
            before="""
for _ in STEPS:
    positions = torch.where(row > 0)
    result = row[positions].sum()
""",
            after="""
for _ in STEPS:
    result = (row * (row > 0)).sum()
""",
        ),
    ),
    "mask": (
        Program(
            before="""
for _ in STEPS:
    result = grid[mask].sum()
""",
            after="""
for _ in STEPS:
    result = (grid * mask).sum()
""",
        ),
        Program(
            before="""
result = grid.clone()
for _ in STEPS:
    result[mask] = (grid + 1)[mask]
""",
            after="""
result = grid.clone()
for _ in STEPS:
    result = torch.where(mask, grid + 1, result)
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = grid.masked_select(mask).sum()
""",
            after="""
for _ in STEPS:
    result = (grid * mask).sum()
""",
        ),
    ),
    "masked-fill": (
        Program(
            before="""
for _ in STEPS:
    result = grid.masked_fill(mask, number)
""",
            after="""
for _ in STEPS:
    result = torch.where(mask, number, grid)
""",
        ),
    ),
    "repeat-interleave": (
        Program(
            before="""
for _ in STEPS:
    result = torch.repeat_interleave(row[:4], gpu_lengths)
""",
            after="""
for _ in STEPS:
    result = torch.repeat_interleave(row[:4], gpu_lengths, output_size=8)
""",
        ),
    ),
    "unique": (
        Program(
            before="""
for _ in STEPS:
    kinds, counts = torch.unique(labels, return_counts=True)
    result = counts.max()
""",
            after="""
for _ in STEPS:
    counts = torch.zeros(4, dtype=torch.long, device=device)
    counts.scatter_add_(0, labels, torch.ones_like(labels))
    result = counts.max()
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = torch.bincount(labels, minlength=4)
""",
            after="""
for _ in STEPS:
    result = torch.zeros(4, dtype=torch.long, device=device)
    result.scatter_add_(0, labels, torch.ones_like(labels))
""",
        ),
    ),
    "histogram": (
        Program(
            setting="ends = row.min().item(), row.max().item()",
            before="""
for _ in STEPS:
    result = torch.histc(row, 4)
""",
            after="""
for _ in STEPS:
    result = torch.histc(row, 4, min=ends[0], max=ends[1])
""",
        ),
    ),
    "normal": (
        Program(
            until=(2, 14),
            before="""
for _ in STEPS:
    torch.manual_seed(1)
    result = torch.normal(row, row.abs())
""",
            after="""
for _ in STEPS:
    torch.manual_seed(1)
    result = row + row.abs() * torch.randn_like(row)
""",
        ),
        Program(
            until=(2, 14),
            setting="normal = Normal(row, row.abs() + 1, validate_args=False)",
            before="""
for _ in STEPS:
    torch.manual_seed(1)
    result = normal.sample()
""",
            after="""
for _ in STEPS:
    torch.manual_seed(1)
    with torch.no_grad():
        result = normal.rsample()
""",
        ),
    ),
    "linalg-check": (
        Program(
            before="""
for _ in STEPS:
    result = torch.linalg.inv(square)
""",
            after="""
for step in STEPS:
    result, info = torch.linalg.inv_ex(square)
    if step % 4 == 3:
        assert not info
""",
        ),
        Program(
            before="""
for _ in STEPS:
    result = torch.linalg.cholesky(square)
""",
            after="""
for _ in STEPS:
    result, info = torch.linalg.cholesky_ex(square)
""",
        ),
    ),
    "copy-to-gpu": (
        Program(
            setting="host_number = torch.tensor(0.5)",
            before="""
for _ in STEPS:
    result = torch.where(mask, host_number, grid)
""",
            after="""
gpu_number = host_number.to(device)
for _ in STEPS:
    result = torch.where(mask, gpu_number, grid)
""",
        ),
    ),
    "wait": (
        Program(
            setting="seen = []",
            before="""
for step in STEPS:
    same = torch.equal(grid, grid + step)
    seen.append(same)
result = seen[-1]
""",
            after="""
for step in STEPS:
    if step % 4 == 3:
        same = torch.equal(grid, grid + step)
        seen.append(same)
result = seen[-1]
""",
        ),
    ),
    "causal-mask": (
        Program(
            setting="""
causal = nn.Transformer.generate_square_subsequent_mask(8, device=device)
layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 1).to(device)
""",
            before="""
for _ in STEPS:
    result = encoder(grid[None], mask=causal)
""",
            after="""
for _ in STEPS:
    result = encoder(grid[None], mask=causal, is_causal=True)
""",
        ),
    ),
}
"""By the rule of the remedy."""


COSTS: Final[dict[Enum | str, Program]] = {
    FindingKind.BREAK: Program(
        setting=COMPILED,
        on_gpu=False,
        before="""
def step(x):
    x = x * 2
    seen.append(x.sum().item())
    return x + 1


seen = []
result = compiled(step)(rows)
cost = graphs
""",
        after="""
def step(x):
    x = x * 2
    return x, x + 1


seen = []
doubled, result = compiled(step)(rows)
seen.append(doubled.sum().item())
cost = graphs
""",
    ),
    FindingKind.RECOMPILE: Program(
        setting=COMPILED,
        on_gpu=False,
        before="""
step = compiled(lambda x: x.square().sum())
result = sum(step(batch) for batch in rows.split(3))
cost = graphs
""",
        after="""
padded = [F.pad(batch, (0, 0, 0, 3 - len(batch))) for batch in rows.split(3)]
step = compiled(lambda x: x.square().sum())
result = sum(step(batch) for batch in padded)
cost = graphs
""",
    ),
    FindingKind.LEFT: Program(
        setting=KEPT,
        before="""
for _ in STEPS:
    history.append(loss_of_step())
cost, result = sum(each() is not None for each in outputs), history[-1]
""",
        after="""
for _ in STEPS:
    history.append(loss_of_step().detach())
cost, result = sum(each() is not None for each in outputs), history[-1]
""",
    ),
    LOADER_WAIT.name: Program(
        setting=LOADED,
        before="""
batch = loaded(Rows())
cost = calls, len(ForkingPickler.dumps(batch))
result = torch.tensor([row["x"] for row in batch])
""",
        after="""
batch = loaded(Batches())
cost = calls, len(ForkingPickler.dumps(batch))
result = batch
""",
    ),
}
"""By what is advised; a program leaves its ``cost``, or waits and operations are counted."""

COSTS[KEPT_GRAPHS.name] = COSTS[FindingKind.LEFT]
