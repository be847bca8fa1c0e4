"""The numbers of a step written by hand are those that a real trainer's steps have.

``tox -e trainers`` installs the packages; without one its tests skip themselves.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import pytest
from scripted_project import ScriptedProject


pytest.importorskip("torch")

DEVICES = pytest.mark.parametrize("device", ["simulated", "cpu"])

PARTS = """
import json
import torch
import torch.nn.functional as F
from pathlib import Path
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, number):
        torch.manual_seed(number)
        return {"x": torch.randn(64), "labels": torch.tensor(number % 10)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 4096), torch.nn.Linear(4096, 10)

    def forward(self, x, labels):
        return {"loss": F.cross_entropy(self.down(self.up(x).relu()), labels)}

def loader():
    return DataLoader(Rows(), batch_size=8, pin_memory=torch.cuda.is_available())

def endless():
    while True:
        yield from loader()

def keep(gpuperf, name):
    found = gpuperf.measurement
    waits = [(f.innermost or f.location, f.per_step) for f in found.findings
             if f.kind.name == "SYNC"]
    Path(name + ".json").write_text(json.dumps({
        "exact": dict(found.exact), "times": {k: t.mean for k, t in found.times.items()},
        "waits": {place.function: count for place, count in waits}}))

def by_hand(gpuperf, clip):
    device = gpuperf.device
    model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    rows = endless()
    def step():
        batch = {k: v.to(device, non_blocking=True) for k, v in next(rows).items()}
        model(**batch)["loss"].backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    gpuperf(step)
    keep(gpuperf, "hand")
"""


def skip_without(*packages: str) -> None:
    """Skip the test if one of *packages* is missing; do not import it into this process.

    ``pytester`` would drop it after the test, and torch cannot be imported twice.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"tox -e trainers installs {', '.join(missing)}")


def measured(project: ScriptedProject, source: str, device: str) -> dict[str, Any]:
    """What the calls of the tests in *source* kept, by their names."""
    project.file(PARTS + source)

    seconds = 5 if device == "cpu" else 120
    result = project.pytester.runpytest_subprocess(
        "--gpuperf", f"--gpuperf-device={device}", f"--gpuperf-seconds={seconds}"
    )

    tests = source.count("\ndef test_")
    assert result.parseoutcomes()["passed"] == tests
    return {p.stem: json.loads(p.read_text()) for p in project.path.glob("*.json")}


def assert_same(hand: dict[str, Any], trainer: dict[str, Any]) -> None:
    """Syncs, copies and kept memory are equal, and the peak is within 1 %."""
    mine, theirs = hand["exact"], trainer["exact"]
    peaks = {"peak_allocated_bytes"}
    # Scratch space of the GPU's libraries is the same everywhere, and would hide much.
    scratch = mine.get("workspace_bytes", 0)
    assert theirs.get("workspace_bytes", 0) == scratch
    for name in mine.keys() & peaks:
        assert theirs[name] - scratch == pytest.approx(mine[name] - scratch, rel=0.01)
    counts = {"syncs", "pageable_copies", "h2d_bytes", "d2h_bytes", "retained_graphs"}
    for name in mine.keys() & counts:
        assert theirs[name] == mine[name], name
    assert mine.keys() == theirs.keys()


