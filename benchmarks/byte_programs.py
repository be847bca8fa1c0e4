"""Training steps as people write them: what `agreement_bytes.py` compares."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import byte_models as models
import torch
import torch.nn.functional as F  # noqa: N812, as everybody writes it
from torch import nn


Step = Callable[[], None]
Loss = Callable[[Any], Any]

DEVICE: Final = "cuda"
HALF: Final = torch.bfloat16


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a step does beside forward, backward and the optimizer."""

    amp: Any = None
    clip: float = 0.0
    micro_batches: int = 1
    ema: bool = False
    set_to_none: bool = True
    scheduled: bool = False

    def casts(self) -> AbstractContextManager[Any]:
        if self.amp is None:
            return nullcontext()
        casts: AbstractContextManager[Any] = torch.autocast("cuda", dtype=self.amp)
        return casts


def trained(
    model: Any, optimizer: Any, loss: Loss, training: Training | None = None
) -> Step:
    """One step of training *model*, whose *loss* is computed anew in each micro-batch."""
    how = training or Training()
    scaler = torch.amp.GradScaler("cuda") if how.amp is torch.float16 else None
    average = (
        copy.deepcopy(model).requires_grad_(requires_grad=False) if how.ema else None
    )
    schedule = (
        torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        if how.scheduled
        else None
    )

    def step() -> None:
        optimizer.zero_grad(set_to_none=how.set_to_none)
        for _ in range(how.micro_batches):
            with how.casts():
                found = loss(model) / how.micro_batches
            (found if scaler is None else scaler.scale(found)).backward()
        if how.clip and scaler is not None:
            scaler.unscale_(optimizer)
        if how.clip:
            nn.utils.clip_grad_norm_(model.parameters(), how.clip)
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()
        if schedule is not None:
            schedule.step()
        if average is not None:
            averaged(average, model)

    return step


def averaged(average: Any, model: Any) -> None:
    with torch.no_grad():
        pairs = zip(average.parameters(), model.parameters(), strict=True)
        for slow, fast in pairs:
            slow.mul_(0.999).add_(fast, alpha=0.001)


def ids(batch: int, tokens: int, words: int) -> Any:
    return torch.randint(1, words, (batch, tokens), device=DEVICE)


def classes(batch: int, most: int) -> Any:
    return torch.randint(most, (batch,), device=DEVICE)


def noise(*shape: int) -> Any:
    return torch.randn(*shape, device=DEVICE)


def words_loss(given: Any, model: Any) -> Any:
    scores = model(given[:, :-1])
    return F.cross_entropy(scores.flatten(0, 1), given[:, 1:].flatten())


def class_loss(given: Any, target: Any, model: Any) -> Any:
    return F.cross_entropy(model(given), target)


def mlp_sgd() -> Step:
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
    loss = partial(class_loss, noise(64, 784), classes(64, 10))
    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)


def mlp_adam(*, compiled: bool = False) -> Step:
    layers = [
        layer
        for _ in range(4)
        for layer in (nn.Linear(1024, 1024), nn.GELU(), nn.Dropout(0.1))
    ]
    model: Any = nn.Sequential(*layers, nn.Linear(1024, 1)).to(DEVICE)
    if compiled:
        model = torch.compile(model)
    x, y = noise(256, 1024), noise(256, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return trained(model, optimizer, lambda m: F.mse_loss(m(x), y))


def cnn() -> Step:
    model = models.Cnn().to(DEVICE)
    x, y = noise(32, 1, 28, 28), classes(32, 10)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    return trained(model, optimizer, lambda m: F.nll_loss(m(x), y))


def image_classes(
    model: Any, size: int = 96, most: int = 100, *, last: bool = False, **options: Any
) -> tuple[Any, Loss]:
    model, x = model.to(DEVICE), noise(16, 3, size, size)
    if last:
        model = model.to(memory_format=torch.channels_last)
        x = x.to(memory_format=torch.channels_last)
    target = classes(16, most)
    return model, lambda m: F.cross_entropy(m(x), target, **options)


def resnet(
    training: Training | None = None, *, last: bool = False, compiled: bool = False
) -> Step:
    model, loss = image_classes(models.ResNet(), last=last, label_smoothing=0.1)
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    return trained(model, optimizer, loss, training)


def mobilenet() -> Step:
    model, loss = image_classes(models.MobileNet(), most=10)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.9)
    return trained(model, optimizer, loss, Training(ema=True))


