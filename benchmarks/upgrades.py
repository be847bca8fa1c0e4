"""Real upgrades of public packages: what `gpuperf ab` says of them without a GPU.

Each row is one program, run with two releases of a package on the simulated GPU. The
earlier release is installed by `uv` into an environment of its own, the later one by
`gpuperf ab --with`, so this needs an index of packages. Prints the table of `docs/evidence/upgrades.md`, a row as soon as it is known. The rows were
picked before any of them ran; those that fail stay in the table.

    python benchmarks/upgrades.py            # all rows
    python benchmarks/upgrades.py kornia     # rows with this in their name
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from typing import Final


ROOT: Final = Path(__file__).parents[1]


LOOP = """
import torch
torch.manual_seed(0)
device = "cuda"
{setup}
for index in range(4):
{body}
"""

LLAMA = """
from transformers import LlamaConfig, LlamaForCausalLM
config = LlamaConfig(vocab_size=128, hidden_size=64, intermediate_size=128,
    num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=512)
model = LlamaForCausalLM(config).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
ids = torch.randint(0, 128, (4, 256), device=device)
mask = torch.ones_like(ids)
mask[:, :16] = 0
"""

LLAMA_STEP = """
model(input_ids=ids, attention_mask=mask, labels=ids).loss.backward()
optimizer.step()
optimizer.zero_grad()
"""

MASK2FORMER = """
from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig
backbone = SwinConfig(image_size=64, patch_size=4, embed_dim=24, depths=[1, 1, 1, 1],
    num_heads=[1, 1, 2, 2], window_size=4,
    out_features=["stage1", "stage2", "stage3", "stage4"])
config = Mask2FormerConfig(backbone_config=backbone, feature_size=32, mask_feature_size=32,
    hidden_dim=32, encoder_feedforward_dim=64, dim_feedforward=64, encoder_layers=1,
    decoder_layers=3, num_attention_heads=2, num_queries=10, num_labels=4,
    train_num_points=256)
model = Mask2FormerForUniversalSegmentation(config).to(device)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
pixels = torch.randn(2, 3, 64, 64, device=device)
masks = [torch.randint(0, 2, (3, 64, 64), device=device).float() for _ in range(2)]
classes = [torch.tensor([0, 1, 2], device=device) for _ in range(2)]
"""

MASK2FORMER_STEP = """
loss = model(pixel_values=pixels, mask_labels=masks, class_labels=classes).loss
loss.backward()
optimizer.step()
optimizer.zero_grad()
"""

METRICS = """
from torchmetrics.classification import (
    MulticlassAccuracy, MulticlassAUROC, MulticlassCalibrationError, MulticlassF1Score)
from torchmetrics import MeanMetric
metrics = [MulticlassAccuracy(5), MulticlassAUROC(5, thresholds=20), MulticlassF1Score(5),
    MulticlassCalibrationError(5)]
metrics = [metric.to(device) for metric in metrics]
mean = MeanMetric().to(device)
model = torch.nn.Linear(16, 5).to(device)
x, y = torch.randn(32, 16, device=device), torch.randint(0, 5, (32,), device=device)
"""

METRICS_STEP = """
out = model(x)
loss = torch.nn.functional.cross_entropy(out, y)
loss.backward()
mean.update(loss.detach())
for metric in metrics:
    metric.update(out.detach().softmax(-1), y)
"""

AUGMENT = """
import kornia.augmentation as K
augment = K.AugmentationSequential(
    K.RandomAffine(15.0, p=1.0), K.ColorJitter(0.2, 0.2, 0.2, 0.2, p=1.0),
    K.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0), K.RandomHorizontalFlip(p=0.5),
    data_keys=["input"]).to(device)
model = torch.nn.Conv2d(3, 4, 3).to(device)
images = torch.rand(4, 3, 32, 32, device=device)
"""

AUGMENT_STEP = """
model(augment(images)).mean().backward()
"""

FABRIC = """
from lightning_fabric import Fabric
fabric = Fabric(accelerator="cuda", devices=1, precision="bf16-mixed")
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
model, optimizer = fabric.setup(model, optimizer)
x = torch.randn(8, 16, device=device)
"""

FABRIC_STEP = """
fabric.backward(model(x).square().mean())
fabric.clip_gradients(model, optimizer, max_norm=1.0)
optimizer.step()
optimizer.zero_grad()
"""

DIFFUSION = """
from diffusers import DDPMScheduler, UNet2DModel
model = UNet2DModel(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1,
    block_out_channels=(16, 32), norm_num_groups=8,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"),
    up_block_types=("AttnUpBlock2D", "UpBlock2D")).to(device)
