"""Parts of training loops: optimizers, scalers, averages, clipping."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel
from torch.optim.swa_utils import update_bn


def small():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to("cuda")


def batch():
    return torch.randn(16, 8, device="cuda"), torch.randint(4, (16,), device="cuda")


def train(model, optimizer, steps=2):
    for _ in range(steps):
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss


def half_precision_with_scaler():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    for _ in range(2):
        x, y = batch()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norm = clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    return norm.item(), scaler.get_scale()


def scaler_that_is_off():
    model = small()
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    x, y = batch()
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()


def scaler_with_a_fused_optimizer():
    model = small()
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    x, y = batch()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    skipped = scaler.get_scale() < 1024.0
    return skipped


def gradients_of_two_optimizers():
    g, d = small(), small()
    opt_g = torch.optim.Adam(g.parameters(), lr=2e-4, betas=(0.5, 0.999))
    opt_d = torch.optim.RMSprop(d.parameters(), lr=2e-4)
    for p in d.parameters():
        p.requires_grad_(False)
    x, _ = batch()
    g(x).mean().backward()
    opt_g.step()
    for p in d.parameters():
        p.requires_grad_(True)
    d(x).mean().backward()
    opt_d.step()
    for p in d.parameters():
        p.data.clamp_(-0.01, 0.01)


def clip_and_raise_on_infinite_norms():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    grad_norm = clip_grad_norm_(model.parameters(), 5.0, error_if_nonfinite=True)
    optimizer.step()
    return f"{grad_norm:.2f}"


def clip_by_value_and_own_norm():
    model = small()
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    total = 0.0
    for p in model.parameters():
        total += p.grad.detach().data.norm(2).item() ** 2
    total = total**0.5
    coef = 1.0 / (total + 1e-6)
    if coef < 1:
        for p in model.parameters():
            p.grad.detach().mul_(coef)


def clip_by_own_norm_without_reading():
    model = small()
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norms = torch._foreach_norm(grads, 2.0)
    total = torch.linalg.vector_norm(torch.stack(norms), 2.0)
    coef = torch.clamp(1.0 / (total + 1e-6), max=1.0)
    torch._foreach_mul_(grads, coef)


def ema_by_hand():
    model = small()
    ema = copy.deepcopy(model).eval().requires_grad_(False)
    train(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    decay = 0.999
    with torch.no_grad():
        for e, p in zip(ema.parameters(), model.parameters()):
            e.mul_(decay).add_(p.detach(), alpha=1 - decay)
        for (k, v), (_, w) in zip(ema.state_dict().items(), model.state_dict().items()):
            if v.dtype.is_floating_point:
                v.copy_(w)
    return next(ema.parameters()).sum().item()


def ema_by_lerp():
    model = small()
    shadow = {k: v.clone() for k, v in model.state_dict().items()}
    train(model, torch.optim.Adamax(model.parameters()))
    torch._foreach_lerp_(list(shadow.values()), list(model.state_dict().values()), 0.01)


def averaged_model_and_batch_norm():
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)).cuda()
    swa = AveragedModel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(2):
        train(model, optimizer, 1)
        swa.update_parameters(model)
    update_bn([batch()[0] for _ in range(2)], swa)


def every_schedule_of_the_rate():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [2])
    for _ in range(3):
        train(model, optimizer, 1)
        scheduler.step()
    return scheduler.get_last_lr()


def plateau_of_a_loss_on_the_gpu():
    model = small()
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    for _ in range(2):
        loss = train(model, optimizer, 1)
        scheduler.step(loss)


def rate_as_a_tensor():
    model = small()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=torch.tensor(1e-3, device="cuda"), capturable=True
    )
    train(model, optimizer)
    for group in optimizer.param_groups:
        group["lr"].mul_(0.5)
    print("lr", optimizer.param_groups[0]["lr"])


def nesterov_and_its_relatives():
    for kind in (torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adadelta):
        model = small()
        train(model, kind(model.parameters(), lr=1e-3))


def relatives_in_plain_loops():
    for kind in (torch.optim.ASGD, torch.optim.Rprop, torch.optim.RAdam):
        model = small()
        train(model, kind(model.parameters(), lr=1e-3, foreach=False))


def quasi_newton():
    model = small()
    x, y = batch()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)


def sparse_embedding():
    emb = nn.Embedding(100, 8, sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(list(emb.parameters()), lr=1e-2)
    ids = torch.randint(100, (16,), device="cuda")
    emb(ids).sum().backward()
    optimizer.step()


def adafactor():
    model = small()
    train(model, torch.optim.Adafactor(model.parameters(), lr=1e-2))


def accumulate_and_log_every_step():
    model = small()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    running = 0.0
    for i in range(4):
        x, y = batch()
        loss = F.cross_entropy(model(x), y) / 2
        loss.backward()
        running += loss.item()
        if (i + 1) % 2 == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    return running


def skip_steps_that_are_not_finite():
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = batch()
    loss = F.cross_entropy(model(x), y)
    if not math.isfinite(loss.item()):
        return
    loss.backward()
    bad = any(not torch.isfinite(p.grad).all() for p in model.parameters())
    if bad:
        optimizer.zero_grad()


def save_and_restore():
    model = small()
    optimizer = torch.optim.Adam(model.parameters())
    train(model, optimizer, 1)
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    cpu = {k: v.cpu() for k, v in state["model"].items()}
    model.load_state_dict(cpu)
    optimizer.load_state_dict(state["optim"])
    train(model, optimizer, 1)


def freeze_and_collect_norms():
    model = small()
    for name, p in model.named_parameters():
        if name.startswith("0."):
            p.requires_grad = False
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    norms = {
        n: p.grad.norm().item()
        for n, p in model.named_parameters()
        if p.grad is not None
    }
    weights = {n: p.data.norm() for n, p in model.named_parameters()}
    return norms, {k: float(v) for k, v in weights.items()}


def sharpness_aware_step():
    model = small()
    base = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = batch()
    F.cross_entropy(model(x), y).backward()
    norm = torch.norm(torch.stack([p.grad.norm(p=2) for p in model.parameters()]), p=2)
    scale = 0.05 / (norm + 1e-12)
    saved = []
    with torch.no_grad():
        for p in model.parameters():
            e = p.grad * scale.to(p)
            p.add_(e)
            saved.append(e)
    base.zero_grad()
    F.cross_entropy(model(x), y).backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), saved):
            p.sub_(e)
    base.step()


def channels_last_with_compiled_off():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    model = model.cuda().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)
    images = (
        torch.randn(4, 3, 16, 16)
        .cuda(non_blocking=True)
        .contiguous(memory_format=torch.channels_last)
    )
    labels = torch.randint(0, 4, (4,)).cuda(non_blocking=True)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss={loss.detach().cpu():.4f} tracked={model[1].num_batches_tracked}")