def convnext(training: Training | None = None, *, compiled: bool = False) -> Step:
    model, loss = image_classes(models.ConvNext(), size=128, label_smoothing=0.1)
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    return trained(model, optimizer, loss, training)


def vit(training: Training | None = None, *, fused: bool = False) -> Step:
    model, loss = image_classes(models.Vit(), size=224)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    return trained(model, optimizer, loss, training)


def mixer() -> Step:
    model, loss = image_classes(models.Mixer(), most=10)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)
    return trained(model, optimizer, loss)


def gpt(  # noqa: PLR0913, what a recipe is made of
    training: Training | None = None,
    *,
    compiled: str = "",
    dtype: Any = torch.float32,
    optimizer: Callable[..., Any] = torch.optim.AdamW,
    dropout: float = 0.0,
    checkpointed: bool = False,
    width: int = 256,
    batch: int = 8,
    **options: Any,
) -> Step:
    plain = models.Gpt(width=width, dropout=dropout, checkpointed=checkpointed)
    model: Any = plain.to(DEVICE, dtype)
    if compiled:
        model = torch.compile(model, backend=compiled)
    made = optimizer(model.parameters(), lr=1e-3, **options)
    return trained(model, made, partial(words_loss, ids(batch, 129, 2000)), training)


def bags(*, mode: str = "mean", by_frequency: bool = False) -> Step:
    """Texts of many words, sorted into classes by the sum of their words."""
    words = nn.EmbeddingBag(
        30_000, 128, mode=mode, scale_grad_by_freq=by_frequency, device=DEVICE
    )
    model = nn.Sequential(words, nn.Linear(128, 20, device=DEVICE))
    texts, classes = ids(256, 100, 30_000), ids(256, 1, 20).view(-1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return trained(model, optimizer, lambda m: F.cross_entropy(m(texts), classes))


def skip_gram(rows: int = 30_000, *, dtype: Any = torch.float32) -> Step:
    """Words that are moved towards their neighbours: two tables and nothing else."""
    model = nn.ModuleList(
        nn.Embedding(rows, 128, device=DEVICE, dtype=dtype) for _ in range(2)
    )
    middle, beside = ids(20_000, 1, rows).view(-1), ids(20_000, 1, rows).view(-1)

    def loss(model: Any) -> Any:
        return -F.logsigmoid((model[0](middle) * model[1](beside)).sum(1)).mean()

    return trained(model, torch.optim.SGD(model.parameters(), lr=0.1), loss)


def bert(training: Training | None = None, *, dropout: float = 0.1) -> Step:
    model = models.Bert(dropout=dropout).to(DEVICE)
    given, target = ids(8, 128, 1500), ids(8, 128, 1500)
    attended = torch.ones(8, 128, dtype=torch.long, device=DEVICE)

    def loss(model: Any) -> Any:
        scores = model(given, attended)
        return F.cross_entropy(
            scores.view(-1, 1500), target.view(-1), ignore_index=-100
        )

    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others}]
    return trained(model, torch.optim.AdamW(groups, lr=5e-5), loss, training)


def t5(training: Training | None = None) -> Step:
    model = models.T5().to(DEVICE)
    source, target = ids(4, 96, 1000), ids(4, 64, 1000)

    def loss(model: Any) -> Any:
        scores = model(source, target[:, :-1])
        return F.cross_entropy(scores.transpose(1, 2), target[:, 1:])

    optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2)
    return trained(model, optimizer, loss, training)


def llama(
    training: Training | None = None,
    *,
    dtype: Any = torch.float32,
    compiled: bool = False,
    batch: int = 4,
    **options: Any,
) -> Step:
    model: Any = models.Llama(**options).to(DEVICE, dtype)
    if compiled:
        model = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    given = ids(batch, 129, 2000)
    return trained(model, optimizer, partial(words_loss, given), training)