schedule = DDPMScheduler(num_train_timesteps=100)
optimizer = torch.optim.AdamW(model.parameters())
clean = torch.randn(2, 3, 16, 16, device=device)
"""

DIFFUSION_STEP = """
noise = torch.randn_like(clean)
steps = torch.randint(0, 100, (2,), device=device)
guess = model(schedule.add_noise(clean, noise, steps), steps).sample
torch.nn.functional.mse_loss(guess, noise).backward()
optimizer.step()
optimizer.zero_grad()
schedule.set_timesteps(5)
with torch.no_grad():
    for t in schedule.timesteps:
        clean = schedule.step(noise, t, clean).prev_sample
"""

TIMM = """
import timm
from timm.data import Mixup
from timm.utils import ModelEmaV2
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2,
    num_classes=5).to(device)
mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=5)
average = ModelEmaV2(model)
optimizer = torch.optim.AdamW(model.parameters())
images, labels = torch.rand(4, 3, 32, 32, device=device), torch.tensor([0, 1, 2, 3]).to(device)
"""

TIMM_STEP = """
mixed, targets = mixup(images.clone(), labels)
torch.sum(-targets * model(mixed).log_softmax(-1), -1).mean().backward()
optimizer.step()
optimizer.zero_grad()
average.update(model)
"""

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.utils.data.DataLoader(torch.randn(16, 16), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
batches = list(data)
"""

ACCELERATE_STEP = """
with accelerator.accumulate(model):
    loss = model(batches[index]).square().mean()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.gather(loss.detach())
"""

PEFT = """
from peft import LoraConfig, get_peft_model
model = torch.nn.Sequential()
model.q = torch.nn.Linear(32, 32)
model.v = torch.nn.Linear(32, 32)
model = get_peft_model(model, LoraConfig(r=4, target_modules=["q", "v"], lora_dropout=0.1))
model = model.to(device)
optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
x = torch.randn(8, 32, device=device)
"""

PEFT_STEP = """
model(x).square().mean().backward()
optimizer.step()
optimizer.zero_grad()
"""

EINOPS = """
from einops import rearrange, reduce, repeat
from einops.layers.torch import Rearrange
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), Rearrange("b c h w -> b (h w) c"),
    torch.nn.Linear(8, 8)).to(device)
images = torch.rand(4, 3, 16, 16, device=device)
"""

EINOPS_STEP = """
out = rearrange(model(images), "b (h w) c -> b c h w", h=14)
reduce(repeat(out, "b c h w -> b c h (r w)", r=2), "b c h w -> b", "mean").sum().backward()
"""

MONAI = """
from monai.losses import DiceCELoss
from monai.networks.nets import UNet
from monai.metrics import DiceMetric
model = UNet(spatial_dims=2, in_channels=1, out_channels=3, channels=(8, 16, 32),
    strides=(2, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
loss_of = DiceCELoss(to_onehot_y=True, softmax=True)
metric = DiceMetric(include_background=False)
images = torch.rand(2, 1, 32, 32, device=device)
labels = torch.randint(0, 3, (2, 1, 32, 32), device=device)
"""

