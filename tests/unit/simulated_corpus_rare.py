"""CUDA code that uses what is used more rarely, written before it was run.

Each snippet runs as a statement in a fresh ``SETTING``; the expectations come from CUDA's
semantics and torch 2.13's sources.
"""

from __future__ import annotations

from typing import Final

import simulated_corpus_idioms


SETTING: Final = (
    simulated_corpus_idioms.SETTING
    + """
import torch.autograd.forward_ad as fwAD
class Scale(torch.autograd.Function):
    generate_vmap_rule=True
    @staticmethod
    def forward(v): return v*2
    @staticmethod
    def setup_context(ctx, inputs, output): pass
    @staticmethod
    def backward(ctx,g): return g*2
class Stream_(torch.utils.data.IterableDataset):
    def __iter__(self): return iter([torch.ones(2),torch.ones(2)])
off=nn.Embedding(20,8,sparse=True,device="cuda")
sparse_opt=torch.optim.SparseAdam(off.parameters())
sgd_sparse=torch.optim.SGD(off.parameters(),lr=0.1)
with torch.device("meta"): meta_net=nn.Linear(8,4)
jag=torch.nested.nested_tensor([torch.randn(2,8),torch.randn(3,8)],layout=torch.jagged,device="cuda")
cplx=torch.randn(4,4,dtype=torch.complex64,device="cuda")
opt_states=adamw.state_dict()
"""
)


WAITS: Final[dict[str, tuple[str, ...]]] = {
    "rarer calls": (
        "with torch.autograd.graph.saved_tensors_hooks(lambda t: t.cpu(), lambda t: t.cuda()): net(leaf).sum().backward()",
        "(off(target).sum().backward(), sparse_opt.step())",
        "torch.as_tensor([y[0], y[1]])",
        "complex(cplx[0,0])",
        "cplx.abs().max().item()",
        "torch.from_numpy(host.numpy()).cuda()",
        "with fwAD.dual_level(): fwAD.unpack_dual(fwAD.make_dual(y, y) * 2).tangent.sum().item()",
        "leaf.register_hook(lambda g: seen.append(g.norm().item())); leaf.sum().backward()",
        "net[0].weight.register_post_accumulate_grad_hook(lambda p: seen.append(float(p.grad.norm()))); net(x).sum().backward()",
        "torch.func.vmap(torch.sum)(x).tolist()",
        "with torch.autocast('cuda'): loss = F.cross_entropy(net(x), target); loss.item()",
        "for b in DataLoader(Stream_(), batch_size=2): b.to('cuda')",
        "torch.utils.data.default_convert(host).cuda()",
        "adamw.load_state_dict(copy.deepcopy({**opt_states})); torch.save(adamw.state_dict(), buffer)",
        "x.std(dim=0).cpu().apply_(lambda v: v)",
        "torch.cuda.current_stream().synchronize()",
        "print(net[0].weight.grad.abs().mean())",
        "print({'loss': total})",
        "str([total, y[:2]])",
        "repr(dict(a=total))",
        "total.numpy(force=True)",
        "torch.tensor([total.item()], device='cuda').mean()",
        "y.unique(return_inverse=True)[1]",
        "torch.unique(x, dim=0, return_counts=True)",
        "assert not torch.isnan(y).any(), 'nan'",
        "x[x.sum(1).argmax()]",
        "y.sort().values[int(0.9 * len(y))].item()",
        "nn.utils.skip_init(nn.Linear, 4, 4).cuda()",
        "jag.to_padded_tensor(0.0).sum().item()",
        "torch.allclose(x.cpu(), x.cpu()) and True",
        "random.sample(list(target), 2)[0].item()",
        "int(total) // 2",
        "round(float(total), 2)",
        "net.load_state_dict(torch.load(io.BytesIO((torch.save(net.cpu().state_dict(), buffer), buffer.getvalue())[1])))",
    ),
}
"""The host waits."""