def unet(training: Training | None = None, *, last: bool = False) -> Step:
    model, x = models.UNet().to(DEVICE), noise(4, 3, 96, 96)
    if last:
        model = model.to(memory_format=torch.channels_last)
        x = x.contiguous(memory_format=torch.channels_last)
    mask = torch.ones(4, 1, 96, 96, device=DEVICE)

    def loss(model: Any) -> Any:
        scores = model(x)
        chances = torch.sigmoid(scores)
        shared = (chances * mask).sum((1, 2, 3))
        dice = 1 - (2 * shared + 1) / (chances.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        return F.binary_cross_entropy_with_logits(scores, mask) + dice.mean()

    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, foreach=True)
    return trained(model, optimizer, loss, training)


def diffusion(training: Training | None = None) -> Step:
    model, x = models.Denoiser().to(DEVICE), noise(8, 3, 32, 32)
    kept = torch.linspace(0.99, 0.01, 1000, device=DEVICE)

    def loss(model: Any) -> Any:
        times = torch.randint(0, 1000, (8,), device=DEVICE)
        drawn = torch.randn_like(x)
        share = kept[times].view(-1, 1, 1, 1)
        noisy = share.sqrt() * x + (1 - share).sqrt() * drawn
        return F.mse_loss(model(noisy, times), drawn)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return trained(model, optimizer, loss, training)


def vae() -> Step:
    model, x = models.Vae().to(DEVICE), torch.zeros(128, 1, 28, 28, device=DEVICE)

    def loss(model: Any) -> Any:
        made, mean, spread = model(x)
        likeness = F.binary_cross_entropy(made, x.view(-1, 784), reduction="sum")
        away = -0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
        return likeness + away

    return trained(model, torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def vqvae() -> Step:
    model, x = models.VqVae().to(DEVICE), noise(8, 3, 64, 64)

    def loss(model: Any) -> Any:
        made, commitment = model(x)
        return F.l1_loss(made, x) + commitment

    optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
    return trained(model, optimizer, loss)


def gan() -> Step:
    make, judge = models.generator().to(DEVICE), models.discriminator().to(DEVICE)
    makes = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999))
    judges = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
    real = noise(16, 3, 16, 16)

    def step() -> None:
        judge.zero_grad()
        scores = judge(real)
        F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores)).backward()
        made = make(noise(16, 64, 1, 1))
        scores = judge(made.detach())
        F.binary_cross_entropy_with_logits(scores, torch.zeros_like(scores)).backward()
        judges.step()
        make.zero_grad()
        scores = judge(made)
        F.binary_cross_entropy_with_logits(scores, torch.ones_like(scores)).backward()
        makes.step()

    return step


def upscaler() -> Step:
    model = models.Upscaler().to(DEVICE)
    x, y = noise(8, 3, 48, 48), noise(8, 3, 96, 96)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=True)
    return trained(model, optimizer, lambda m: F.smooth_l1_loss(m(x), y))


def speech() -> Step:
    model, x = models.Speech().to(DEVICE), noise(8, 40, 200)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    target = F.one_hot(classes(100 * 8, 29), 29).view(100, 8, 29).float()
    training = Training(clip=100.0, scheduled=True)
    return trained(
        model,
        optimizer,
        lambda m: F.kl_div(m(x), target, reduction="batchmean"),
        training,
    )


def dlrm(*, sparse: bool = False) -> Step:
    model, dense = models.Dlrm(sparse=sparse).to(DEVICE), noise(256, 13)
    bags = [classes(1024, most) for most in (5000, 3000, 100)]
    offsets = torch.arange(0, 1024, 4, device=DEVICE)
    y = torch.zeros(256, device=DEVICE)

    def loss(model: Any) -> Any:
        return F.binary_cross_entropy_with_logits(model(dense, bags, offsets), y)

    if sparse:
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    return trained(model, optimizer, loss)