TRANSFORMERS = """
import transformers
from transformers import Trainer, TrainingArguments, TrainerCallback

class Noted(TrainerCallback):
    saved = 0
    def on_save(self, *_, **__):
        Noted.saved += 1

def trainer(gpuperf, **settings):
    arguments = TrainingArguments(
        output_dir="written", per_device_train_batch_size=8, num_train_epochs=1,
        use_cpu=gpuperf.device == "cpu", report_to="none", save_steps=1,
        accelerator_config={"non_blocking": True}, logging_nan_inf_filter=False,
        optim="adamw_torch", **settings)
    return Trainer(Model(), arguments, train_dataset=Rows(), callbacks=[Noted()])

def test_hand(gpuperf):
    by_hand(gpuperf, clip=True)

def test_quiet(gpuperf):
    made = trainer(gpuperf, logging_strategy="no")
    kinds = [type(c) for c in made.callback_handler.callbacks]
    gpuperf.trainer(made, samples=8, loader_wait_pct=99, on="cpu")
    keep(gpuperf, "quiet")
    assert made.args.max_steps == -1
    assert sorted(map(str, kinds)) == sorted(
        str(type(c)) for c in made.callback_handler.callbacks)
    assert Noted.saved == 0
    assert not list(Path("written").rglob("*"))

def test_logging(gpuperf):
    gpuperf.trainer(trainer(gpuperf, logging_steps=1))
    keep(gpuperf, "logging")

def test_accumulating(gpuperf):
    made = trainer(gpuperf, logging_strategy="no", gradient_accumulation_steps=3)
    gpuperf.trainer(made)
    keep(gpuperf, "accumulating")
"""


@DEVICES
def test_a_trainer_of_transformers_has_the_numbers_of_its_step(
    project: ScriptedProject, device: str
) -> None:
    skip_without("transformers", "accelerate")

    found = measured(project, TRANSFORMERS, device)

    assert_same(found["hand"], found["quiet"])
    assert found["quiet"]["waits"] == {}
    if device == "cpu":
        assert 0 < found["quiet"]["times"]["loader_wait_pct"] < 99
    else:
        logged = "_maybe_log_save_evaluate"
        assert found["logging"]["waits"].keys() == {logged}
        assert found["logging"]["exact"]["syncs"] == 2
        batch = found["quiet"]["exact"]["h2d_bytes"]
        assert found["accumulating"]["exact"]["h2d_bytes"] == 3 * batch


LIGHTNING = """
import importlib
import os
L = importlib.import_module("PACKAGE")

class Lit(L.LightningModule):
    def __init__(self, logs):
        super().__init__()
        self.model, self.logs = Model(), logs

    def training_step(self, batch, number):
        loss = self.model(**batch)["loss"]
        if self.logs:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters())
        watching = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        return {"optimizer": optimizer,
                "lr_scheduler": {"scheduler": watching, "monitor": "loss of validation"}}

    def configure_callbacks(self):
        return [callbacks.ModelCheckpoint("saved", every_n_train_steps=1)]

    def validation_step(self, batch, number):
        raise AssertionError("validation is off")

callbacks = importlib.import_module(L.Trainer.__module__.split(".trainer")[0]).callbacks

def trainer(gpuperf, **settings):
    return L.Trainer(
        accelerator="cpu" if gpuperf.device == "cpu" else "auto", devices=1, max_epochs=1,
        default_root_dir="written", enable_progress_bar=False, enable_model_summary=False,
        callbacks=[callbacks.EarlyStopping("loss of validation")], **settings)

def test_hand(gpuperf):
    by_hand(gpuperf, clip=False)

def test_quiet(gpuperf):
    made = trainer(gpuperf, logger=False)
    before = list(made.callbacks)
    gpuperf.trainer(made, Lit(logs=False), loader(), loader(), samples=8,
        loader_wait_pct=99, on="cpu")
    keep(gpuperf, "quiet")
    assert made.max_epochs == 1
    assert made.callbacks == before
    assert not os.path.exists("written")
    assert not os.path.exists("saved")

def test_logging(gpuperf):
    gpuperf.trainer(trainer(gpuperf, log_every_n_steps=1), Lit(logs=True), loader())
    keep(gpuperf, "logging")
    assert not os.path.exists("written")

def test_accumulating(gpuperf):
    made = trainer(gpuperf, logger=False, accumulate_grad_batches=3)
    gpuperf.trainer(made, Lit(logs=False), loader())
    keep(gpuperf, "accumulating")
"""


