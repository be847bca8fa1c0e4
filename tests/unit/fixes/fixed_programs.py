"""Training programs: lines that an edit takes out and puts in, and where it must not.

Each begins with ``START``. What goes begins with ``-``, what comes with ``+``, as in a diff.
"""

from __future__ import annotations

from typing import Final


START: Final = """\
import gc
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
device = "cuda"
model = nn.Linear(4, 4, device=device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(6, 8, 4, device=device)
labels = torch.randint(4, (6, 8), device=device)


def train(x, y):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


"""

FIXED: Final = {
    "a sum that an earlier line shows": """
  import json
  total: float = 0.0
  for epoch in range(2):
      if epoch == 50:
          print(json.dumps(total))
      for x, y in zip(inputs, labels):
-         total += train(x, y).item()
+         total += train(x, y).detach().double()
+     total = float(total)
""",
    "batches that are not pinned": """
  rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
- loader = DataLoader(rows, batch_size=2, pin_memory=False)
+ loader = DataLoader(rows, batch_size=2, pin_memory=True)
  for x, y in loader:
-     x, y = x.to(device), y.to(device)
+     x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
      loss = train(x, y)
  print(loss.item())
""",
    "norms of all gradients": """
  for x, y in zip(inputs, labels):
      train(x, y)
-     norms = [p.grad.norm().item() for p in model.parameters()]
+     norms = torch.stack([p.grad.norm() for p in model.parameters()]).tolist()
  print(norms)
""",
    "a check of all gradients": """
  for x, y in zip(inputs, labels):
      train(x, y)
-     if not all(p.grad.isfinite().all() for p in model.parameters()):
+     if not torch.stack([p.grad.isfinite().all() for p in model.parameters()]).all():
          print("skipped")
  print("done")
""",
    "numbers within a formula": """
  for x, y in zip(inputs, labels):
-     gap = model(x).mean() - model(torch.randn(8, 4).to(device)).mean()
+     gap = model(x).mean() - model(
+         torch.randn(8, 4, pin_memory=True).to(device, non_blocking=True)
+     ).mean()
  print(gap.item())
""",
    "numbers where the CPU may be the device": """
  device = "cuda" if torch.cuda.is_available() else "cpu"
  for x, y in zip(inputs, labels):
-     noise = torch.randn(8, 4).to(device)
+     noise = torch.randn(8, 4, pin_memory=torch.cuda.is_available()).to(
+         device, non_blocking=True
+     )
      train(x + noise, y)
  print(len(inputs))
""",
    "a selection that is added up": """
  for x, y in zip(inputs, labels):
      out = train(x, y).detach() * x.to(device)
-     total = out.masked_select(out > 0).sum()
+     total = torch.where(out > 0, out, 0).sum()
  print(round(total.item(), 4))
""",
    "ones that are copied": """
  scale = torch.zeros(4, device=device)
  for x, y in zip(inputs, labels):
-     scale.copy_(torch.ones(4))
+     scale.fill_(1)
      train(x, y)
  print(scale.sum().item())
""",
    "a distribution that checks its values": """
  from torch.distributions import Categorical
  for x, y in zip(inputs, labels):
-     chosen = Categorical(logits=train(x, y).detach().expand(4))
+     chosen = Categorical(logits=train(x, y).detach().expand(4), validate_args=False)
  print(chosen.logits.shape)
""",
    "the larger of two values": """
  for x, y in zip(inputs, labels):
      loss = train(x, y).detach()
-     most = max(loss, loss * 2)
+     most = torch.maximum(loss, loss * 2)
  print(most.item())
""",
    "rows that no step changes": """
  rows = torch.arange(4.0)
+ scale = rows.to(device)
  for x, y in zip(inputs, labels):
-     scale = rows.to(device)
      loss = train(x * scale, y)
  print(loss.item())
""",
    "a mean over an epoch": """
  for epoch in range(2):
      total = right = 0.0
      for x, y in zip(inputs, labels):
-         total += train(x, y).item()
+         total += train(x, y).detach().double()
+     total = float(total)
      total /= len(inputs)
      print(f"{total:.4f}")
""",
    "a norm of all gradients": """
  for x, y in zip(inputs, labels):
      train(x, y)
      norm = 0.0
      for p in model.parameters():
-         norm += p.grad.norm().item() ** 2
+         norm += p.grad.norm().detach().double() ** 2
+     norm = float(norm)
      norm = norm**0.5
  print(f"{norm:.5f}")
""",
    "the share of right answers": """
  share = 0.0
  for x, y in zip(inputs, labels):
-     share += (model(x).argmax(1) == y).sum().item() / len(y)
+     share += (model(x).argmax(1) == y).sum().double() / len(y)
+ share = float(share)
  print(share)
""",
    "a sum of short numbers": """
  lengths, longest = labels.to(torch.uint8) + 60, 0
  for n in lengths:
-     longest += n.max().item()
+     longest += n.max().long()
+ longest = int(longest)
  print(longest)
""",
    "a sum of what is cut off": """
  total = 0
  for x, y in zip(inputs, labels):
-     total += int(100 * x.sum())
+     total += (100 * x.sum()).long()
+ total = int(total)
  print(total)
""",
    "a list of places in a buffer": """
  state, log = torch.zeros(3, device=device), []
  for x, y in zip(inputs, labels):
      first = state.narrow(0, 0, 1)
-     log.append(first.item())
+     log.append(first.detach().clone())
      state += x.sum()
- print(log)
+ log = torch.stack(log).flatten().tolist() if log else []
+ print(log)
""",
    "places that some steps print": """
  import json
  found = 0
  for step, (x, y) in enumerate(zip(inputs, labels)):
-     found += len((x > 0).nonzero())
+     found += (x > 0).count_nonzero()
      if step == 3:
-         print(json.dumps({"found": found}))
+         print(json.dumps({"found": int(found)}))
""",
    "weights of a loss": """
+ constant = torch.tensor([1.0, 2.0, 3.0, 4.0]).to(device)
  for x, y in zip(inputs, labels):
-     criterion = nn.CrossEntropyLoss(torch.tensor([1.0, 2.0, 3.0, 4.0]).to(device))
+     criterion = nn.CrossEntropyLoss(constant)
      loss = criterion(model(x), y)
  print(loss.item())
""",
    "batches of names": """
  rows = [{"x": x, "y": y} for x, y in zip(inputs[0].cpu(), labels[0].cpu())]
- for batch in DataLoader(rows, batch_size=2):
-     batch = {k: v.to(device) for k, v in batch.items()}
+ for batch in DataLoader(rows, batch_size=2, pin_memory=True):
+     batch = {k: v.to(device, non_blocking=True) for k, v in batch.items()}
      loss = train(batch["x"], batch["y"])
  print(loss.item())
""",
    "a sum of losses": """
  total = 0.0
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     total += loss.item()
+     total += loss.detach().double()
+ total = float(total)
  print("loss", total / len(inputs))
""",
    "a sum of losses by the size of the batch": """
  def epoch():
      seen = total = 0.0
      for x, y in zip(inputs, labels):
          loss = train(x, y)
          seen += len(x)
-         total = total + float(loss) * x.size(0)
+         total = total + loss.detach().double() * x.size(0)
+     total = float(total)
      return total / seen


  print(epoch())
""",
    "right answers": """
  right = 0
  for x, y in zip(inputs, labels):
-     right += (model(x).argmax(1) == y).sum().item()  # of 8
+     right += (model(x).argmax(1) == y).sum()  # of 8
+ right = int(right)

  # all batches
  print(f"{right} of 48")
""",
    "a moving average that is printed now and then": """
  average = 0.0
  for step, (x, y) in enumerate(zip(inputs, labels)):
-     average = 0.9 * average + 0.1 * train(x, y).item()
+     average = 0.9 * average + 0.1 * train(x, y).detach().double()
      if step % 3 == 2:
-         print(f"{step}: {average:.4f}")
+         print(f"{step}: {float(average):.4f}")
""",
    "a number that some steps print": """
  for step, (x, y) in enumerate(zip(inputs, labels)):
      loss = train(x, y)
-     value = loss.item()
+     value = loss.detach()
      if step % 3 == 2:
-         print(f"loss {value:.4f}")
+         print(f"loss {value.item():.4f}")
""",
    "a number of a tensor that is changed afterwards": """
  for step, (x, y) in enumerate(zip(inputs, labels)):
      loss = train(x, y)
-     value = loss.item()
+     value = loss.detach().clone()
      loss += 1
      if step % 3 == 2:
-         print("loss", value, loss.mean())
+         print("loss", value.item(), loss.mean())
""",
    "a list of losses": """
  losses = []
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     losses.append(loss.item())
+     losses.append(loss.detach())
+ losses = torch.stack(losses).tolist() if losses else []
  print(sum(losses) / len(losses), losses)
""",
    "a list of all epochs": """
  def run():
      losses = []
      for epoch in range(2):
          for x, y in zip(inputs, labels):
-             losses.append(2 * train(x, y).item())
+             losses.append(2 * train(x, y).detach().double())
          if epoch:
-             print(len(losses), losses[-1])
+             print(len(losses), torch.stack(losses).tolist()[-1])
+     losses = torch.stack(losses).tolist() if losses else []
      return losses


  print(run())
""",
    "the cache is emptied": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     torch.cuda.empty_cache()  # frees memory
  print(loss.item())
""",
    "the cache is emptied, and garbage is collected": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
      # free memory
-     torch.cuda.empty_cache()
-     gc.collect()
      print(len(x))
  print(loss.item())
""",
    "a wait for the device": """
  def step(x, y):
      with torch.no_grad():
-         torch.cuda.synchronize()
+         pass


  for x, y in zip(inputs, labels):
      step(x, y)
  print(train(x, y).item())
""",
    "zeros on the CPU": """
  hidden = torch.zeros(8, 4, device=device)
  for x, y in zip(inputs, labels):
-     hidden = hidden + torch.zeros(
-         8, 4, dtype=torch.float32
-     ).to(device)
+     hidden = hidden + torch.zeros(
+         8, 4, dtype=torch.float32, device=device
+     )
  print(hidden.sum().item())
""",
    "numbers computed on the CPU": """
  for x, y in zip(inputs, labels):
      scale = (
-         torch.exp(-torch.arange(4) / 4).to(device=x.device)
+         torch.exp(-torch.arange(4, device=x.device) / 4)
      )
      loss = train(x * scale, y)
  print(f"{loss.item():.4f}")
""",
    "ones on the CPU": """
  for x, y in zip(inputs, labels):
-     loss = train(x * torch.ones(4).cuda(), y)
+     loss = train(x * torch.ones(4, device="cuda"), y)
  print(loss.item())
""",
    "numbers drawn on the CPU": """
  for x, y in zip(inputs, labels):
-     loss = train(x + torch.randn(8, 4).to(device), y)
+     loss = train(
+         x + torch.randn(8, 4, pin_memory=True).to(device, non_blocking=True), y
+     )
  print(loss.item())
""",
    "constants": """
  weight = 0.5
+ constant = torch.tensor([1.0, weight, 1.0, 2.0]).to(device)
  for x, y in zip(inputs, labels):
-     loss = train(x * torch.tensor([1.0, weight, 1.0, 2.0]).to(device), y)
+     loss = train(x * constant, y)
  print(loss.item())
""",
    "weights of classes": """
+ w = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
  for x, y in zip(inputs, labels):
-     w = torch.tensor([1.0, 2.0, 3.0, 4.0], device=device)
      loss = train(x * w, y)
  print(loss.item())
""",
    "a list that each step changes": """
  for step, (x, y) in enumerate(zip(inputs, labels)):
-     scale = torch.tensor([1.0, step, 1.0, 2.0], device=device)
+     scale = torch.tensor([1.0, step, 1.0, 2.0], pin_memory=True).to(
+         device, non_blocking=True
+     )
      loss = train(x * scale, y)
  print(loss.item())
""",
    "a number that each step changes": """
  for step, (x, y) in enumerate(zip(inputs, labels)):
-     loss = train(x * torch.tensor(step / 4).to(device), y)
+     loss = train(x * torch.full((), step / 4, device=device), y)
  print(loss.item())
""",
    "an optimizer that waits for the scaler": """
- adam = torch.optim.AdamW(model.parameters(), lr=0.1)
+ adam = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
  scaler = torch.amp.GradScaler(init_scale=2.0)
  for x, y in zip(inputs, labels):
      loss = F.cross_entropy(model(x), y)
      adam.zero_grad()
      scaler.scale(loss).backward()
      scaler.step(adam)
      scaler.update()
  print(f"{loss.item():.4f}")
""",
    "batches": """
  rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
- loader = DataLoader(rows, batch_size=2)
+ loader = DataLoader(rows, batch_size=2, pin_memory=True)
  for x, y in loader:
-     x, y = x.to(device), y.to(device)
+     x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
      loss = train(x, y)
  print(loss.item())
""",
    "batches in another style": """
  rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
  loader = DataLoader(
      rows,
-     batch_size=2,
- )
+     batch_size=2,
+     pin_memory=True,
+ )
  for step, batch in enumerate(loader):
-     x = batch[0].cuda()
-     y = batch[1].cuda()
+     x = batch[0].cuda(non_blocking=True)
+     y = batch[1].cuda(non_blocking=True)
      loss = train(x, y)
  print(loss.item())
""",
    "batches that are pinned": """
  rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
  for x, y in DataLoader(rows, batch_size=2, pin_memory=True):
-     loss = train(x.to(device), y.to(device))
+     loss = train(x.to(device, non_blocking=True), y.to(device, non_blocking=True))
  print(loss.item())
""",
    "places that are counted": """
  found = 0
  for x, y in zip(inputs, labels):
-     found += (x > 0).nonzero().size(0)
+     found += (x > 0).count_nonzero()
+ found = int(found)
  print(found)
""",
    "a sum of what a mask chooses": """
  total = torch.zeros((), device=device)
  for x, y in zip(inputs, labels):
      far = x > 1
-     total += x[far].sum()
+     total += torch.where(far, x, 0).sum()
  print(f"{total.item():.4f}")
""",
    "a mean of what a mask chooses": """
  def masked(x, mask):
-     return x[mask].mean()
+     return torch.where(mask.reshape(x.shape), x, 0).sum() / mask.sum()


  total = sum(masked(x, x.abs() > 1) for x in inputs)
  print(f"{total.item():.4f}")
""",
    "rows that are repeated": """
  lengths = torch.tensor([1, 2, 3, 2])
  times = lengths.to(device)
  for x, y in zip(inputs, labels):
-     rows = torch.repeat_interleave(x[:4], times, dim=0)
+     rows = torch.repeat_interleave(x[:4], times, dim=0, output_size=int(lengths.sum()))
  print(rows.sum().item())
""",
    "kinds that are counted": """
  for x, y in zip(inputs, labels):
-     counts = torch.bincount(y, minlength=4)
+     counts = torch.zeros(4, dtype=torch.long, device=y.device).scatter_add_(
+         0, y, torch.ones_like(y)
+     )
  print(counts.tolist())
""",
    "a loop over places": """
  total, x = 0.0, inputs[0]
- for i in labels[0]:
+ for i in labels[0].tolist():
      total = total + x[i]
  print(total.sum().item())
""",
    "an order on the CPU": """
  order = torch.tensor([3, 1, 2])
  x = inputs[0]
+ order = order.to(x.device)
  for step in range(4):
      total = x[order].sum() + step
  print(total.item())
""",
    "columns": """
  x = inputs[0]
+ index = torch.tensor([0, 2], device=x.device)
  for step in range(4):
-     total = x[:, [0, 2]].sum() + step
+     total = x[:, index].sum() + step
  print(total.item())
""",
    "places that are made in each step": """
  for x, y in zip(inputs, labels):
-     places = torch.arange(0, 8, 2)
+     places = torch.arange(0, 8, 2, device=x.device)
      total = x[places].sum()
  print(total.item())
""",
    "a norm that must be finite": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
+     norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
+     torch._assert_async(norm.isfinite())
  print(loss.item())
""",
    "an assertion": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     assert torch.isfinite(loss), "diverged"
+     torch._assert_async(torch.isfinite(loss))
  print(loss.item())
""",
    "a check that raises": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
      # never
-     if loss.isnan().item():
-         raise ValueError("diverged")
+     torch._assert_async(~loss.isnan())
  print(loss.item())
""",
    "a check of what must be finite": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     if not torch.isfinite(loss).all().item():
-         raise ValueError("diverged")
+     torch._assert_async(torch.isfinite(loss).all())
  print(loss.item())
""",
    "a list that numpy takes later": """
  import numpy as np
  losses = []
  for x, y in zip(inputs, labels):
-     losses.append(train(x, y).item())
+     losses.append(train(x, y).detach().clone())
+ losses = torch.stack(losses).tolist() if losses else []
  print(np.array(losses).mean(), type(losses[0]))
""",
    "a list that two lines fill": """
  kept = []
  for step, (x, y) in enumerate(zip(inputs, labels)):
-     kept.append(train(x, y).item())
+     kept.append(train(x, y).detach().clone())
      if step % 2:
-         kept.append(x.sum().item())
+         kept.append(x.sum().detach())
+ kept = torch.stack(kept).tolist() if kept else []
  print(kept)
""",
    "batches of a class": """
  class Batch:
      def __init__(self, rows):
          self.x = torch.stack(rows)
+
+     def pin_memory(self):
+         self.x = self.x.pin_memory()
+         return self


  for batch in DataLoader(inputs[0].cpu(), 4, collate_fn=Batch, pin_memory=True):
-     total = model(batch.x.to(device)).sum()
+     total = model(batch.x.to(device, non_blocking=True)).sum()
  print(total.item())
""",
    "a table of a model": """
  class Scaled(nn.Module):
      def __init__(self):
          super().__init__()
-         self.scale = torch.arange(4.0)
+         self.register_buffer("scale", torch.arange(4.0), persistent=False)

      def forward(self, x):
-         return x * self.scale.to(x.device)
+         return x * self.scale


  scaled = Scaled().to(device)
  for x in inputs:
      total = scaled(x).sum()
  print(total.item())
""",
    "batches that return to the CPU": """
  cpu = torch.device("cpu")
  rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
- for x, y in DataLoader(rows, batch_size=2):
+ for x, y in DataLoader(rows, batch_size=2, pin_memory=True):
-     loss = train(x.to(device), y.to(device=device))
+     loss = train(
+         x.to(device, non_blocking=True), y.to(device=device, non_blocking=True)
+     )
      back = model(x.to(device, non_blocking=False)).to(cpu)
      x = x.to("cpu")
  print(back.sum().item())
""",
    "sizes that the CPU has": """
  sizes = torch.tensor([3, 5])
  counts = sizes.to(device)
  for x, y in zip(inputs, labels):
-     first, second = x.split(counts.tolist())
+     first, second = x.split(sizes.tolist())
      total = first.sum() - second.sum()
  print(total.item())
""",
    "checks of all parameters": """
  for x, y in zip(inputs, labels):
      loss = train(x, y)
-     fine = all(torch.isfinite(p).all() for p in model.parameters())
+     fine = bool(
+         torch.stack([torch.isfinite(p).all() for p in model.parameters()]).all()
+     )
  print(fine)
""",
    "numbers that are put": """
  x = inputs[0, 0].clone()
  for step, (_, y) in enumerate(zip(inputs, labels)):
-     x[0] = step / 2
+     x[0].fill_(step / 2)
  print(x.sum().item())
""",
    "a print in each step": """
  for step in range(6):
      loss = train(inputs[step], labels[step])
      # progress
-     print(loss.item())
+     if step % 10 == 0:
+         print(loss.item())
""",
    "the least of many": """
  best, losses = 10.0, inputs.mean((1, 2))
+ numbers = losses.tolist()
  for i, (x, y) in enumerate(zip(inputs, labels)):
-     found = losses[i].item()  # of a batch
+     found = numbers[i]  # of a batch
      if found < best:
          best = found
  print(best)
""",
    "weights by a label": """
  weights, total = {0: 1.0, 1: 0.5, 2: 2.0, 3: 1.5}, 0.0
  kinds = labels[0]
+ numbers = kinds.tolist()
  for i in range(8):
-     total += weights[int(kinds[i])]
+     total += weights[int(numbers[i])]
  print(total)
""",
    "the best row": """
  total = torch.zeros(4, device=device)
  for x, y in zip(inputs, labels):
      best = x.sum(1).argmax()
-     total = total + x[best]
+     total = total + x.index_select(0, best[None])[0]
  print(total.sum())
""",
}