def translator(training: Training | None = None) -> Step:
    model = models.Translator().to(DEVICE)
    source, target = ids(8, 48, 800), ids(8, 41, 800)

    def loss(model: Any) -> Any:
        scores = model(source, target[:, :-1])
        return F.cross_entropy(
            scores.flatten(0, 1), target[:, 1:].flatten(), ignore_index=0
        )

    optimizer = torch.optim.Adam(
        model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, foreach=False
    )
    return trained(model, optimizer, loss, training)


def recurrent(layer: nn.Module, *, cudnn: bool = True) -> Step:
    model = models.Recurrent(layer, 128).to(DEVICE)
    given = ids(8, 33, 500)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step = trained(model, optimizer, partial(words_loss, given), Training(clip=1.0))

    def run() -> None:
        with torch.backends.cudnn.flags(enabled=cudnn):
            step()

    return run


def graph() -> Step:
    model, x = models.Graph().to(DEVICE), noise(2000, 64)
    edges, y = torch.randint(2000, (2, 12000), device=DEVICE), classes(2000, 7)
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)

    def loss(model: Any) -> Any:
        return F.nll_loss(F.log_softmax(model(x, edges), dim=1), y)

    return trained(model, optimizer, loss)


def radiance() -> Step:
    model, rays = models.Radiance().to(DEVICE), noise(512, 6)
    depths = torch.linspace(2.0, 6.0, 32, device=DEVICE).expand(512, 32)
    seen = noise(512, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4)
    return trained(model, optimizer, lambda m: F.mse_loss(m(rays, depths), seen))


def clip() -> Step:
    model, x = models.Clip().to(DEVICE), noise(32, 3, 64, 64)
    given = ids(32, 24, 1000)

    def loss(model: Any) -> Any:
        scores = model(x, given)
        right = torch.arange(32, device=DEVICE)
        both = F.cross_entropy(scores, right) + F.cross_entropy(scores.t(), right)
        return both / 2 + 1e-4 * torch.logsumexp(scores, dim=1).square().mean()

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, capturable=True)
    return trained(model, optimizer, loss)


def q_learning() -> Step:
    model = nn.Sequential(
        nn.Linear(8, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 4)
    ).to(DEVICE)
    target = copy.deepcopy(model)
    state, after = noise(128, 8), noise(128, 8)
    action, reward = classes(128, 4), noise(128)

    def loss(model: Any) -> Any:
        value = model(state).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            best = target(after).max(dim=1).values
        return F.huber_loss(value, reward + 0.99 * best)

    optimizer = torch.optim.ASGD(model.parameters(), lr=1e-3)
    return trained(model, optimizer, loss, Training(clip=10.0))


FP16: Final = torch.float16
CLIPPED: Final = Training(clip=1.0)
RARE: Final = Training(amp=HALF, micro_batches=3, clip=1.0, scheduled=True)
SCALED: Final = Training(amp=FP16, clip=1.0)