RUNS_ON: Final[dict[str, tuple[str, ...]]] = {
    "rarer calls": (
        "(off(target).sum().backward(), sgd_sparse.step())",
        "Scale.apply(leaf).sum().backward()",
        "torch.func.vmap(Scale.apply)(x)",
        "meta_net.to_empty(device='cuda')(x)",
        "copy.deepcopy(net).to('meta')(x.to('meta')).copy_(x[:, :1])",
        "nn.utils.skip_init(nn.Linear, 4, 4, device='cuda')",
        "nn.LazyLinear(4).cuda()(x)",
        "copy.copy(x) + torch.clone(x)",
        "torch.asarray(x) * 2",
        "x.backward(gradient=x) if x.requires_grad else leaf.square().backward(gradient=x)",
        "leaf.retain_grad(); (leaf*2).retain_grad()",
        "net[0].weight.register_post_accumulate_grad_hook(lambda p: sgd.step()); net(x).sum().backward()",
        "with fwAD.dual_level(): fwAD.unpack_dual(fwAD.make_dual(y, y) * 2).tangent",
        "torch.func.jvp(torch.sin, (y,), (y,))",
        "torch.func.hessian(lambda t: (t ** 3).sum())(y[:4])",
        "torch.autograd.functional.vjp(torch.square, y, y)",
        "with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]): net(x)",
        "torch.cuda.nvtx.range_push('a'); torch.cuda.nvtx.range_pop()",
        "with torch.cuda.nvtx.range('a'): net(x)",
        "cplx @ cplx.conj().T + torch.view_as_real(cplx).sum()",
        "torch.view_as_complex(torch.randn(3, 2, device='cuda')).angle()",
        "x.resize_(8, 8); x.t_().unsqueeze_(0).squeeze_()",
        "torch.sum(x, 0, out=torch.empty(8, device='cuda'))",
        "x.new_empty(0).set_(x)",
        "jag * 2",
        "net.apply(lambda m: nn.init.zeros_(m.bias) if isinstance(m, nn.Linear) else None)",
        "nn.ParameterList([nn.Parameter(x)]).cuda()",
        "nn.utils.parameters_to_vector(net.parameters()).norm()",
        "torch.stack(x.unbind(0)).view_as(x).chunk(2, dim=1)",
        "torch.tril(square) + torch.triu(square, 1) - torch.diag(square.diagonal())",
        "F.unfold(image, 3).transpose(1, 2).matmul(torch.randn(27, 2, device='cuda'))",
        "F.grid_sample(image, torch.rand(2, 4, 4, 2, device='cuda') * 2 - 1, align_corners=False)",
        "F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2)",
        "F.scaled_dot_product_attention(seq, seq, seq, attn_mask=causal.isinf().logical_not())",
        "nn.Transformer(8, 2, 1, 1, 16, batch_first=True, device='cuda')(seq, seq).sum().backward()",
        "nn.RNN(8, 8, device='cuda')(seq)[0].sum().backward()",
        "torch.optim.lr_scheduler.SequentialLR(sgd, [torch.optim.lr_scheduler.LinearLR(sgd), torch.optim.lr_scheduler.CosineAnnealingLR(sgd, 5)], [2]).step()",
        "torch.optim.Adam(net.parameters(), fused=True).step()",
        "torch.optim.NAdam(net.parameters(), foreach=True).step()",
        "torch.amp.autocast_mode.is_autocast_available('cuda')",
        "with torch.no_grad(): [p.copy_(q) for p, q in zip(net.parameters(), [p.clone() for p in net.parameters()])]",
        "with torch.no_grad(): torch._foreach_mul_([p for p in net.parameters()], 0.9)",
        "sum(F.mse_loss(a, b) for a, b in zip(x, x.flip(0))).mul(0.5)",
        "{k: v.norm() for k, v in net.state_dict().items() if v.is_floating_point()}",
        "torch.utils.checkpoint.checkpoint(lambda t: F.dropout(t).relu(), leaf, use_reentrant=True).sum().backward()",
        "torch.randn_like(x).mul_(0.1).add_(x).clamp_(-1, 1)",
        "torch.nn.functional.one_hot(target, 5).float().T @ x",
        "x.unflatten(1, (2, 4)).flatten(1).movedim(0, 1).contiguous()",
        "torch.einsum('bij,bkj->bik', seq, seq).softmax(-1) @ seq",
        "with torch.autograd.graph.save_on_cpu(pin_memory=True): net(leaf).sum().backward()",
        "x[random.choice(range(16))]",
        "random.choice(target)",
    ),
}
"""The host does not wait."""


MAY_WAIT: Final[dict[str, tuple[str, ...]]] = {}
"""Sizes, a library or the allocator decide."""
