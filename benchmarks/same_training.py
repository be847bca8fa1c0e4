"""Judges changes of the training, and changes that are none, as ``gpuperf ab`` does.

``python benchmarks/same_training.py`` records both sides in this process, each twice, and
asks the judge. Planted changes must differ; the others, in other types, threads, orders of
sums and ways to write the same mathematics, must not.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from pytest_gpuperf.compare_steps.training_record import record_steps
from pytest_gpuperf.judge.training import judge_training
from pytest_gpuperf.measure.step import subject_of
from pytest_gpuperf.model.ab import Training, TrainingAnswer, TrainingRecord


@dataclass(frozen=True)
class Plan:
    """A small training: each field is something that a change may touch."""

    seed: int = 0
    model: str = "attention"
    dtype: torch.dtype = torch.float32
    autocast: bool = False
    threads: int = 1
    rewritten: bool = False
    shuffled: bool = False
    width: int = 32
    dropout: float = 0.1
    activation: Callable[[Any], Any] = functional.gelu
    norm_eps: float = 1e-5
    init: float = 1.0
    bias: bool = True
    tied: bool = False
    frozen: bool = False
    detached: bool = False
    smoothing: float = 0.0
    reduction: str = "mean"
    term: float = 0.01
    clip: float = 1.0
    accumulate: int = 1
    zero_grad: bool = True
    reversed_batches: bool = False
    batch: int = 8
    scale: float = 1.0
    mask: bool = True
    optimizer: Any = torch.optim.AdamW
    options: tuple[tuple[str, Any], ...] = ()


class Block(nn.Module):
    """Attention and a feed-forward part, in one of two ways to write them."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        width = plan.width
        self.norm = nn.LayerNorm(width, eps=plan.norm_eps)
        self.qkv = nn.Linear(width, 3 * width, bias=plan.bias)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Any) -> Any:
        plan = self.plan
        heads = self.qkv(self.norm(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = heads
        if plan.rewritten:
            scores = (q @ k.transpose(-1, -2)) * plan.scale / q.shape[-1] ** 0.5
            if plan.mask:
                length = x.shape[1]
                allowed = torch.ones(length, length, dtype=torch.bool).tril()
                scores = scores.masked_fill(~allowed, float("-inf"))
            mixed = scores.softmax(-1) @ v
        else:
            scale = plan.scale / q.shape[-1] ** 0.5
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=plan.mask, scale=scale
            )
        y = x + self.out(mixed.transpose(1, 2).flatten(2))
        inner = plan.activation(self._up(y))
        inner = functional.dropout(inner, plan.dropout, self.training)
        return y + (self.down(inner).detach() if plan.detached else self.down(inner))

    def _up(self, y: Any) -> Any:
        if self.plan.rewritten:
            return y @ self.up.weight.t() + self.up.bias
        return self.up(y)


class Attention(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, plan.width)
        self.blocks = nn.Sequential(Block(plan), Block(plan))
        self.head = nn.Linear(plan.width, 50, bias=False)
        if plan.tied:
            self.head.weight = self.embed.weight

    def forward(self, batch: Any) -> Any:
        return self.head(self.blocks(self.embed(batch))).flatten(0, 1)


class Convolutions(nn.Module):
    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.convolutions = nn.ModuleList(
            nn.Conv2d(a, b, 3, padding=1) for a, b in ((1, 8), (8, 8), (8, 16))
        )
        self.norms = nn.ModuleList(
            nn.BatchNorm2d(n, eps=plan.norm_eps) for n in (8, 8, 16)
        )
        self.head = nn.Linear(16, 50)

    def forward(self, batch: Any) -> Any:
        x = batch.float().to(self.head.weight.dtype).div(25).sub(1)[:, None]
        x = x.unflatten(-1, (4, 4))
        if self.plan.rewritten:
            x = x.contiguous(memory_format=torch.channels_last)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = self.plan.activation(norm(convolution(x)))
        x = functional.dropout(x, self.plan.dropout, self.training)
        pooled = x.mean((2, 3)) if not self.plan.rewritten else x.sum((2, 3)) / 16
        return self.head(pooled)


MODELS = {"attention": Attention, "convolutions": Convolutions}


def step_of(plan: Plan) -> Callable[[], Any]:
    """Build the training of *plan* and return its step."""
    torch.set_num_threads(plan.threads)
    torch.manual_seed(plan.seed)
    random.seed(plan.seed)
    model = MODELS[plan.model](plan).to(plan.dtype)
    if plan.init != 1.0:
        with torch.no_grad():
            model.head.weight *= plan.init
    if plan.frozen:
        model.head.weight.requires_grad_(False)  # noqa: FBT003
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = plan.optimizer(trained, **{"lr": 1e-3, **dict(plan.options)})
    data = torch.randint(0, 50, (4, plan.batch, 17))
    if plan.reversed_batches:
        data = data.flip(0)
    order = torch.randperm(plan.batch) if plan.shuffled else torch.arange(plan.batch)
    batches = iter([*data, *data, *data])

    def loss_of(batch: Any) -> Any:
        inputs, targets = batch[:, :-1], batch[:, 1:]
        outputs = model(inputs)
        wanted = targets.flatten() if plan.model == "attention" else targets[:, 0]
        main = functional.cross_entropy(
            outputs.float() if plan.dtype.itemsize < 4 else outputs,
            wanted,
            label_smoothing=plan.smoothing,
            reduction=plan.reduction,
        )
        return main + plan.term * outputs.square().mean()

    def step() -> Any:
        if plan.zero_grad:
            optimizer.zero_grad()
        for _ in range(plan.accumulate):
            batch = next(batches)[order]
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.autocast):
                loss = loss_of(batch)
            (loss / plan.accumulate).backward()
        if plan.clip:
            nn.utils.clip_grad_norm_(trained, plan.clip)
        optimizer.step()
        return loss

    return step