MONAI_STEP = """
out = model(images)
loss_of(out, labels).backward()
optimizer.step()
optimizer.zero_grad()
hard = torch.nn.functional.one_hot(out.argmax(1), 3).movedim(-1, 1)
truth = torch.nn.functional.one_hot(labels[:, 0], 3).movedim(-1, 1)
metric(hard, truth)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """Two releases of a package, the setup and one step of the program that uses it."""

    package: str
    before: str
    after: str
    setup: str
    body: str
    also: tuple[str, ...] = field(default=())

    @property
    def name(self) -> str:
        return f"{self.package} {self.before} -> {self.after}"

    def program(self) -> str:
        body = "".join(f"    {line}\n" for line in self.body.strip().splitlines())
        return LOOP.format(setup=self.setup.strip(), body=body)


UPGRADES = (
    Upgrade(
        package="torchmetrics",
        before="1.4.0",
        after="1.8.2",
        setup=METRICS,
        body=METRICS_STEP,
    ),
    Upgrade(
        package="kornia",
        before="0.7.4",
        after="0.8.0",
        setup=AUGMENT,
        body=AUGMENT_STEP,
    ),
    Upgrade(
        package="kornia",
        before="0.8.3",
        after="0.9.0",
        setup=AUGMENT,
        body=AUGMENT_STEP,
    ),
    Upgrade(
        package="lightning-fabric",
        before="2.2.5",
        after="2.4.0",
        setup=FABRIC,
        body=FABRIC_STEP,
        # The earlier release imports pkg_resources, which setuptools had until then.
        also=("setuptools<81",),
    ),
    Upgrade(
        package="diffusers",
        before="0.33.0",
        after="0.35.0",
        setup=DIFFUSION,
        body=DIFFUSION_STEP,
    ),
    Upgrade(
        package="transformers",
        before="4.35.2",
        after="4.36.0",
        setup=LLAMA,
        body=LLAMA_STEP,
    ),
    Upgrade(
        package="transformers",
        before="4.37.2",
        after="4.38.2",
        setup=LLAMA,
        body=LLAMA_STEP,
    ),
    Upgrade(
        package="transformers",
        before="4.31.0",
        after="4.32.0",
        setup=MASK2FORMER,
        body=MASK2FORMER_STEP,
        also=("scipy",),
    ),
    Upgrade(package="timm", before="0.9.16", after="1.0.9", setup=TIMM, body=TIMM_STEP),
    Upgrade(
        package="accelerate",
        before="0.34.2",
        after="1.2.1",
        setup=ACCELERATE,
        body=ACCELERATE_STEP,
    ),
    Upgrade(
        package="peft", before="0.11.1", after="0.13.2", setup=PEFT, body=PEFT_STEP
    ),
    Upgrade(
        package="einops", before="0.7.0", after="0.8.1", setup=EINOPS, body=EINOPS_STEP
    ),
    Upgrade(
        package="monai", before="1.3.2", after="1.4.0", setup=MONAI, body=MONAI_STEP
    ),
)


def compared(upgrade: Upgrade, folder: Path) -> tuple[int, str, str]:
    """Return the exit status of `gpuperf ab`, its JSON and its errors."""
    (folder / "train.py").write_text(upgrade.program())
    try:
        python = _installed(upgrade, folder / "environment")
    except subprocess.CalledProcessError as error:
        return error.returncode, "", f"cannot be installed: {error.stderr}"
    ran = subprocess.run(
        [
            *(python, "-m", "pytest_gpuperf", "ab", "--json"),
            f"--with={upgrade.package}=={upgrade.after}",
            *("--", "train.py"),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def _installed(upgrade: Upgrade, place: Path) -> Path:
    """Install the earlier release, torch and this project, as a user has them."""
    uv, python = str(shutil.which("uv")), place / "bin" / "python"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    subprocess.run([uv, "venv", "--quiet", "--python", version, place], check=True)
    pins = f"{upgrade.package}=={upgrade.before}", *upgrade.also
    torch = f"torch=={metadata.version('torch').partition('+')[0]}"
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python]
    subprocess.run(
        [*install, torch, *pins, ROOT], check=True, capture_output=True, text=True
    )
    return python


def moved(test: Mapping[str, Any]) -> Iterator[str]:
    for change in test["exact"]:
        yield (
            f"{change['verdict']} {change['metric']} {change['before']:,} -> {change['after']:,}"
        )


def lines(test: Mapping[str, Any]) -> Iterator[str]:
    for found in test["findings"]:
        then, now = found["before_per_step"], found["per_step"]
        inner = found["innermost"] or found["location"]
        if inner and then != now:
            place = inner["file"].split("site-packages/")[-1]
            yield f"{found['op'] or found['kind']} at {place}:{inner['line']}: {then} -> {now}"


def main(wanted: str = "") -> int:
    for upgrade in UPGRADES:
        if wanted not in upgrade.name:
            continue
        start = perf_counter()
        with TemporaryDirectory() as folder:
            status, out, err = compared(upgrade, Path(folder))
        took = f"{perf_counter() - start:.0f} s"
        print(f"## {upgrade.name}: exit {status}, {took}")
        if not out:
            print(f"   {err.strip().splitlines()[-1] if err.strip() else 'nothing'}")
            continue
        found = json.loads(out)
        for test in found["tests"]:
            same = test.get("training")
            print(f"   {test['verdict']}; training: {same}")
            for line in (*moved(test), *lines(test)):
                print(f"   {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
