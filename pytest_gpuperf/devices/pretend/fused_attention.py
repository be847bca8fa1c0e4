"""What CUDA's fused attention kernels give, computed on the host.

The kernels have no counterpart on the CPU that saves the same tensors. Here the weights
are computed, used and forgotten inside one operation, and again in backward.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import Final

import torch

from .substitutes import HALVES
from .substitutes import zeros


_aten = torch.ops.aten
_flash = _aten._scaled_dot_product_flash_attention.default  # noqa: SLF001, what CUDA calls
_efficient = _aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001
_flash_backward = _aten._scaled_dot_product_flash_attention_backward.default  # noqa: SLF001
_efficient_backward = _aten._scaled_dot_product_efficient_attention_backward.default  # noqa: SLF001


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """One attention: everything but the tensors that backward gives gradients to."""

    bias: Any
    is_causal: bool
    scale: float | None
    dropout_p: float
    seed: int

    def scores(self, query: Any, key: Any) -> Any:
        """Products of queries and keys, scaled, biased and masked."""
        scores = query @ key.transpose(-2, -1) * self.factor(query)
        if self.bias is not None:
            scores = scores + self.bias
        if self.is_causal:
            hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, -math.inf)
        return scores

    def factor(self, query: Any) -> float:
        """Factor of the products."""
        return self.scale if self.scale is not None else 1 / math.sqrt(query.size(-1))

    def kept(self, like: Any) -> Any:
        """What dropout multiplies each weight by, the same whenever it is asked."""
        if not self.dropout_p:
            return torch.ones(())
        generator = torch.Generator().manual_seed(self.seed)
        drawn = torch.rand(like.shape, generator=generator)
        return (drawn >= self.dropout_p) / (1 - self.dropout_p)


def flash_attention(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_flash_attention`` gives, on the host."""
    made = _made(_flash, args, {"scale": scale})
    query, key, value = args[:3]
    if not query.is_meta:
        dropout_p, is_causal, _ = _completed(args[3:], 0.0, False, False)  # noqa: FBT003, torch's
        weighing = Weighing(
            bias=None,
            is_causal=is_causal,
            scale=scale,
            dropout_p=dropout_p,
            seed=_drawn_seed(dropout_p),
        )
        _attend(weighing, (query, key, value), output=made[0], log_sum=made[1])
        made[6].fill_(weighing.seed)
    return made


def flash_attention_backward(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_flash_attention_backward`` gives, on the host."""
    made = _made(_flash_backward, args, {"scale": scale})
    grad, *tensors = args[:4]
    dropout_p, is_causal, seed = args[10:13]
    if not grad.is_meta:
        weighing = Weighing(
            bias=None,
            is_causal=is_causal,
            scale=scale,
            dropout_p=dropout_p,
            seed=_seed_in(seed),
        )
        _fill(made, _gradients(weighing, grad, *tensors))
    return made


def efficient_attention(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_efficient_attention`` gives, on the host."""
    made = _made(_efficient, args, {"scale": scale})
    query, key, value, bias, keeps_sum = args[:5]
    if not query.is_meta:
        dropout_p, is_causal = _completed(args[5:], 0.0, False)  # noqa: FBT003, torch's
        weighing = Weighing(
            bias=bias,
            is_causal=is_causal,
            scale=scale,
            dropout_p=dropout_p,
            seed=_drawn_seed(dropout_p),
        )
        log_sum = made[1] if keeps_sum else None
        _attend(weighing, (query, key, value), output=made[0], log_sum=log_sum)
        made[2].fill_(weighing.seed)
    return made


def efficient_attention_backward(*args: Any, scale: float | None = None) -> Any:
    """What ``aten::_scaled_dot_product_efficient_attention_backward`` gives."""
    made = _made(_efficient_backward, args, {"scale": scale})
    grad, *tensors, bias = args[:5]
    (is_causal,) = _completed(args[11:], False)  # noqa: FBT003, torch's
    if not grad.is_meta:
        weighing = Weighing(
            bias=bias,
            is_causal=is_causal,
            scale=scale,
            dropout_p=args[9],
            seed=_seed_in(args[7]),
        )
        _fill(made, _gradients(weighing, grad, *tensors))
    return made


def _completed(given: Sequence[Any], *defaults: Any) -> tuple[Any, ...]:
    """Arguments as given, and torch's defaults for those that were not."""
    return (*given, *defaults[len(given) :])


def _made(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Tensors of the sizes and strides that the kernel gives."""
    on_meta = args[1].is_meta
    return func(*args, **kwargs) if on_meta else zeros(func, args, kwargs)


def _drawn_seed(dropout_p: float) -> int:
    return int(torch.randint(2**31, ())) if dropout_p else 0


def _seed_in(state: Any) -> int:
    return int(state.flatten()[0])


def _attend(
    weighing: Weighing, tensors: tuple[Any, Any, Any], *, output: Any, log_sum: Any
) -> None:
    query, key, value = _wide(*tensors)
    scores = weighing.scores(query, key)
    weights = _softmax(scores)
    output.copy_((weights * weighing.kept(weights)) @ value)
    if log_sum is not None:
        log_sum[..., : scores.size(-2)].copy_(scores.logsumexp(-1))


def _gradients(
    weighing: Weighing, grad: Any, query: Any, key: Any, value: Any
) -> tuple[Any, ...]:
    """Gradients of query, key, value and bias, by the chain rule through the softmax."""
    heads = key.size(-3)
    query, key, value = _wide(query, key, value)
    grad = grad.to(query.dtype)
    weights = _softmax(weighing.scores(query, key))
    kept = weighing.kept(weights)
    of_weights = (grad @ value.transpose(-2, -1)) * kept
    shared = (of_weights * weights).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - shared)
    factor = weighing.factor(query)
    return (
        of_scores @ key * factor,
        _by_group(of_scores.transpose(-2, -1) @ query * factor, heads),
        _by_group((weights * kept).transpose(-2, -1) @ grad, heads),
        of_scores,
    )


def _softmax(scores: Any) -> Any:
    """Zero where a query sees nothing, as the fused kernels have it."""
    return scores.softmax(-1).nan_to_num(0.0)


def _wide(query: Any, key: Any, value: Any) -> tuple[Any, Any, Any]:
    """In float32 at least, keys and values once for each head of the queries."""
    times = query.size(-3) // key.size(-3)
    wide = [t.float() if t.dtype in HALVES else t for t in (query, key, value)]
    if times > 1:
        wide[1:] = [t.repeat_interleave(times, -3) for t in wide[1:]]
    return wide[0], wide[1], wide[2]


def _by_group(grad: Any, heads: int) -> Any:
    """Sum over the heads of the queries that share a key."""
    if grad.size(-3) == heads:
        return grad
    return grad.unflatten(-3, (heads, -1)).sum(-3)


def _fill(made: Sequence[Any], computed: Sequence[Any]) -> None:
    for target, values in zip(made, computed, strict=False):
        if target is not None and target.numel():
            target.copy_(values.sum_to_size(target.shape))


def composed(*_: Any, **__: Any) -> int:
    """What ``aten::_fused_sdp_choice`` gives where no fused kernel was chosen before."""
    return 0


FUSED: Final[Mapping[str, Callable[..., Any]]] = {
    "_fused_sdp_choice": composed,
    "_scaled_dot_product_flash_attention": flash_attention,
    "_scaled_dot_product_flash_attention_backward": flash_attention_backward,
    "_scaled_dot_product_efficient_attention": efficient_attention,
    "_scaled_dot_product_efficient_attention_backward": efficient_attention_backward,
}
"""What to run on the host in place of a kernel that only CUDA has."""
