"""Where Python meets the GPU: printing, comparing, saving, streams."""

import copy
import io
import json
import logging
import math
import pickle
import time

import torch
import torch.nn as nn


log = logging.getLogger("held_out")
device = torch.device("cuda")


def print_in_every_way():
    x = torch.randn(3, device=device)
    s = x.sum()
    print(x)
    print("sum", s)
    print(f"{s}")
    print(f"{s:.2f}")
    print("%s" % s)
    print("{:5.1f}".format(s))
    print(x.shape, x.device, x.dtype, len(x), x.numel())


def log_lazily_and_eagerly():
    loss = torch.rand((), device=device)
    log.setLevel(logging.WARNING)
    log.debug("loss %s", loss)
    log.debug(f"loss {loss}")
    log.info("loss %.3f", loss.item())
    record = {"loss": round(loss.item(), 4), "lr": 0.1}
    return json.dumps(record)


def truth_of_tensors():
    x = torch.zeros(1, device=device)
    flags = []
    if x:
        flags.append("set")
    while x > 1:
        flags.append("never")
    flags.append("a" if x.bool() else "b")
    flags.append(not x)
    y = x > 0 or x == 0
    assert x < 1
    return flags, y


def comparisons_that_read():
    a, b = torch.ones(3, device=device), torch.ones(3, device=device)
    same = torch.equal(a, b)
    close = torch.allclose(a, b)
    is_in = 1.0 in a
    every = bool((a == b).all())
    torch.testing.assert_close(a, b)
    return same, close, is_in, every


def comparisons_that_do_not():
    a, b = torch.ones(3, device=device), torch.ones(3, device=device)
    c = torch.isclose(a, b)
    d = (a == b).all()
    e = a.eq(b) & a.ge(0) | a.isnan()
    f = a is b
    g = torch.isfinite(a).logical_and(c).any()
    torch._assert_async(d)
    return c, d, e, f, g


def numbers_of_python():
    x = torch.tensor(2.5, device=device)
    a = int(x)
    b = float(x)
    c = complex(x)
    d = math.sqrt(x)
    e = round(x.item())
    f = abs(x) + x**2 - x // 1
    g = torch.tensor(3, device=device).__index__()
    return a, b, c, d, e, f, g, [10, 20, 30, 40][torch.tensor(1, device=device)]


def scalars_of_the_cpu_in_expressions():
    x = torch.randn(4, device=device)
    t = torch.tensor(0.5)
    y = x * t + t
    y = y.clamp(min=torch.tensor(0.0))
    y.mul_(t).add_(1.5)
    z = torch.where(y > t, y, torch.tensor(0.0))
    y.fill_(3.0)
    y.fill_(torch.tensor(2.0))
    return z, torch.lerp(x, y, 0.5), torch.add(x, y, alpha=2)


def save_to_a_buffer():
    model = nn.Linear(4, 4).to(device)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    state = torch.load(buffer, map_location="cpu")
    model.load_state_dict(state)


def load_onto_the_gpu():
    buffer = io.BytesIO()
    torch.save({"w": torch.randn(4, 4), "step": 3}, buffer)
    buffer.seek(0)
    state = torch.load(buffer, map_location="cuda")
    return state["w"].sum() * state["step"]


def pickle_and_copy():
    x = torch.randn(4, device=device)
    y = copy.deepcopy(x)
    z = copy.copy(x)
    w = pickle.loads(pickle.dumps(x.cpu()))
    v = x.clone().detach().requires_grad_()
    return y, z, w, v


def model_copied_and_moved():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).to(device)
    twin = copy.deepcopy(model)
    twin.half().float().double()
    host = copy.deepcopy(model).cpu()
    model.to("cuda").train().eval()
    n = sum(p.numel() for p in model.parameters())
    return host, n


def streams_and_events():
    side = torch.cuda.Stream()
    x = torch.randn(16, device=device)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        done = side.record_event()
    torch.cuda.current_stream().wait_event(done)
    ready = done.query()
    z = y + 1
    side.synchronize()
    return z, ready


def timing_with_events():
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    torch.randn(64, 64, device=device) @ torch.randn(64, 64, device=device)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def timing_with_the_clock():
    torch.cuda.synchronize(device)
    t0 = time.perf_counter()
    x = torch.randn(32, 32, device=device).matmul(torch.ones(32, 32, device=device))
    torch.cuda.synchronize()
    t1 = time.perf_counter()
    end = torch.cuda.Event()
    end.record()
    end.synchronize()
    return x, t1 - t0


