"""What the Trainer of transformers does with a loader, unless it is told otherwise.

It pins memory and has no workers, and its copies block: today `non_blocking` is a setting
of its `accelerator_config`, off by default.
"""

from __future__ import annotations

import pytest
from data.feeding import rest_of_a_step, waited_pct
from data.slow_disk import SlowDisk
from models.simplenet import SimpleNet
from torch import nn

import pytest_gpuperf as gpuperf


pytestmark = pytest.mark.slow  # transformers takes long to import

WORKERS = {"dataloader_num_workers": 2, "dataloader_persistent_workers": True}


class Digits(SlowDisk):
    """Images by the names of what the model takes."""

    def __getitem__(self, index):
        image, label = super().__getitem__(index)
        return {"image": image, "labels": label}


class Classifier(nn.Module):
    """A model that returns its own loss, as the Trainer wants it."""

    def __init__(self):
        super().__init__()
        self.net = SimpleNet()

    def forward(self, image, labels):
        rest_of_a_step()
        logits = self.net(image)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def trainer_with(folder, device, **settings):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=16,
        report_to=[],
        use_cpu=device == "cpu",
        dataloader_pin_memory=device == "cuda",
        **settings,
    )
    model = Classifier().to(device)
    trainer = transformers.Trainer(model, arguments, train_dataset=Digits())
    trainer.create_optimizer()
    return trainer


@pytest.mark.claim("D21")
def test_memory_is_pinned_and_there_are_no_workers_by_default(tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), report_to=[])

    assert arguments.dataloader_pin_memory is True
    assert arguments.dataloader_num_workers == 0
    assert arguments.accelerator_config.non_blocking is False


@pytest.mark.claim("D21")
@gpuperf.budget(syncs=9)
@gpuperf.budget(loader_wait_pct=40, on=["cpu", "cuda"])
@pytest.mark.usefixtures("clock")
def test_workers_feed_the_trainer_as_any_loop(gpuperf, tmp_path):
    def loop_with(**settings):
        trainer = trainer_with(tmp_path, gpuperf.device, **settings)

        def step(batch):
            loss = trainer.compute_loss(trainer.model, batch)
            loss.backward()
            trainer.optimizer.step()
            trainer.optimizer.zero_grad()
            return loss.detach()

        return trainer.get_train_dataloader(), step

    gpuperf.loader(*loop_with(), name="default", loader_wait_pct=99.9, on="*")
    waited = waited_pct(gpuperf)
    gpuperf.loader(*loop_with(**WORKERS), name="workers")

    assert waited > 30