FAIL: Final = {
    "a mask of rows": """
total = torch.zeros((), device=device)
for x in inputs:
    total += x[:4][labels[0][:4] > 0].sum()
print(total.item())
""",
}
"""Programs of which each edit raises an error, and is not shown."""

NOT_FIXED: Final = {
    "rows of an array that changes": (
        "may change|no rewrite",
        """
import numpy as np

scale = np.ones(4, dtype=np.float32)
rows = torch.from_numpy(scale).float()
for step, x in enumerate(inputs):
    w = rows.to(device)
    total = model(x * w).sum()
    if step == 400:
        scale *= 0.5
print(total.device)
""",
    ),
    "kinds of a formula": (
        "no rewrite",
        """
for x, y in zip(inputs, labels):
    counts = torch.bincount(4 * y + model(x).argmax(1), minlength=16)
print(counts.device)
""",
    ),
    "a sum after what ends the loop": (
        "exception",
        """
total = 0.0
try:
    for x, y in zip(inputs, labels):
        total += train(x, y).item()
except KeyboardInterrupt:
    pass
print(total)
""",
    ),
    "a list after what ends the loop": (
        "exception",
        """
import contextlib
losses = []
with contextlib.suppress(KeyboardInterrupt):
    for x, y in zip(inputs, labels):
        losses.append(train(x, y).item())
print(losses)
""",
    ),
    "places that an object counts": (
        "no rewrite",
        """
class Stats:
    hot = 0


stats = Stats()
for x, y in zip(inputs, labels):
    stats.hot += (x > 2).nonzero().size(0)
print(stats)
""",
    ),
    "a number that locals() shows": (
        "eval",
        """
def epoch():
    total = 0.0
    for step, (x, y) in enumerate(zip(inputs, labels)):
        total += train(x, y).item()
        if step == 400:
            print("{total}".format(**locals()))
    return total


print(epoch())
""",
    ),
    "a pool of threads": (
        "thread",
        """
from multiprocessing.pool import ThreadPool
total = 0.0
for x, y in zip(inputs, labels):
    total += train(x, y).item()
print(total, ThreadPool)
""",
    ),
    "a clock of another file": (
        "clock",
        """
class Timer:
    def lap(self):
        return self


timer = Timer()
for x, y in zip(inputs, labels):
    torch.cuda.synchronize()
    timer.lap()
""",
    ),
    "a wait for an error": (
        "error",
        """
for x, y in zip(inputs, labels):
    try:
        train(x, y)
        torch.cuda.synchronize()
    except RuntimeError:
        print("skipped")
""",
    ),
    "a batch that the CPU changes": (
        "the CPU c",
        """
rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())
for x, y in DataLoader(rows, batch_size=2):
    moved = x.to(device)
    x.mul_(0.5)
print(moved.shape)
""",
    ),
    "elements that a function changes": (
        "change|each step",
        """
scores = inputs.sum((1, 2))


def relax(scores, i):
    if i > 100:
        scores[i] += 1


best = 0.0
for i in range(6):
    relax(scores, i)
    found = scores[i].item()
    if found > best:
        best = found
print(best)
""",
    ),
    "a tensor with a name on the CPU": (
        "no rewrite",
        """
for x, y in zip(inputs, labels):
    loss = train(x + (ones := torch.ones(4)).to(device), y)
    if loss.shape:
        print(ones.numpy())
""",
    ),
    "a sum that decides": (
        "decides|each step",
        """
total = 0.0
for x, y in zip(inputs, labels):
    total += train(x, y).item()
    if total > 100:
        break
print(total)
""",
    ),
    "a sum in an object": (
        "no rewrite fits",
        """
meters = {"loss": 0.0}
for x, y in zip(inputs, labels):
    meters["loss"] += train(x, y).item()
print(meters)
""",
    ),
    "a sum of another function": (
        "another function|something else|before the loop",
        """
total = 0.0


def step(x, y):
    global total
    total += train(x, y).item()


for x, y in zip(inputs, labels):
    step(x, y)
print(total)
""",
    ),
    "a list of a caller": (
        "begins",
        """
def step(x, y, losses):
    losses.append(train(x, y).item())


losses = []
for x, y in zip(inputs, labels):
    step(x, y, losses)
print(losses)
""",
    ),
    "a number that is returned": (
        "each step",
        """
def step(x, y):
    loss = train(x, y).item()
    return loss


print([step(x, y) for x, y in zip(inputs, labels)])
""",
    ),
    "a generator": (
        "each step",
        """
def losses():
    total = 0.0
    for x, y in zip(inputs, labels):
        total += train(x, y).item()
        yield total


print(list(losses()))
""",
    ),
    "a comprehension": (
        "number",
        """
losses = [train(x, y).item() for x, y in zip(inputs, labels)]
print(losses)
""",
    ),
    "a lambda": (
        "is a number",
        """
read = lambda x, y: train(x, y).item()
print(sum(map(read, inputs, labels)))
""",
    ),
    "a decorator": (
        "decorator",
        """
def logged(function):
    return lambda: print(function())


@logged
def epoch():
    total = 0.0
    for x, y in zip(inputs, labels):
        total += train(x, y).item()
    return total


epoch()
""",
    ),
    "two threads": (
        "thread",
        """
import threading


def run():
    total = 0.0
    for x, y in zip(inputs, labels):
        total += train(x, y).item()
    print(total)


thread = threading.Thread(target=run)
thread.start()
thread.join()
""",
    ),
    "a sum that an error prints": (
        "exception",
        """
total = 0.0
try:
    for x, y in zip(inputs, labels):
        total += train(x, y).item()
except KeyboardInterrupt:
    print(total)
print(total)
""",
    ),
    "a number that names itself": (
        "something else",
        """
for step, (x, y) in enumerate(zip(inputs, labels)):
    value = train(x, y).item()
    if step % 3 == 2:
        print(f"{value=}")
""",
    ),
    "a list that is sorted meanwhile": (
        "something else",
        """
losses = []
for step, (x, y) in enumerate(zip(inputs, labels)):
    losses.append(train(x, y).item())
    if step % 2:
        losses.sort()
print(losses)
""",
    ),
    "a function of two callers": (
        "each step",
        """
def value(x, y):
    found = train(x, y).item()
    return found


best = min(value(x, y) for x, y in zip(inputs, labels))
print(best, value(inputs[0], labels[0]))
""",
    ),
    "generated code": (
        "generated",
        """
total = 0.0
for x, y in zip(inputs, labels):
    total += train(x, y).item()
print(total)
""",
    ),
    "a constant that is changed in place": (
        "in place|changed|no rewrite",
        """
for step, (x, y) in enumerate(zip(inputs, labels)):
    total = torch.tensor([step, 1.0, 2.0, 3.0]).to(device, torch.float32)
    total += x[0]
print(total.sum().item())
""",
    ),
    "a clock behind a wait": (
        "clock",
        """
start = time.perf_counter()
for x, y in zip(inputs, labels):
    train(x, y)
    torch.cuda.synchronize()
print(time.perf_counter() > start)
""",
    ),
    "a loop over places that are counted too": (
        "more than an index|no rewrite|a choice",
        """
total = torch.zeros(4)
rows = inputs[0].cpu()
for i in labels[0]:
    total = total + rows[i] * i.cpu()
print(total)
""",
    ),
    "places that are used": (
        "is a number|no rewrite",
        """
for x, y in zip(inputs, labels):
    places = (x > 0).nonzero()
print(places.sum().item())
""",
    ),
    "a loader of two": (
        "",
        """
rows = torch.utils.data.TensorDataset(inputs[0].cpu(), labels[0].cpu())


def epoch(loader):
    for x, y in loader:
        train(x.to(device), y.to(device))


epoch(DataLoader(rows, batch_size=2))
epoch(DataLoader(rows, batch_size=4))
""",
    ),
    "a counter of another function": (
        "on the CPU|another function|no rewrite",
        """
sizes = torch.tensor([3, 5])
counts = sizes.to(device)


def halves(x, counts):
    return x.split(counts.tolist())


print(sum(halves(x, counts)[0].sum() for x in inputs).item())
""",
    ),
    "a clock in another function": (
        "clock",
        """
def synced():
    torch.cuda.synchronize()
    return True


start = time.time()
for x, y in zip(inputs, labels):
    synced()
print(time.time() >= start)
""",
    ),
    "a copy to the CPU that is waited for": (
        "copies or streams",
        """
for x, y in zip(inputs, labels):
    kept = x.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
print(kept.sum())
""",
    ),
    "an index that may be negative": (
        "no rewrite",
        """
total = torch.zeros(4, device=device)
for x, y in zip(inputs, labels):
    last = y[0] - 4
    total = total + x[last]
print(total.device)
""",
    ),
    "a choice that divides": (
        "both ways|is a number",
        """
total = torch.zeros(4, device=device)
for x, y in zip(inputs, labels):
    count = (y == 3).sum()
    total = total + (x.sum(0) / count if count > 0 else 0.0)
print(total.sum().device)
""",
    ),
    "a choice that calls": (
        "no rewrite",
        """
total = torch.zeros((), device=device)
for x, y in zip(inputs, labels):
    gate = x.mean() > 0
    if gate:
        total = train(x, y)
print(total.device)
""",
    ),
    "elements of what each step changes": (
        "change|each step",
        """
best = 0.0
for step in range(4):
    kept = inputs[0, 0]
    found = kept[step].item()
    if found > best:
        best = found
    kept += 1
print(best)
""",
    ),
    "a row that is changed": (
        "no rewrite",
        """
for x, y in zip(inputs, labels):
    best = x.sum(1).argmax()
    row = x[best]
    row += 1
print(inputs.sum().device)
""",
    ),
    "a number that is put in two": (
        "no rewrite",
        """
x, other = inputs[0, 0].clone(), inputs[0, 1].clone()
for step in range(4):
    x[0] = other[0] = step / 2
print(x.sum().device)
""",
    ),
}
"""By what they are: why nothing is changed, and the program."""
