"""For each remedy inside of a framework the settings before it and after it.

``tests/trainers`` runs them, where the frameworks are installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


MODEL: Final = """
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)


class Rows(Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, number):
        torch.manual_seed(number)
        return {"x": torch.randn(16), "labels": torch.tensor(number % 4)}


class Model(torch.nn.Module):
    main_input_name = "x"

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 4)

    def forward(self, x, labels):
        return {"loss": F.cross_entropy(self.layer(x), labels)}


model = Model()
"""

TRANSFORMERS: Final = """
from transformers import Trainer, TrainingArguments

settings = dict(
    logging_strategy="no", logging_nan_inf_filter=False,
    accelerator_config={"non_blocking": True},
)
settings.update(dict(SETTINGS))
arguments = TrainingArguments(
    output_dir="written", per_device_train_batch_size=8, num_train_epochs=1, seed=0,
    report_to="none", save_strategy="no", disable_tqdm=True, optim="adamw_torch", **settings,
)
Trainer(model, arguments, train_dataset=Rows()).train()
"""

ACCELERATE: Final = """
from accelerate import Accelerator, DataLoaderConfiguration

accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(SETTINGS))
optimizer = torch.optim.AdamW(model.parameters())
batches = DataLoader(Rows(), batch_size=8, pin_memory=True)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
for batch in batches:
    accelerator.backward(model(**batch)["loss"])
    optimizer.step()
    optimizer.zero_grad()
"""

LIGHTNING: Final = """
import lightning as L
from lightning.pytorch.loggers import CSVLogger


class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model

    def training_step(self, batch, number):
        loss = self.model(**batch)["loss"]
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters())


trainer = L.Trainer(
    max_epochs=1, devices=1, enable_progress_bar=False, enable_model_summary=False,
    enable_checkpointing=False, logger=CSVLogger("written"), SETTINGS,
)
trainer.fit(Lit(), DataLoader(Rows(), batch_size=8, pin_memory=True))
"""

RESULT: Final = """
print("result", *model.layer.bias.tolist())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkProgram:
    """A program of *packages* with its settings *before* a remedy and *after* it."""

    packages: tuple[str, ...]
    program: str
    before: str
    after: str

    def text(self, settings: str) -> str:
        """Return the program with *settings*."""
        return MODEL + self.program.replace("SETTINGS", settings) + RESULT


def _trainer(before: str, after: str) -> FrameworkProgram:
    return FrameworkProgram(
        packages=("transformers", "accelerate"),
        program=TRANSFORMERS,
        before=before,
        after=after,
    )


FRAMEWORK_PROGRAMS: Final = {
    "transformers-logging": _trainer(
        "logging_strategy='steps', logging_steps=1",
        "logging_strategy='steps', logging_steps=50",
    ),
    "transformers-nan-filter": _trainer(
        "logging_nan_inf_filter=True", "logging_nan_inf_filter=False"
    ),
    "accelerate-batch": FrameworkProgram(
        packages=("accelerate",),
        program=ACCELERATE,
        before="non_blocking=False",
        after="non_blocking=True",
    ),
    "lightning-logging": FrameworkProgram(
        packages=("lightning",),
        program=LIGHTNING,
        before="log_every_n_steps=1",
        after="log_every_n_steps=50",
    ),
}
"""By the rule of the remedy."""
