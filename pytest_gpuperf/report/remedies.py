"""What to do about a cause, and which part of its line it is: one table for all reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..model.finding import Bottleneck
from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.forecast import Saving
from ..model.metrics import KEPT_GRAPHS
from ..model.metrics import LOADER_WAIT
from ..model.metrics import PAGEABLE_COPIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to ``do`` about causes of ``ops`` if their line of source contains ``spot``.

    Both are regular expressions, of the whole name of an operation and of a part of the
    line, and so is ``why``, of a part of the reason. ``do`` begins with a verb. ``cause`` names it in the table of the documents.
    What ``reads`` a tensor of the GPU is not the cause of a copy to it. ``rule`` is its
    id in reports of other programs, which never changes.
    """

    cause: str
    do: str
    ops: str = r".*"
    spot: str = r""
    why: str = r""
    reads: bool = False
    rule: str = ""


_READS: Final = r"aten::(?:_local_scalar_dense|item|is_nonzero|_to_copy|to|copy_|cpu|equal|allclose)"
_COPIES: Final = r"aten::(?:_to_copy|to|copy_)"

SYNC_REMEDIES: Final = (
    Remedy(
        rule="synchronize",
        cause="`torch.cuda.synchronize()`",
        spot=r"\.synchronize\(",
        do="take torch.cuda.synchronize() out of the step; gpuperf waits where it measures",
    ),
    Remedy(
        rule="empty-cache",
        cause="`torch.cuda.empty_cache()`",
        spot=r"\.empty_cache\(\)",
        do="take torch.cuda.empty_cache() out of the step: the allocator reuses what is "
        "free",
    ),
    Remedy(
        rule="printed-tensor",
        cause="a printed or logged tensor",
        reads=True,
        ops=rf"{_READS}|Tensor\.__repr__",
        spot=r"\bprint\(|\blog(?:ger|ging)?\.\w+\(|\bf['\"]",
        do="print or log it every N steps, and keep it with .detach() until then",
    ),
    Remedy(
        rule="read-number",
        cause="`.item()`, `float(loss)`, `int(count)`",
        reads=True,
        ops=_READS,
        spot=r"\.item\(\)|\b(?:float|int)\(",
        do="add it up on the GPU with .detach(), read it every N steps",
    ),
    Remedy(
        rule="copy-to-cpu",
        cause="`.cpu()`, `.tolist()`, `.numpy()`",
        reads=True,
        spot=r"\.(?:cpu|tolist|numpy)\(|\.to\((?:device=)?['\"]cpu",
        do="keep it on the GPU with detach(), copy it to the CPU every N steps",
    ),
    Remedy(
        rule="made-on-cpu",
        cause="`torch.randn(...).to(device)`, `torch.zeros(...).cuda()`",
        ops=_COPIES,
        spot=r"\btorch\.(?:randn?|randint|randperm|zeros|ones|full|empty|eye|arange|linspace)"
        r"\([^#]*?\)\.(?:to|cuda)\(",
        do="make it on the GPU: torch.randn(..., device=device)",
    ),
    Remedy(
        rule="pinned-batch",
        cause="`.to(device)` of a batch in pinned memory",
        ops=_COPIES,
        spot=r"\.(?:to|cuda)\(|\.copy_\(",
        why=r"from pinned memory, but not non_blocking",
        do="pass non_blocking=True: .to(device, non_blocking=True)",
    ),
    Remedy(
        rule="pageable-batch",
        cause="`.to(device)` of a batch in ordinary memory",
        ops=_COPIES,
        spot=r"\.(?:to|cuda)\(|\.copy_\(",
        why=r"^(?!.*to the CPU)",
        do="use DataLoader(pin_memory=True) and .to(device, non_blocking=True)",
    ),
    Remedy(
        rule="tensor-from-cpu",
        cause="a tensor that is made from a list or a number",
        spot=r"\btorch\.(?:tensor|as_tensor|from_numpy)\(",
        do="make it once before the loop, or with torch.full(..., device=device)",
    ),
    Remedy(
        rule="condition",
        cause="`if`, `while`, `assert` on a tensor",
        reads=True,
        ops=_READS,
        spot=r"\b(?:if|elif|while|assert|and|or|not)\b|\bbool\(|\.any\(\)|\.all\(\)",
        do="choose on the GPU with torch.where, or check every N steps",
    ),
    Remedy(
        rule="mask",
        cause="a boolean mask as index, `nonzero()`, `masked_select()`",
        ops=r"aten::(?:nonzero\w*|masked_select|index|index_put_?|argwhere|where)",
        spot=r"\[[^\[\]]*\]|\.(?:nonzero|masked_select|argwhere|where)\(",
        do="multiply by the mask or use torch.where: a size that depends on values must "
        "be read",
    ),
    Remedy(
        rule="repeat-interleave",
        cause="`repeat_interleave` by a tensor",
        ops=r"aten::repeat_interleave",
        spot=r"repeat_interleave\(",
        do="pass output_size=, so that no sum has to be read",
    ),
    Remedy(
        rule="unique",
        cause="`unique()`",
        ops=r"aten::_?unique\w*",
        spot=r"\.unique\w*\(",
        do="count with torch.bincount(minlength=) or scatter_add, which have a fixed size",
    ),
    Remedy(
        rule="distribution-check",
        cause="a check of `torch.distributions`",
        ops=r"aten::(?:normal\w*|multinomial|_local_scalar_dense|is_nonzero)",
        spot=r"distributions\.|\.sample\(|\.rsample\(|Normal\(|Categorical\(",
        do="pass validate_args=False to the distribution",
    ),
    Remedy(
        rule="linalg-check",
        cause="`torch.linalg` and its error codes",
        ops=r"aten::(?:linalg_|_linalg_|cholesky|lu|svd|eig).*",
        spot=r"linalg\.\w+\(|\.(?:cholesky|inverse|svd)\(",
        do="use the variant that ends in _ex and check its info every N steps, if there "
        "is one",
    ),
    Remedy(
        rule="copy-to-gpu",
        cause="any other copy to the GPU",
        why=r"to the GPU",
        do="make it on the GPU, or copy it once before the loop",
    ),
    Remedy(
        rule="wait",
        cause="any other wait",
        do="keep the value on the GPU, and read it every N steps",
    ),
)
"""What to do about waits and copies: the first that fits."""