def recorded(plan: Plan) -> TrainingRecord:
    """Return what a process leaves of *plan*."""
    return record_steps(subject_of(step_of(plan)))[0]


def judged(before: Plan, after: Plan) -> Training:
    """Judge as the command does: a difference is looked at twice."""
    runs = [[recorded(plan)] for plan in (before, after)]
    found = judge_training(*runs)
    if found.answer is TrainingAnswer.DIFFERS:
        for run, plan in zip(runs, (before, after), strict=True):
            run.append(recorded(plan))
        found = judge_training(*runs)
    return found


SGD = replace(Plan(), optimizer=torch.optim.SGD, options=(("momentum", 0.9),))
CONVOLUTIONS = replace(Plan(), model="convolutions", activation=functional.relu)


def options(**given: Any) -> dict[str, Any]:
    return {"options": tuple(given.items())}


PLANTED: dict[str, tuple[Plan, dict[str, Any]]] = {
    "a dropped term": (Plan(), {"term": 0.0}),
    "a term ten times as large": (Plan(), {"term": 0.1}),
    "another reduction": (Plan(), {"reduction": "sum"}),
    "another reduction, clipped": (replace(Plan(), clip=0.1), {"reduction": "sum"}),
    "a detached branch": (Plan(), {"detached": True}),
    "bf16 weights where fp32 was": (Plan(), {"dtype": torch.bfloat16}),
    "bf16 autocast where fp32 was": (Plan(), {"autocast": True}),
    "fp32 where fp64 was": (
        replace(Plan(), dtype=torch.float64),
        {"dtype": torch.float32},
    ),
    "another seed": (Plan(), {"seed": 1}),
    "Adam's epsilon x 100": (Plan(), options(eps=1e-6)),
    "a learning rate that is 1 % larger": (Plan(), options(lr=1.01e-3)),
    "weight decay": (Plan(), options(weight_decay=0.02)),
    "momentum": (SGD, options(momentum=0.8)),
    "Nesterov": (SGD, options(momentum=0.9, nesterov=True)),
    "betas": (Plan(), options(betas=(0.9, 0.99))),
    "Adam in place of AdamW": (Plan(), {"optimizer": torch.optim.Adam}),
    "SGD in place of AdamW": (Plan(), {"optimizer": torch.optim.SGD}),
    "dropout p 0.1 to 0.12": (Plan(), {"dropout": 0.12}),
    "no dropout": (Plan(), {"dropout": 0.0}),
    "label smoothing": (Plan(), {"smoothing": 0.01}),
    "an initialisation 1 % larger": (Plan(), {"init": 1.01}),
    "layer norm epsilon x 100": (Plan(), {"norm_eps": 1e-3}),
    "batch norm epsilon x 100": (CONVOLUTIONS, {"norm_eps": 1e-3}),
    "approximate GELU": (
        Plan(),
        {"activation": partial(functional.gelu, approximate="tanh")},
    ),
    "another activation": (CONVOLUTIONS, {"activation": functional.silu}),
    "a missing zero_grad": (Plan(), {"zero_grad": False}),
    "no gradient clipping": (replace(Plan(), clip=0.1), {"clip": 0.0}),
    "accumulation": (Plan(), {"accumulate": 2}),
    "another order of batches": (Plan(), {"reversed_batches": True}),
    "a frozen layer": (Plan(), {"frozen": True}),
    "tied weights untied": (replace(Plan(), tied=True), {"tied": False}),
    "no bias": (Plan(), {"bias": False}),
    "a batch of another size": (Plan(), {"batch": 6}),
    "attention scaled otherwise": (Plan(), {"scale": 1.1}),
    "no causal mask": (Plan(), {"mask": False}),
    "a mask, in bf16": (replace(Plan(), dtype=torch.bfloat16), {"mask": False}),
    "a dropped term, in bf16 autocast": (
        replace(Plan(), autocast=True, term=1.0),
        {"term": 0.0},
    ),
}

