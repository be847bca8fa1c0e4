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
      seen, total = 0, 0.0
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
}

NOT_FIXED: Final = {
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
}
"""By what they are: why nothing is changed, and the program."""
