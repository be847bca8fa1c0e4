"""For each remedy a program before it and one after it.

Each is four steps of a loop, or what comes before it and the loop, in a fresh
``SETTING``, and leaves what it computed in ``result``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from pytest_gpuperf.model.finding import FindingKind
from pytest_gpuperf.model.metrics import LOADER_WAIT, RETAINED_GRAPHS


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


BATCH: Final = """
class Batch:
    def __init__(self, rows):
        self.x = torch.stack(rows)


class PinnedBatch(Batch):
    def pin_memory(self):
        self.x = self.x.pin_memory()
        return self
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
    """The rule of another sync on the same line, which ends as well."""


def remedied(change: str, **known: Any) -> Program:
    """A program whose remedy is a *change*, with the lines that go and those that come."""
    lines = change.strip("\n").split("\n")
    before = [line[2:] for line in lines if not line.startswith("+")]
    after = [line[2:] for line in lines if not line.startswith("-")]
    return Program(before="\n".join(before), after="\n".join(after), **known)


def each_step(before: str, after: str, *, once: str = "", **known: Any) -> Program:
    """A program whose steps do *before*; the remedy does *after*, and a line *once*."""
    loop = "for step in STEPS:\n    "
    return Program(
        before=f"{loop}{before}\n", after=f"{once}\n{loop}{after}\n", **known
    )