EQUAL: dict[str, dict[str, Any]] = {
    "the same again": {},
    "two threads": {"threads": 2},
    "the mathematics written otherwise": {"rewritten": True},
    "sums in another order": {"shuffled": True, "dropout": 0.0},
    "another implementation of the optimizer": options(foreach=True),
    "a fused optimizer": options(fused=True),
    "all of it": {"rewritten": True, "threads": 2, **options(foreach=True)},
}

FUSED = list(EQUAL).index("a fused optimizer")

TYPES: tuple[dict[str, Any], ...] = (
    {"dtype": torch.float32},
    {"dtype": torch.float64},
    {"dtype": torch.bfloat16},
    {"autocast": True},
)


def equal_pairs(count: int) -> Iterator[tuple[str, Plan, Plan]]:
    """Yield pairs that train the same; each has another seed, width and batch."""
    for number in range(count):
        draw = random.Random(number)  # noqa: S311
        name, change = list(EQUAL.items())[number % len(EQUAL)]
        plan = replace(
            draw.choice((Plan(), SGD, CONVOLUTIONS)),
            seed=number,
            width=draw.choice((16, 32, 64)),
            batch=draw.choice((4, 8, 16)),
            tied=draw.random() < 0.3,
            **draw.choice(TYPES),
        )
        if "dropout" in change:
            plan = replace(plan, dropout=0.0)
        own = dict(change)
        if number % len(EQUAL) == FUSED and plan.optimizer is torch.optim.SGD:
            # torch 2.13 on a CPU leaves most weights of bfloat16 where they are in the
            # first step of a fused SGD with momentum: that is another training.
            plan = replace(plan, dtype=torch.float32)
        if "options" in own:
            own["options"] = (*plan.options, *own["options"])
        yield f"{name}, {plan.model}, {type_of(plan)}", plan, replace(plan, **own)


def type_of(plan: Plan) -> str:
    return "autocast" if plan.autocast else str(plan.dtype).removeprefix("torch.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=1000)
    asked = parser.parse_args()
    missed = []
    for name, (plan, change) in PLANTED.items():
        found = judged(plan, replace(plan, **change))
        print(f"{found.answer.value:12}  {name}: {found.text}")
        missed += [name] if found.answer is not TrainingAnswer.DIFFERS else []
    print(
        f"planted: {len(PLANTED) - len(missed)} of {len(PLANTED)} found, missed {missed}"
    )
    answers: Counter[str] = Counter()
    for name, before, after in equal_pairs(asked.pairs):
        found = judged(before, after)
        answers[found.answer.value] += 1
        if found.answer is not TrainingAnswer.SAME:
            print(f"{found.answer.value}: {name}: {found.text}")
        if answers.total() % 100 == 0:
            print(dict(answers), flush=True)
    print(f"equal: {dict(answers)} of {asked.pairs}")


if __name__ == "__main__":
    main()