CATCH_ALL: Final = SYNC_REMEDIES[-2:]
"""What is advised if the line of source does not show the cause."""

COPY_REMEDY: Final = Remedy(
    cause="a copy from ordinary memory",
    spot=r"\.(?:to|cuda)\(|\.copy_\(|\btorch\.(?:tensor|as_tensor)\(",
    do="use DataLoader(pin_memory=True) and .to(device, non_blocking=True)",
)

KIND_REMEDIES: Final[Mapping[FindingKind, Remedy]] = {
    FindingKind.TRANSFER: COPY_REMEDY,
    FindingKind.BREAK: Remedy(
        cause="a graph break of `torch.compile`",
        spot=r"\bprint\(|\.item\(\)|\.tolist\(",
        do="move this line out of the compiled function; torch._dynamo.explain(step)() "
        "names the reason",
    ),
    FindingKind.RECOMPILE: Remedy(
        cause="a function that is compiled again",
        do="keep shapes constant (drop_last=True, padding), or torch.compile(dynamic=True)",
    ),
    FindingKind.LEFT: Remedy(
        cause="memory that each step leaves behind",
        spot=r"\.append\(",
        do="drop what keeps it: a list, a cache, or a loss without detach()",
    ),
}

# What a framework does between the lines of its users: found by its function.


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkRemedy:
    """A *remedy* for what happens in *functions* of *files* of a framework.

    Both are regular expressions, of the end of a path and of a whole name.
    """

    files: str
    functions: str
    remedy: Remedy


FRAMEWORK_REMEDIES: Final = (
    FrameworkRemedy(
        files=r"transformers/trainer\.py",
        functions=r"_maybe_log_save_evaluate|log|store_flos",
        remedy=Remedy(
            rule="transformers-logging",
            cause="logging of transformers' `Trainer`",
            do="log every N steps: TrainingArguments(logging_steps=50); this is the "
            "Trainer's logging, and not the step",
        ),
    ),
    FrameworkRemedy(
        files=r"transformers/trainer\.py",
        functions=r"_run_epoch|_inner_training_loop",
        remedy=Remedy(
            rule="transformers-nan-filter",
            cause="its filter of losses for the log that are NaN",
            ops=_READS,
            do="set TrainingArguments(logging_nan_inf_filter=False): the Trainer reads "
            "each loss for its log, twice a batch",
        ),
    ),
    FrameworkRemedy(
        files=r"transformers/trainer\.py",
        functions=r"_track_num_input_tokens",
        remedy=Remedy(
            rule="transformers-tokens",
            cause="its count of tokens",
            do='set TrainingArguments(include_num_input_tokens_seen="no"): the Trainer '
            "reads each count for its log",
        ),
    ),
    FrameworkRemedy(
        files=r"accelerate/utils/operations\.py",
        functions=r"send_to_device",
        remedy=Remedy(
            rule="accelerate-batch",
            cause="batches of accelerate's loaders, and of `Trainer`'s",
            do="set DataLoaderConfiguration(non_blocking=True) for the Accelerator, or "
            'TrainingArguments(accelerator_config={"non_blocking": True}), and pin_memory',
        ),
    ),
    FrameworkRemedy(
        files=r"lightning(?:/|_)fabric/utilities/apply_func\.py",
        functions=r"to_item",
        remedy=Remedy(
            rule="lightning-logging",
            cause="logging of Lightning's `Trainer` and its progress bar",
            do="log every N steps: Trainer(log_every_n_steps=50), and for "
            "self.log(prog_bar=True) TQDMProgressBar(refresh_rate=50)",
        ),
    ),
)
"""What to do about waits and copies inside of frameworks: the first that fits."""