PROGRAMS: Final[dict[str, tuple[Program, ...]]] = {
    "synchronize": (
        remedied("""
  for _ in STEPS:
      result = grid @ square
-     torch.cuda.synchronize()
"""),
    ),
    "stream-synchronize": (
        remedied("""
  for _ in STEPS:
      with torch.cuda.stream(stream):
          side = grid @ square
-     stream.synchronize()
+     torch.cuda.current_stream().wait_stream(stream)
      result = side + 1
"""),
        remedied(
            """
  for _ in STEPS:
      with torch.cuda.stream(stream):
          side = grid @ square
          event.record()
-     event.synchronize()
+     torch.cuda.current_stream().wait_event(event)
      result = side + 1
""",
            setting="event = torch.cuda.Event()",
        ),
    ),
    "empty-cache": (
        remedied("""
  for _ in STEPS:
      result = grid @ square
-     torch.cuda.empty_cache()
"""),
    ),
    "checkpoint": (
        remedied(
            """
  for step in STEPS:
-     file.seek(0)
-     torch.save(model.state_dict(), file)
+     if step % 4 == 3:
+         file.seek(0)
+         torch.save(model.state_dict(), file)
  result = torch.load(io.BytesIO(file.getvalue()), map_location="cpu")["weight"]
""",
            setting="file = io.BytesIO()",
        ),
    ),
    "printed-tensor": (
        remedied("""
  for step in STEPS:
      result = grid.mean() + step
-     print(f"{result:.3f}")
+     kept = result.detach()
+     if step % 4 == 3:
+         print(f"{kept:.3f}")
"""),
    ),
    "size": (
        each_step(
            "result = grid.split(gpu_lengths.tolist())",
            "result = grid.split(lengths.tolist())",
        ),
        each_step(
            "result = grid[:, : gpu_lengths.max()] + 1",
            "result = grid[:, : lengths.max()] + 1",
        ),
        remedied("""
  for _ in STEPS:
-     packed = nn.utils.rnn.pack_padded_sequence(sequences, gpu_lengths.cpu())
+     packed = nn.utils.rnn.pack_padded_sequence(sequences, lengths)
      result = packed.data
"""),
        remedied(
            """
  for _ in STEPS:
-     n = int(labels.max()) + 1
+     n = kinds
      result = torch.zeros(n, device=device).index_add(0, labels, row)
""",
            setting="kinds = 4; labels[0] = 3",
        ),
    ),
    "random-choice": (
        remedied(
            """
  result = grid
  for _ in STEPS:
-     teacher = torch.rand(1, device=device) < 2
+     teacher = random.random() < 2
      result = result + 1 if teacher else result
""",
            setting="import random",
        ),
    ),
    "checks-of-each": (
        each_step(
            "result = all(torch.isfinite(p).all() for p in model.parameters())",
            "result = bool(torch.stack([torch.isfinite(p).all() for p in model.parameters()]).all())",
        ),
    ),
    "condition": (
        remedied("""
  best = torch.inf
  for step in STEPS:
-     found = row[step].item()
-     best = found if found < best else best
+     found = row[step]
+     best = torch.where(found < best, found, best)
  result = best
"""),
        remedied("""
  result = grid
  for _ in STEPS:
-     if result.mean() > 0:
-         result = result - 1
-     else:
-         result = result + 1
+     result = torch.where(result.mean() > 0, result - 1, result + 1)
"""),
        remedied("""
  result = grid
  for step in STEPS:
      result = result * 2
-     assert result.isfinite().all().item()
+     if step % 4 == 3:
+         assert result.isfinite().all().item()
"""),
    ),
    "python-max": (
        each_step(
            "result = max(row[0], row[1])", "result = torch.maximum(row[0], row[1])"
        ),
        each_step("result = min(number, 1.0)", "result = number.clamp(max=1.0)"),
    ),
    "number-in-formula": (
        each_step("result = grid / number.item()", "result = grid / number.detach()"),
        remedied("""
  result = 0.0
  for _ in STEPS:
-     result = 0.9 * result + 0.1 * float(grid.mean())
+     result = 0.9 * result + 0.1 * grid.mean().detach()
"""),
    ),
    "tensor-of-tensors": (
        each_step(
            "result = torch.tensor([row[0], row[1]], device=device)",
            "result = torch.stack([row[0], row[1]])",
            beside="tensor-from-cpu",
        ),
    ),
    "one-hot": (
        each_step(
            "result = F.one_hot(labels)",
            "result = F.one_hot(labels, num_classes=4)",
            setting="labels[0] = 3",
        ),
    ),
    "distribution-check": (
        each_step(
            "result = Categorical(logits=grid).log_prob(labels)",
            "result = Categorical(logits=grid, validate_args=False).log_prob(labels)",
            setting="torch.distributions.Distribution.set_default_validate_args(True)",
        ),
    ),
    "grad-scaler": (
        remedied(
            """
- sgd = torch.optim.SGD(model.parameters(), lr=0.1)
+ sgd = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
  for _ in STEPS:
      result = train(sgd, scaler)
      scaler.step(sgd)
      scaler.update()
""",
            setting="scaler = torch.amp.GradScaler(init_scale=2.0)",
        ),
    ),
    "kept-number": (
        remedied("""
  kept = []
  for step in STEPS:
-     kept.append((grid.mean() + step).item())
- result = torch.tensor(kept)
+     kept.append((grid.mean() + step).detach())
+ result = torch.tensor(torch.stack(kept).tolist())
"""),
    ),
    "kept-in-object": (
        remedied("""
  kept = {}
  for step in STEPS:
-     kept["loss"] = (grid.mean() + step).item()
- result = torch.tensor(kept["loss"])
+     kept["loss"] = (grid.mean() + step).detach()
+ result = torch.tensor(kept["loss"].item())
"""),
    ),
    "position": (
        remedied("""
  def best_of(x):
-     return x.argmax().item()
+     return x.argmax()
  for step in STEPS:
-     result = grid[best_of(row + step)]
+     result = grid.index_select(0, best_of(row + step)[None])[0]
"""),
        remedied(
            """
+ edges = [0.0, 1.0, 2.0, 3.0]
  def bin_of(x):
-     return int(torch.searchsorted(edges, x))
+     return next(n for n, edge in enumerate(edges) if edge >= x)
  for step in STEPS:
-     result = bin_of(number - step % 2)
+     result = bin_of(2.0 - step % 2)
""",
            setting="edges = torch.arange(4.0, device=device)",
        ),
    ),
    "read-number": (
        remedied("""
- result = 0.0
+ total = torch.zeros((), device=device)
  for step in STEPS:
-     result += (grid.mean() + step).item()
+     total += (grid.mean() + step).detach()
+     if step % 4 == 3:
+         result = total.item()
"""),
    ),
    "copy-to-cpu": (
        remedied("""
  kept = []
  for step in STEPS:
-     kept.append((row + step).detach().cpu())
- result = torch.stack(kept)
+     kept.append((row + step).detach())
+     if step % 4 == 3:
+         result = torch.stack(kept).cpu()
"""),
    ),
    "made-on-cpu": (
        each_step(
            "result = row + torch.zeros(8).to(device)",
            "result = row + torch.zeros(8, device=device)",
        ),
        each_step(
            "result = row + torch.arange(step, step + 8).cuda()",
            "result = row + torch.arange(step, step + 8, device=device)",
        ),
        each_step(
            "result = row * torch.exp(-torch.arange(8) / 8).to(device)",
            "result = row * torch.exp(-torch.arange(8, device=device) / 8)",
        ),
        each_step(
            "result = row.clone().copy_(torch.ones(8))",
            "result = row.clone().copy_(torch.ones(8, device=device))",
        ),
    ),
    "constant": (
        remedied("""
+ factors = torch.tensor([10.0**n for n in range(4)]).to(device)
  for _ in STEPS:
-     result = grid * torch.tensor([10.0**n for n in range(4)]).to(device)
+     result = grid * factors
"""),
        each_step(
            "result = row * row.new_tensor(0.5)",
            "result = row * half",
            once="half = row.new_tensor(0.5)",
        ),
    ),
    "tensor-from-cpu": (
        remedied("""
  for step in STEPS:
-     result = row * torch.tensor([step / 8] * 8, device=device)
+     weights = torch.tensor([step / 8] * 8, pin_memory=True)
+     result = row * weights.to(device, non_blocking=True)
"""),
        each_step(
            "result = row * torch.tensor(step / 8).to(device)",
            "result = row * torch.full((), step / 8, device=device)",
        ),
    ),
    "put-number": (
        remedied("""
  result = row.clone()
  for _ in STEPS:
-     result[0] = 5.0
+     result[0].fill_(5.0)
"""),
        remedied("""
  result = grid.clone()
  for step in STEPS:
-     result[labels] = step / 2
+     result[labels] = torch.full((), step / 2, device=device)
"""),
    ),
    "pinned-batch": (
        remedied(
            """
  result = 0
  for batch in loader:
-     result = result + batch.to(device)
+     result = result + batch.to(device, non_blocking=True)
""",
            setting="loader = list(DataLoader(rows, batch_size=2, pin_memory=True))",
        ),
    ),
    "pageable-batch": (
        remedied("""
  result = 0
- for batch in DataLoader(rows, batch_size=2):
-     result = result + batch.to(device)
+ for batch in DataLoader(rows, batch_size=2, pin_memory=True):
+     result = result + batch.to(device, non_blocking=True)
"""),
        each_step(
            "result = grid * rows.cuda()",
            "result = grid * gpu_rows",
            once="gpu_rows = rows.cuda()",
        ),
    ),
    "cpu-index": (
        each_step(
            "result = grid[order]",
            "result = grid[order]",
            once="order = order.to(device)",
        ),
        each_step(
            "result = grid[:, [0, 2]]",
            "result = grid[:, columns]",
            once="columns = torch.tensor([0, 2], device=device)",
        ),
        remedied(
            """
+ order = order.to(device)
  for _ in STEPS:
      chosen = weight[order]
      result, = torch.autograd.grad(chosen.sum(), weight)
""",
            setting="weight = grid.clone().requires_grad_()",
        ),
    ),
    "positions": (
        each_step(
            "result = one_hot.nonzero()",
            "result = torch.nonzero_static(one_hot, size=8)",
            setting="one_hot = F.one_hot(labels, 4)",
        ),
        remedied("""
  for _ in STEPS:
-     positions = torch.where(row > 0)
-     result = row[positions].sum()
+     result = (row * (row > 0)).sum()
"""),
    ),
    "mask": (
        each_step("result = grid[mask].sum()", "result = (grid * mask).sum()"),
        remedied("""
  result = grid.clone()
  for _ in STEPS:
-     result[mask] = (grid + 1)[mask]
+     result = torch.where(mask, grid + 1, result)
"""),
        each_step(
            "result = grid.masked_select(mask).sum()", "result = (grid * mask).sum()"
        ),
        each_step(
            "result = grid.masked_fill(mask, number)",
            "result = torch.where(mask, number, grid)",
        ),
    ),
    "repeat-interleave": (
        each_step(
            "result = torch.repeat_interleave(row[:4], gpu_lengths)",
            "result = torch.repeat_interleave(row[:4], gpu_lengths, output_size=8)",
        ),
    ),
    "unique": (
        remedied("""
  for _ in STEPS:
-     kinds, counts = torch.unique(labels, return_counts=True)
+     counts = torch.zeros(4, dtype=torch.long, device=device)
+     counts.scatter_add_(0, labels, torch.ones_like(labels))
      result = counts.max()
"""),
        remedied("""
  for _ in STEPS:
-     result = torch.bincount(labels, minlength=4)
+     result = torch.zeros(4, dtype=torch.long, device=device)
+     result.scatter_add_(0, labels, torch.ones_like(labels))
"""),
    ),
    "histogram": (
        each_step(
            "result = torch.histc(row, 4)",
            "result = torch.histc(row, 4, min=ends[0], max=ends[1])",
            setting="ends = row.min().item(), row.max().item()",
        ),
    ),
    "normal": (
        remedied(
            """
  for _ in STEPS:
      torch.manual_seed(1)
-     result = torch.normal(row, row.abs())
+     result = row + row.abs() * torch.randn_like(row)
""",
            until=(2, 14),
        ),
        remedied(
            """
  for _ in STEPS:
      torch.manual_seed(1)
-     result = normal.sample()
+     with torch.no_grad():
+         result = normal.rsample()
""",
            until=(2, 14),
            setting="normal = Normal(row, row.abs() + 1, validate_args=False)",
        ),
    ),
    "linalg-check": (
        remedied("""
- for _ in STEPS:
-     result = torch.linalg.inv(square)
+ for step in STEPS:
+     result, info = torch.linalg.inv_ex(square)
+     if step % 4 == 3:
+         assert not info
"""),
        each_step(
            "result = torch.linalg.cholesky(square)",
            "result, info = torch.linalg.cholesky_ex(square)",
        ),
    ),
    "copy-to-gpu": (
        each_step(
            "result = torch.where(mask, host_number, grid)",
            "result = torch.where(mask, gpu_number, grid)",
            once="gpu_number = host_number.to(device)",
            setting="host_number = torch.tensor(0.5)",
        ),
    ),
    "sync": (
        remedied(
            """
  for step in STEPS:
-     same = torch.equal(grid, grid + step)
-     seen.append(same)
+     if step % 4 == 3:
+         same = torch.equal(grid, grid + step)
+         seen.append(same)
  result = seen[-1]
""",
            setting="seen = []",
        ),
    ),
    "counted-index": (
        remedied("""
- result = [0] * 4
+ counts = torch.zeros(4, dtype=torch.long, device=device)
  for step in STEPS:
-     result[int(labels[step])] += 1
- result = torch.tensor(result)
+     index = labels[step][None]
+     counts.index_add_(0, index, torch.ones_like(index))
+ result = counts
"""),
    ),
    "index": (
        remedied("""
  result = 0
- for i in labels[:4]:
+ for i in labels[:4].tolist():
      result = result + grid[i]
"""),
        remedied("""
  for step in STEPS:
      best = (row + step).argmax()
-     result = grid[best] + 1
+     result = grid.index_select(0, best[None])[0] + 1
"""),
        remedied(
            """
- result = 0
+ keys, result = labels.tolist(), 0
  for step in STEPS:
-     key = labels[step].item()
+     key = keys[step]
      result = result + weights[key]
""",
            setting="weights = {0: 0.5, 1: 1.0, 2: 2.0, 3: 4.0}",
        ),
    ),
    "loss-scale": (
        remedied(
            """
  sgd = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
  for step in STEPS:
      train(sgd, amp)
      amp.step(sgd)
      amp.update()
-     result = amp.get_scale()
+     if step % 4 == 3:
+         result = amp.get_scale()
""",
            setting="amp = torch.amp.GradScaler(init_scale=2.0)",
        ),
    ),
    "finite-norm": (
        remedied("""
  sgd, broken = torch.optim.SGD(model.parameters(), lr=0.1), 0
  for _ in STEPS:
      train(sgd)
      result = nn.utils.clip_grad_norm_(
          model.parameters(),
          1.0,
-         error_if_nonfinite=True,
      )
+     broken = broken + ~result.isfinite()
      sgd.step()
"""),
    ),
    "moved-model": (
        remedied(
            """
  for _ in STEPS:
-     result = made().to(device)(grid)
+     with torch.device(device):
+         result = made()(grid)
""",
            setting="""
def made():
    layer = nn.Linear(4, 4)
    nn.init.ones_(layer.weight), nn.init.zeros_(layer.bias)
    return layer
""",
        ),
    ),
    "module-state": (
        remedied(
            """
+ norm.to(device)
  for _ in STEPS:
-     result = grid - norm.running_mean.to(device)
+     result = grid - norm.running_mean
""",
            setting="norm = nn.BatchNorm1d(4, affine=False)",
        ),
    ),
    "attribute": (
        remedied("""
  class Scaled(nn.Module):
      def __init__(self):
          super().__init__()
-         self.scale = torch.arange(4.0)
+         self.register_buffer("scale", torch.arange(4.0))
      def forward(self, x):
-         return x * self.scale.to(x.device)
+         return x * self.scale
  scaled = Scaled().to(device)
  for _ in STEPS:
      result = scaled(grid)
"""),
    ),
    "custom-batch": (
        remedied(
            """
  result = 0
- loader = DataLoader(rows, 2, collate_fn=Batch, pin_memory=True)
+ loader = DataLoader(rows, 2, collate_fn=PinnedBatch, pin_memory=True)
  for batch in loader:
-     result = result + batch.x.to(device)
+     result = result + batch.x.to(device, non_blocking=True)
""",
            setting=BATCH,
        ),
    ),
    "unpinned-batch": (
        remedied(
            """
  result = 0
- for batch in DataLoader(rows, 2, collate_fn=Batch):
+ for batch in DataLoader(rows, 2, collate_fn=PinnedBatch, pin_memory=True):
      result = result + batch.x.to(device, non_blocking=True)
""",
            setting=BATCH,
        ),
    ),
    "packed-order": (
        each_step(
            "packed = nn.utils.rnn.pack_padded_sequence(sequences, lengths.flip(0), enforce_sorted=False)\n"
            "    result = packed.data.sum()",
            "packed = nn.utils.rnn.pack_padded_sequence(ordered, lengths)\n"
            "    result = packed.data.sum()",
            once="ordered = sequences.flip(1)",
        ),
    ),
    "causal-mask": (
        each_step(
            "result = encoder(grid[None], mask=causal)",
            "result = encoder(grid[None], mask=causal, is_causal=True)",
            setting="""
causal = nn.Transformer.generate_square_subsequent_mask(8, device=device)
layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
encoder = nn.TransformerEncoder(layer, 1).to(device)
""",
        ),
    ),
}
"""By the rule of the remedy."""