def memory_bookkeeping():
    x = torch.zeros(1024, device=device)
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    y = x * 2
    peak = torch.cuda.max_memory_allocated() - before
    del y
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info()
    return peak, free < total, torch.cuda.memory_reserved() > 0


def properties_of_the_machine():
    n = torch.cuda.device_count()
    name = torch.cuda.get_device_name(0)
    cap = torch.cuda.get_device_capability()
    props = torch.cuda.get_device_properties(device)
    current = torch.cuda.current_device()
    bf16 = torch.cuda.is_bf16_supported()
    return n, name, cap, props.total_memory > 0, current, bf16


def buffers_and_counters():
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("step", torch.zeros((), dtype=torch.long))
            self.register_buffer("table", torch.linspace(0, 1, 10))

        def forward(self, x):
            self.step += 1
            if self.training and self.step.item() % 2 == 0:
                x = x * 2
            return x * self.table[self.step.clamp(max=9)]

    m = Counter().to(device)
    for _ in range(2):
        out = m(torch.ones(2, device=device))
    return out


def gather_scalars_then_read_once():
    scalars = {
        "loss": torch.rand((), device=device),
        "acc": torch.rand((), device=device),
    }
    values = torch.stack(list(scalars.values())).tolist()
    return dict(zip(scalars, values))


def history_kept_as_tensors():
    history = []
    for _ in range(4):
        history.append(torch.rand(2, device=device).mean().detach())
    return torch.stack(history).mean().item(), sum(history) / len(history)


def early_stopping():
    best, bad = float("inf"), 0
    for _ in range(3):
        loss = torch.rand(8, device=device).mean()
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad > 5:
            break
    return best


def nan_guards():
    x = torch.randn(8, device=device)
    if torch.isnan(x).any() or torch.isinf(x).any():
        raise RuntimeError("bad")
    guard = torch.nan_to_num(x)
    total = guard.sum()
    if total != total:
        raise RuntimeError("nan")
    if math.isnan(total):
        raise RuntimeError("nan")
    return torch.finfo(x.dtype).max - total


def diffusion_step():
    betas = torch.linspace(1e-4, 0.02, 100)
    alphas = torch.cumprod(1 - betas, 0).to(device)
    x = torch.randn(4, 3, 8, 8, device=device)
    t = torch.randint(0, 100, (4,), device=device)
    a = alphas[t].view(-1, 1, 1, 1)
    noise = torch.randn_like(x)
    noisy = a.sqrt() * x + (1 - a).sqrt() * noise
    for step in torch.arange(99, 96, -1):
        noisy = noisy - betas[step] * noise
    for step in torch.tensor([3, 2, 1], device=device):
        noisy = noisy * alphas[step]
    emb = torch.exp(-math.log(10000) * torch.arange(4, device=device) / 4)
    return noisy, torch.cat(
        [torch.sin(t[:, None] * emb), torch.cos(t[:, None] * emb)], -1
    )


def images_for_a_board():
    x = torch.rand(2, 3, 8, 8, device=device)
    grid = torch.cat(list(x), dim=-1)
    grid = (grid - grid.min()) / (grid.max() - grid.min() + 1e-5)
    array = (
        grid.mul(255)
        .add_(0.5)
        .clamp_(0, 255)
        .permute(1, 2, 0)
        .to("cpu", torch.uint8)
        .numpy()
    )
    text = str(array.shape) + repr(x[0, 0, 0])
    return text


def tensors_as_keys_and_members():
    ids = torch.tensor([4, 7], device=device)
    seen = {int(i) for i in ids}
    names = {i.item(): str(i) for i in ids}
    hit = ids[0] in seen
    both = (ids == torch.tensor([4, 7], device=device)).tolist()
    return seen, names, hit, both


def parameters_written_by_hand():
    layer = nn.Linear(4, 4).to(device)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(4))
        layer.bias.zero_()
        layer.weight[0] = 1
        layer.weight.data = layer.weight.data.clone()
        layer.bias.copy_(torch.zeros(4, device=device))
    nn.init.trunc_normal_(layer.weight, std=0.02)
    nn.init.constant_(layer.bias, 0.1)
    nn.init.sparse_(layer.weight, 0.5)
    return layer.weight


def several_dtypes():
    x = torch.randn(4, 4, device=device)
    y = x.bfloat16().float() + x.half()
    z = (x > 0).to(torch.uint8).sum(dtype=torch.float64)
    i = x.long().remainder(3) + torch.ones((), dtype=torch.int32, device=device)
    c = torch.complex(x, x).abs() + x.to(torch.float8_e4m3fn).float()
    return y, z, i, c, x.view(torch.int32)
