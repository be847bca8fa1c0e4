"""Syncs planted in five examples: each is one that people write, and has an edit.

Below the line that a change begins with come its other lines. Each adds one sync.
"""

from __future__ import annotations

from typing import Final


PLANTED: Final = {
    "first_minute/train.py": (
        """
        output = model(images)
        weights = torch.tensor([1.0, 0.5] * 5, device=device)  # of classes
        output = output * weights
""",
        """
        loss = nn.functional.cross_entropy(output, labels)
        loss = loss + output[output > 2].sum()
""",
        """
        loss.backward()
        torch.cuda.synchronize()
""",
        """
        total += loss.item()
        torch.cuda.empty_cache()
""",
    ),
    "trainers/test_own_trainer.py": (
        """
            loss = self.model(self.rows).square().mean()
            noise = torch.zeros(16, 64).to(self.device)
            loss = loss + self.model(self.rows + noise).mean()
""",
        """
            loss.backward()
            if torch.isnan(loss).any():
                raise ValueError("no number")
            nn.utils.clip_grad_norm_(
                self.model.parameters(), 1.0, error_if_nonfinite=True
            )
            torch.cuda.synchronize()  # before the update
""",
    ),
    "no_hidden_sync/test_epochs.py": (
        """
def step(model, optimizer, images, labels):
    images = images + torch.full((64,), 0.25).to(images.device)
""",
        """
    loss = F.cross_entropy(model(images), labels)
    loss = loss + 0 * images[images > 3].sum()
""",
        """
    loss.backward()
    assert torch.isfinite(loss).all()
""",
        """
    optimizer.step()
    torch.cuda.empty_cache()
""",
    ),
    "memory/test_micro_batch.py": (
        """
        for part in images.chunk(micro_batches):
            part = part + torch.ones(32).to(device)
            part = part * torch.tensor(0.5, device=device)
            torch.cuda.synchronize()
""",
        """
        optimizer.step()
        torch.cuda.empty_cache()
""",
    ),
    "no_hidden_sync/test_cifar_loop.py": (
        """
    def step(self):
        order = torch.arange(BATCH).to(self.images.device)
        images = self.images[order]
""",
        """
        loss = F.cross_entropy(self.model(self.images), self.labels)
        counts = torch.bincount(self.labels, minlength=10)
        loss = loss + 0 * (counts.sum() + images.sum())
        loss = loss + max(loss, 0.0)
""",
        """
        self.optimizer.step()
        torch.cuda.synchronize()
""",
    ),
}
"""By the example: its changes, all of them in one step."""

NUMBER: Final = 20
"""The lines of all of them that wait."""


def planted(text: str, changes: tuple[str, ...]) -> str:
    """Return the source *text* of an example with all *changes*."""
    for change in changes:
        first, _, _ = change.lstrip("\n").partition("\n")
        assert text.count(f"{first}\n") == 1, first
        text = text.replace(f"{first}\n", change.lstrip("\n"))
    return text