COSTS: Final[dict[Enum | str, Program]] = {
    FindingKind.BREAK: remedied(
        """
  def step(x):
      x = x * 2
-     seen.append(x.sum().item())
-     return x + 1
+     return x, x + 1


  seen = []
- result = compiled(step)(rows)
+ doubled, result = compiled(step)(rows)
+ seen.append(doubled.sum().item())
  cost = graphs
""",
        setting=COMPILED,
        on_gpu=False,
    ),
    FindingKind.RECOMPILE: remedied(
        """
+ padded = [F.pad(batch, (0, 0, 0, 3 - len(batch))) for batch in rows.split(3)]
  step = compiled(lambda x: x.square().sum())
- result = sum(step(batch) for batch in rows.split(3))
+ result = sum(step(batch) for batch in padded)
  cost = graphs
""",
        setting=COMPILED,
        on_gpu=False,
    ),
    FindingKind.LEFT: remedied(
        """
  for _ in STEPS:
-     history.append(loss_of_step())
+     history.append(loss_of_step().detach())
  cost, result = sum(each() is not None for each in outputs), history[-1]
""",
        setting=KEPT,
    ),
    "slice": remedied(
        """
- kept = [(rows * 2).detach()[::4] for _ in range(3)]
+ kept = [(rows * 2).detach()[::4].clone() for _ in range(3)]
  cost, result = sum(k.untyped_storage().nbytes() for k in kept), kept[-1]
""",
        setting="import torch; rows = torch.ones(8, 4)",
        on_gpu=False,
    ),
    LOADER_WAIT.name: remedied(
        """
- batch = loaded(Rows())
+ batch = loaded(Batches())
  cost = calls, len(ForkingPickler.dumps(batch))
- result = torch.tensor([row["x"] for row in batch])
+ result = batch
""",
        setting=LOADED,
    ),
}
"""By what is advised; a program leaves its ``cost``, or waits and operations are counted."""

COSTS[RETAINED_GRAPHS.name] = COSTS[FindingKind.LEFT]
