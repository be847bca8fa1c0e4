"""Programs as people write them, before and after ``gpuperf audit --fix`` with all its rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main


pytest.importorskip("torch")
pytest.importorskip("libcst")

pytestmark = pytest.mark.slow

EPOCHS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def make_data(n=256):
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 16, generator=g)
    return TensorDataset(x, (x.sum(1) > 0).long())


def train(epochs):
    torch.manual_seed(0)
    loader = DataLoader(make_data(), batch_size=32, shuffle=True)
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for epoch in range(epochs):
        running, correct = 0.0, 0
        for x, y in loader:
            x, y = x.to(device), y.to(device)  # the batch
            logits = model(x)
            loss = nn.functional.cross_entropy(logits, y)
            if torch.isnan(loss):
                raise RuntimeError('diverged')
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            running += loss.item() * x.size(0)
            correct += (logits.argmax(1) == y).sum().item()
            torch.cuda.synchronize()
        print(f"epoch {epoch}: {running / 256:.4f} {correct / 256:.3f}")
    print(f"mean {sum(losses) / len(losses):.4f}")


if __name__ == "__main__":
    train(2)
"""

SCALED = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(64, 1).cuda()
optimizer = torch.optim.AdamW(model.parameters())
amp = torch.amp.GradScaler("cuda")
total = 0.0
for step in range(8):
    loss = model(torch.ones(32, 64, device="cuda")).square().mean()
    optimizer.zero_grad()
    amp.scale(loss).backward()
    amp.step(optimizer)
    amp.update()
    total += loss.item()
print(f"{total / 8:.4f}")
"""

BRANCHES = """\
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
best = float("inf")
for step in range(8):
    loss = model(torch.ones(4, 8, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if loss.item() < best:
        best = loss.item()
        optimizer.param_groups[0]["lr"] *= 0.9
print(best)
"""


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def fixed(text: str, capfd: pytest.CaptureFixture[str], *options: str) -> Any:
    """Fix a script, and return what is said of it."""
    Path("train.py").write_text(text, encoding="utf-8")
    more = ("--json", "--fix", "--allow-dirty", *options)
    assert main(["audit", *more, "train.py"]) == 0
    return json.loads(capfd.readouterr().out)


def syncs_per_step(capfd: pytest.CaptureFixture[str]) -> int:
    main(["audit", "--json", "train.py"])
    found: int = json.loads(capfd.readouterr().out)["syncs_per_step"]
    return found


def test_a_loop_over_epochs_waits_in_no_step(
    capfd: pytest.CaptureFixture[str],
) -> None:
    document = fixed(EPOCHS, capfd, "--unsafe")

    text = Path("train.py").read_text(encoding="utf-8")
    assert document["syncs_per_step"] == syncs_per_step(capfd) == 0
    taken = [each for each in document["fixes"]["edits"] if each["in_diff"]]
    assert {each["same_training"] for each in taken} == {"in every digit"}
    assert "# the batch\n" in text
    assert len(set(text.splitlines()) - set(EPOCHS.splitlines())) < 12


def test_a_scaled_loop_waits_in_no_step_and_trains_within_rounding(
    capfd: pytest.CaptureFixture[str],
) -> None:
    document = fixed(SCALED, capfd)

    assert document["syncs_per_step"] == syncs_per_step(capfd) == 0
    assert "fused=True" in document["fixes"]["diff"]


def test_a_read_that_decides_how_the_training_goes_on_stays(
    capfd: pytest.CaptureFixture[str],
) -> None:
    document = fixed(BRANCHES, capfd)

    assert document["fixes"]["diff"] == ""
    assert Path("train.py").read_text(encoding="utf-8") == BRANCHES