@pytest.mark.parametrize(
    ("package", "device"),
    [
        ("lightning", "simulated"),
        ("lightning", "cpu"),
        ("pytorch_lightning", "simulated"),
    ],
)
def test_a_trainer_of_lightning_has_the_numbers_of_its_step(
    project: ScriptedProject, package: str, device: str
) -> None:
    skip_without(package)

    found = measured(project, LIGHTNING.replace("PACKAGE", package), device)

    assert_same(found["hand"], found["quiet"])
    assert found["quiet"]["waits"] == {}
    if device == "cpu":
        assert 0 < found["quiet"]["times"]["loader_wait_pct"] < 99
    else:
        assert found["logging"]["waits"] == {"to_item": 1}
        batch = found["quiet"]["exact"]["h2d_bytes"]
        assert found["accumulating"]["exact"]["h2d_bytes"] == 3 * batch


ACCELERATE = """
from accelerate import Accelerator, DataLoaderConfiguration

def parts(gpuperf, **settings):
    accelerator = Accelerator(cpu=gpuperf.device == "cpu",
        dataloader_config=DataLoaderConfiguration(non_blocking=True), **settings)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    return accelerator, *accelerator.prepare(model, optimizer, loader())

def train(accelerator, model, optimizer, batches):
    for batch in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch)["loss"])
            optimizer.step()
            optimizer.zero_grad()

def test_hand(gpuperf):
    by_hand(gpuperf, clip=False)

def test_quiet(gpuperf):
    accelerator, *rest = parts(gpuperf)
    gpuperf.trainer(accelerator, train, accelerator, *rest, samples=8)
    keep(gpuperf, "quiet")

def test_accumulating(gpuperf):
    accelerator, *rest = parts(gpuperf, gradient_accumulation_steps=3)
    gpuperf.trainer(accelerator, train, accelerator, *rest)
    keep(gpuperf, "accumulating")
"""


@DEVICES
def test_a_loop_of_accelerate_has_the_numbers_of_its_step(
    project: ScriptedProject, device: str
) -> None:
    skip_without("accelerate")

    found = measured(project, ACCELERATE, device)

    assert_same(found["hand"], found["quiet"])
    assert found["quiet"]["waits"] == {}
    if device == "simulated":
        batch = found["quiet"]["exact"]["h2d_bytes"]
        assert found["accumulating"]["exact"]["h2d_bytes"] == 3 * batch


TRL = """
from datasets import Dataset as Table
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

WORDS = ["<pad>", "<eos>", "<unk>", *"the cat sat on a mat and then it slept".split()]

def tokenizer():
    ids = {word: number for number, word in enumerate(WORDS)}
    made = Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>",
                                   eos_token="<eos>", unk_token="<unk>")

def test_sft(gpuperf):
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(WORDS), hidden_size=32, intermediate_size=64,
        num_hidden_layers=1, num_attention_heads=2, pad_token_id=0, eos_token_id=1))
    arguments = SFTConfig(
        output_dir="out", per_device_train_batch_size=4, report_to="none",
        logging_strategy="no", logging_nan_inf_filter=False, max_length=16, bf16=False,
        gradient_checkpointing=False, accelerator_config={"non_blocking": True})
    texts = Table.from_dict({"text": [" ".join(WORDS[3 + n % 5:]) for n in range(64)]})
    gpuperf.trainer(SFTTrainer(model=model, args=arguments, train_dataset=texts,
                               processing_class=tokenizer()))
    keep(gpuperf, "sft")
"""


@DEVICES
def test_a_trainer_of_trl_is_measured_as_it_is_and_its_own_waits_are_named(
    project: ScriptedProject, device: str
) -> None:
    skip_without("trl", "transformers")

    found = measured(project, TRL, device)["sft"]

    assert found["exact"]["retained_graphs"] == 0
    if device == "simulated":
        # TRL looks at the labels of each batch, and weighs its loss by their number.
        assert "compute_loss" in found["waits"]
        assert found["exact"]["pageable_copies"] == 0
    else:
        assert found["times"]["step_ms"] > 0