PROGRAMS: Final[dict[str, Callable[[], Step]]] = {
    "MLP, SGD": mlp_sgd,
    "MLP, Adam, dropout": mlp_adam,
    "MLP, Adam, dropout, compiled": partial(mlp_adam, compiled=True),
    "CNN, Adadelta": cnn,
    "ResNet, SGD with momentum": resnet,
    "ResNet, channels_last": partial(resnet, last=True),
    "ResNet, channels_last, bf16": partial(resnet, Training(amp=HALF), last=True),
    "ResNet, compiled": partial(resnet, compiled=True),
    "ResNet, fp16 and scaler": partial(resnet, Training(amp=FP16)),
    "MobileNet, RMSprop, EMA": mobilenet,
    "ConvNeXt, AdamW": convnext,
    "ConvNeXt, bf16, EMA": partial(convnext, Training(amp=HALF, ema=True)),
    "ConvNeXt, compiled": partial(convnext, compiled=True),
    "ViT, AdamW, EMA": partial(vit, Training(ema=True)),
    "ViT, fused AdamW, bf16": partial(vit, Training(amp=HALF), fused=True),
    "MLP-Mixer, NAdam": mixer,
    "GPT, AdamW foreach": gpt,
    "GPT, AdamW fused, clip": partial(gpt, CLIPPED, fused=True),
    "GPT, AdamW loop, dropout": partial(gpt, dropout=0.1, foreach=False),
    "GPT, bf16, accumulation": partial(gpt, RARE),
    "GPT, fp16, scaler, clip": partial(gpt, SCALED, dropout=0.1),
    "GPT, checkpointing": partial(gpt, checkpointed=True),
    "GPT, checkpointing, bf16": partial(gpt, Training(amp=HALF), checkpointed=True),
    "GPT, bf16 weights, SGD": partial(gpt, dtype=HALF, optimizer=torch.optim.SGD),
    "GPT, compiled, eager": partial(gpt, compiled="eager"),
    "GPT, compiled, aot_eager": partial(gpt, compiled="aot_eager"),
    "GPT, 4,096 words": partial(gpt, batch=32),
    "GPT, 4,096 words, compiled": partial(gpt, compiled="inductor", batch=32),
    "GPT, 8,192 words, bf16": partial(gpt, Training(amp=HALF), batch=64),
    "GPT, 8,192 words, bf16 weights": partial(gpt, dtype=HALF, batch=64),
    "Skip-gram, 20,000 words, SGD": skip_gram,
    "Skip-gram of bytes, SGD": partial(skip_gram, 256),
    "Skip-gram of bytes, bf16 weights": partial(skip_gram, 256, dtype=HALF),
    "Bags of words, SGD": bags,
    "Bags of words, by frequency": partial(bags, mode="sum", by_frequency=True),
    "BERT, AdamW": bert,
    "BERT, bf16, accumulation": partial(bert, RARE),
    "T5, Adafactor": t5,
    "T5, Adafactor, bf16": partial(t5, Training(amp=HALF)),
    "Llama, fused AdamW": llama,
    "Llama, 4,096 words, compiled": partial(llama, compiled=True, batch=32),
    "Llama, bf16 weights, GQA": partial(llama, CLIPPED, dtype=HALF, fused=True),
    "Llama, bf16, checkpointing": partial(
        llama, Training(amp=HALF), checkpointed=True, fused=True
    ),
    "Mixtral, fused AdamW": partial(llama, moe=True),
    "Mixtral, bf16": partial(llama, Training(amp=HALF, clip=1.0), moe=True),
    "U-Net, RMSprop": unet,
    "U-Net, channels_last, fp16": partial(unet, SCALED, last=True),
    "Diffusion U-Net, AdamW, EMA": partial(diffusion, Training(ema=True)),
    "Diffusion U-Net, bf16": partial(diffusion, Training(amp=HALF)),
    "VAE, Adam": vae,
    "VQ-VAE, Adamax": vqvae,
    "GAN, two Adams": gan,
    "Super-resolution, Adam amsgrad": upscaler,
    "Speech, conv1d, SGD": speech,
    "DLRM, Adagrad": dlrm,
    "DLRM, sparse gradients, SGD": partial(dlrm, sparse=True),
    "nn.Transformer, Adam loop": translator,
    "nn.Transformer, bf16": partial(translator, Training(amp=HALF)),
    "LSTM of cuDNN": lambda: recurrent(nn.LSTM(128, 128, 2, batch_first=True)),
    "LSTM without cuDNN": lambda: recurrent(
        nn.LSTM(128, 128, 2, batch_first=True), cudnn=False
    ),
    "GRU without cuDNN": lambda: recurrent(
        nn.GRU(128, 128, batch_first=True), cudnn=False
    ),
    "LSTM cells": lambda: recurrent(models.Cells(nn.LSTMCell(128, 128))),
    "GRU cells": lambda: recurrent(models.Cells(nn.GRUCell(128, 128))),
    "Graph network, RAdam": graph,
    "NeRF, Adam": radiance,
    "CLIP, AdamW capturable": clip,
    "Q-learning, ASGD": q_learning,
}
