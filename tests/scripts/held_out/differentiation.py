"""torch.func, checkpoints, hooks and functions of one's own."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call
from torch.func import grad
from torch.func import jacrev
from torch.func import jvp
from torch.func import stack_module_state
from torch.func import vmap
from torch.utils.checkpoint import checkpoint
from torch.utils.checkpoint import checkpoint_sequential


def net():
    return nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Linear(12, 3)).cuda()


def per_sample_gradients():
    model = net()
    params = {k: v.detach() for k, v in model.named_parameters()}
    x = torch.randn(5, 6, device="cuda")
    y = torch.randint(3, (5,), device="cuda")

    def loss(params, x, y):
        out = functional_call(model, params, (x.unsqueeze(0),))
        return F.cross_entropy(out, y.unsqueeze(0))

    grads = vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y)
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in grads.values()]).norm(dim=0)
    return norms.max().item()


def ensembles_of_models():
    models = [net() for _ in range(3)]
    params, buffers = stack_module_state(models)
    base = models[0]
    x = torch.randn(4, 6, device="cuda")
    out = vmap(lambda p, b: functional_call(base, (p, b), (x,)))(params, buffers)
    return out.mean(0), out.var(0).sum()


def jacobians():
    x = torch.randn(4, device="cuda")
    w = torch.randn(3, 4, device="cuda")
    j = jacrev(lambda x: torch.tanh(w @ x))(x)
    out, tangent = jvp(lambda x: (w @ x).sin(), (x,), (torch.ones_like(x),))
    h = torch.autograd.functional.hessian(lambda x: (w @ x).pow(2).sum(), x)
    return j, out, tangent, torch.trace(h)


def hutchinson_trace():
    model = net()
    x = torch.randn(4, 6, device="cuda", requires_grad=True)
    loss = model(x).pow(2).mean()
    params = list(model.parameters())
    grads = torch.autograd.grad(loss, params, create_graph=True)
    vs = [torch.randint_like(p, 2) * 2 - 1 for p in params]
    hv = torch.autograd.grad(grads, params, grad_outputs=vs)
    return sum((h * v).sum() for h, v in zip(hv, vs)).item()


def checkpointed_layers():
    layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()


def checkpointed_with_its_random_state():
    layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1), nn.Linear(8, 8)).cuda()
    x = torch.randn(4, 8, device="cuda", requires_grad=True)
    y = checkpoint(layers, x, use_reentrant=True)
    z = checkpoint_sequential(layers, 2, y, use_reentrant=False)
    z.sum().backward()


def saved_tensors_on_the_cpu():
    model = net()
    x = torch.randn(4, 6, device="cuda")
    with torch.autograd.graph.save_on_cpu(pin_memory=False):
        loss = model(x).square().mean()
    loss.backward()


def saved_tensors_in_half():
    model = net()
    x = torch.randn(4, 6, device="cuda")
    pack = lambda t: t.half() if t.dtype == torch.float32 else t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.float()):
        loss = model(x).sigmoid().mean()
    loss.backward()


def hooks_that_read():
    model = net()
    seen = {}

    def watch(module, args, output):
        seen[id(module)] = output.detach().abs().mean().item()

    handles = [m.register_forward_hook(watch) for m in model]
    model(torch.randn(4, 6, device="cuda"))
    for h in handles:
        h.remove()
    return seen


def hooks_that_do_not_read():
    model = net()
    stats = []
    handle = model[0].register_full_backward_hook(
        lambda m, gi, go: stats.append(go[0].norm())
    )
    for p in model.parameters():
        p.register_hook(lambda g: g.clamp(-1, 1))
    model(torch.randn(4, 6, device="cuda")).sum().backward()
    handle.remove()
    return torch.stack(stats)


def hooks_that_read_in_backward():
    model = net()
    norms = []
    for p in model.parameters():
        p.register_hook(lambda g: norms.append(g.norm().item()))
    model(torch.randn(4, 6, device="cuda")).sum().backward()
    return norms


def step_in_backward():
    model = net()
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

    def update(p):
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    model(torch.randn(4, 6, device="cuda")).sum().backward()


def reversed_gradient():
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, lam):
            ctx.lam = lam
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.lam * g, None

    x = torch.randn(4, device="cuda", requires_grad=True)
    Reverse.apply(x, 0.5).pow(2).sum().backward()


def function_that_reads_in_backward():
    class Noisy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            if x.max() > 80:
                g = g.clamp(max=1)
            return g * x.exp()

    x = torch.randn(4, device="cuda", requires_grad=True)
    Noisy.apply(x).sum().backward()


def anomaly_mode():
    with torch.autograd.set_detect_anomaly(True):
        x = torch.randn(4, device="cuda", requires_grad=True)
        y = (x * x).sum()
        y.backward()


def spectral_and_weight_norm():
    a = nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)).cuda()
    b = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)).cuda()
    x = torch.randn(4, 6, device="cuda")
    b(a(x)).sum().backward()


def meta_step():
    model = net()
    fast = dict(model.named_parameters())
    x, y = torch.randn(4, 6, device="cuda"), torch.randn(4, 3, device="cuda")
    for _ in range(2):
        loss = F.mse_loss(functional_call(model, fast, (x,)), y)
        grads = torch.autograd.grad(loss, fast.values(), create_graph=True)
        fast = {k: p - 0.01 * g for (k, p), g in zip(fast.items(), grads)}
    F.mse_loss(functional_call(model, fast, (x,)), y).backward()


def conflicting_gradients():
    model = net()
    x = torch.randn(4, 6, device="cuda")
    out = model(x)
    a = torch.autograd.grad(
        out[:, 0].sum(), list(model.parameters()), retain_graph=True
    )
    b = torch.autograd.grad(out[:, 1].sum(), list(model.parameters()))
    a, b = (torch.cat([g.flatten() for g in gs]) for gs in (a, b))
    dot = torch.dot(a, b)
    if dot < 0:
        a = a - dot / b.dot(b) * b
    torch.nn.utils.vector_to_parameters(a, model.parameters())
    flat = nn.utils.parameters_to_vector(model.parameters())
    return flat.norm()


def truncated_backpropagation():
    cell = nn.GRUCell(4, 6).cuda()
    h = torch.zeros(2, 6, device="cuda")
    for t in range(4):
        h = cell(torch.randn(2, 4, device="cuda"), h)
        if t % 2:
            h.mean().backward()
            h = h.detach()
    lstm = nn.LSTM(4, 6, 2, dropout=0.1).cuda()
    out, (h, c) = lstm(torch.randn(5, 2, 4, device="cuda"))
    (out.mean() + h.sum() + c.sum()).backward()