WAIT_REMEDIES: Final = (*SYNC_REMEDIES, *(row.remedy for row in FRAMEWORK_REMEDIES))
"""All that a wait may be advised, each with a rule of its own."""

BOTTLENECK_REMEDIES: Final[Mapping[Bottleneck, str]] = {
    Bottleneck.LOADER: "let workers load ahead (num_workers, prefetch_factor)",
    Bottleneck.COPIES: "pin the batches (pin_memory=True) and copy them with "
    "non_blocking=True",
    Bottleneck.SYNCS: "leave the value on the GPU, and read it every N steps",
    Bottleneck.LAUNCHES: "try larger batches, torch.compile, CUDA graphs, a fused "
    "optimizer",
    Bottleneck.COMMUNICATION: "let it overlap with the backward (DDP's buckets, "
    "FSDP's prefetching)",
}
"""What makes a step faster that waits for this most."""

METRIC_REMEDIES: Final[Mapping[str, str]] = {
    KEPT_GRAPHS.name: "detach() what outlives the step, such as a loss that is kept: it "
    "keeps the graph of autograd behind it alive",
    LOADER_WAIT.name: BOTTLENECK_REMEDIES[Bottleneck.LOADER],
}
"""What ends the failure of a metric, whatever its line."""

SAVING_REMEDIES: Final[Mapping[Saving, str]] = {
    Saving.EARLY_ZERO_GRAD: "call zero_grad(set_to_none=True) before the forward",
    Saving.FOR_LOOP: "pass foreach=False to the optimizer",
    Saving.FUSED: "pass fused=True to the optimizer",
    Saving.CHECKPOINT: "checkpoint the repeated blocks (torch.utils.checkpoint)",
    Saving.HALF_BATCH: "halve the batch, and accumulate over two",
}
"""What lowers the peak of a script's memory, as far as it was tried."""

_WAITS: Final = frozenset({FindingKind.SYNC, FindingKind.COPY, FindingKind.MAYBE})


def remedy_of(finding: Finding) -> Remedy | None:
    """Return what to do about the cause; ``None`` if its kind alone says too little."""
    if finding.kind in _WAITS:
        return _of_framework(finding) or _wait_remedy(finding)
    if finding.kind is FindingKind.TRANSFER and (
        PAGEABLE_COPIES.name not in finding.metrics
    ):
        return None
    return KIND_REMEDIES.get(finding.kind)


def _of_framework(finding: Finding) -> Remedy | None:
    """Return what to do if it is a framework that waits: its users' lines do not say."""
    place = finding.innermost or finding.location
    if place is None:
        return None
    for row in FRAMEWORK_REMEDIES:
        if (
            re.search(rf"(?:^|/){row.files}$", place.file.replace("\\", "/"))
            and re.fullmatch(row.functions, place.function)
            and re.fullmatch(row.remedy.ops, finding.op or "", re.DOTALL)
        ):
            return row.remedy
    return None


def _wait_remedy(finding: Finding) -> Remedy:
    """Return what to do about a wait, by its operation and its line of source."""
    is_read = "to the GPU" not in finding.reason
    return next(
        remedy
        for remedy in SYNC_REMEDIES
        if (is_read or not remedy.reads)
        and re.fullmatch(remedy.ops, finding.op or "", re.DOTALL)
        and re.search(remedy.spot, finding.source)
        and re.search(remedy.why, finding.reason)
    )


def spot_of(remedy: Remedy | None, source: str) -> tuple[int, int]:
    """Return where the cause begins in *source*, and its length: all of it if in doubt."""
    found = list(re.finditer(remedy.spot, source)) if remedy and remedy.spot else []
    if len(found) != 1:
        return 0, len(source)
    return found[0].start(), found[0].end() - found[0].start()
