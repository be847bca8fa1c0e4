"""What to do about a cause, and which part of its line it is: one table for all reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from typing import Final

from ..model.finding import Finding
from ..model.finding import FindingKind
from ..model.forecast import Saving
from ..model.metrics import KEPT_GRAPHS
from ..model.metrics import LOADER_WAIT
from ..model.metrics import PAGEABLE_COPIES
from .line_syntax import LineDoes
from .line_syntax import deeds_of


NONE_KNOWN: Final = "none known that keeps the result"
"""In place of what to do: no advice is better than one that does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to ``do`` about causes of ``ops`` if their line of source shows ``spot``.

    Both are regular expressions, of a whole operation and of a part of the line, and so
    are ``why`` and ``named_by``, of a part of the reason. What the line ``does`` counts
    in place of ``spot``, and where ``named_by`` fits, that is enough. ``cause`` names it
    in the documents. What ``reads`` a tensor of the GPU is not the cause of a copy to it;
    what ``reaches`` into a library fits where a library waits. What a framework does is
    found by the end of its ``files`` and its ``functions``. ``rule`` never changes.
    """

    cause: str
    do: str
    ops: str = r".*"
    spot: str = r""
    does: LineDoes | None = None
    why: str = r""
    named_by: str | None = None
    reads: bool = False
    reaches: bool = False
    files: str = r""
    functions: str = r""
    rule: str = ""


_READS: Final = r"aten::(?:_local_scalar_dense|item|is_nonzero|_to_copy|to|copy_|cpu|equal|allclose)"
_NUMBERS: Final = r"aten::(?:_local_scalar_dense|item|is_nonzero)"
_COPIES: Final = r"aten::(?:_to_copy|to|copy_)"
_TO_CPU: Final = r".*(?:from the GPU|to (?:the CPU|pinned memory|pageable memory))"
_TO_GPU: Final = rf"^(?!{_TO_CPU})"

_COPIED: Final = r"\.(?:to|cuda)\(|\.copy_\("
_MADE: Final = r"\b(?:new_|as_)?tensor\(|\bfrom_numpy\(|\b\w+Tensor\("
_DISTRIBUTIONS: Final = (
    "Normal|Categorical|Bernoulli|Beta|Dirichlet|Gamma|Independent|Laplace|LogNormal|"
    "MixtureSameFamily|Multinomial|MultivariateNormal|OneHotCategorical|Uniform"
)

SYNC_REMEDIES: Final = (
    Remedy(
        rule="synchronize",
        cause="`torch.cuda.synchronize()`",
        spot=r"(?<!\w\.)\bsynchronize\(|\b(?:cuda|accelerator)\.synchronize\(",
        do="take torch.cuda.synchronize() out of the step; gpuperf waits where it measures",
    ),
    Remedy(
        rule="stream-synchronize",
        cause="`synchronize()` of a stream or an event",
        spot=r"\.synchronize\(",
        do="let the GPU wait, if only it goes on with the result: "
        "torch.cuda.current_stream().wait_stream(stream) or .wait_event(event)",
    ),
    Remedy(
        rule="empty-cache",
        cause="`torch.cuda.empty_cache()`",
        spot=r"\.empty_cache\(\)",
        do="take torch.cuda.empty_cache() out of the step: the allocator reuses what is free",
    ),
    Remedy(
        rule="checkpoint",
        cause="a checkpoint that is saved: `torch.save(model.state_dict(), file)`",
        reads=True,
        reaches=True,
        spot=r"\btorch\.save\(|\bsave_(?:file|model|pretrained|checkpoint)\("
        r"|\bpickle\.dumps?\(",
        do="save it less often: a checkpoint has to be copied to the CPU",
    ),
    Remedy(
        rule="printed-tensor",
        cause="a printed or logged tensor",
        reads=True,
        reaches=True,
        ops=rf"{_READS}|Tensor\.__repr__",
        spot=r"\bprint\(|\b(?:log(?:ger|ging)?|wandb)\.\w+\(|\bf['\"]|['\"] %|\.format\(|\.add_scalar\("
        r"|\.set_postfix\(",
        do="print or log it every N steps, and keep it with .detach() until then",
    ),
    Remedy(
        rule="size",
        cause="a size that a tensor of the GPU decides: `range(n)`, `x[:n]`, "
        "`x.split(lengths.tolist())`",
        reads=True,
        ops=_READS,
        does=LineDoes.DECIDES_SIZE,
        do="leave on the CPU what decides a size: the lengths of a batch are made there",
    ),
    Remedy(
        rule="loop",
        cause="`while` on a tensor",
        reads=True,
        ops=_READS,
        does=LineDoes.REPEATS,
        do=NONE_KNOWN,
    ),
    Remedy(
        rule="condition",
        cause="`if`, `assert` on a tensor",
        reads=True,
        ops=_READS,
        does=LineDoes.DECIDES,
        spot=r"\b(?:if|elif|assert|and|or|not)\b|\bbool\(|\.any\(\)|\.all\(\)",
        do="choose on the GPU with torch.where, or check every N steps",
    ),
    Remedy(
        rule="python-max",
        cause="Python's `max()` and `min()` of tensors",
        ops=_NUMBERS,
        does=LineDoes.COMPARES_IN_PYTHON,
        reads=True,
        spot=r"\b(?:max|min)\(",
        do="compare on the GPU: torch.maximum, torch.stack([...]).max(), or .clamp() by a number",
    ),
    Remedy(
        rule="number-in-formula",
        cause="`.item()` in a formula: `loss / count.item()`",
        reads=True,
        ops=_READS,
        does=LineDoes.CALCULATES,
        spot=r"\.item\(\)|\bfloat\(",
        do="compute with the tensor itself, with .detach() in place of .item()",
    ),
    Remedy(
        rule="tensor-of-tensors",
        cause="`torch.tensor([a, b])` of numbers on the GPU",
        reads=True,
        ops=_NUMBERS,
        does=LineDoes.JOINS,
        spot=r"\b(?:torch\.)?(?:as_)?tensor\(",
        do="join them on the GPU: torch.stack([a, b])",
    ),
    Remedy(
        rule="computed-on-cpu",
        cause="`.cpu()` or `.item()` for a function that computes on the CPU",
        reads=True,
        ops=_READS,
        does=LineDoes.CALLS_HOST,
        spot=r"\.item\(\)|\.(?:cpu|tolist|numpy)\(",
        do=NONE_KNOWN,
    ),
    Remedy(
        rule="one-hot",
        cause="`one_hot()` without a number of classes",
        ops=_NUMBERS,
        spot=r"\bone_hot\((?!.*\bnum_classes)",
        do="pass num_classes=, so that no maximum has to be read",
    ),
    Remedy(
        rule="distribution-check",
        cause="a check of `torch.distributions`",
        ops=_NUMBERS,
        reaches=True,
        spot=rf"\b(?:{_DISTRIBUTIONS})\((?!.*\.item\(\))|\.log_prob\((?!.*\.item\(\))",
        do="pass validate_args=False to the distribution",
    ),
    Remedy(
        rule="grad-scaler",
        cause="`GradScaler.step()`",
        ops=_NUMBERS,
        reaches=True,
        spot=r"\b\w*[sS]caler\.step\(",
        do="pass fused=True to the optimizer: then GradScaler.step() reads nothing",
    ),
    Remedy(
        rule="number-for-torch",
        cause="a tensor where torch or a list needs a number: `x[i]`, `F.dropout(x, p)`",
        reads=True,
        ops=_NUMBERS,
        does=LineDoes.PASSES_NUMBER,
        do=NONE_KNOWN,
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
        named_by=r"^a (?:blocking |non_blocking )?copy to (?:the CPU|pinned|pageable)",
        do="keep it on the GPU with detach(), copy it to the CPU every N steps",
    ),
    Remedy(
        rule="made-on-cpu",
        cause="`torch.zeros(...).to(device)`, `torch.randn(...).cuda()`",
        ops=_COPIES,
        spot=r"\btorch\.(?:randn?|randint|randperm|zeros|ones|full|empty|eye|arange|linspace)"
        r"\([^#]*?\)\.(?:to|cuda)\(",
        why=_TO_GPU,
        do="make it on the GPU: torch.zeros(..., device=device); random numbers are "
        "others there",
    ),
    Remedy(
        rule="constant",
        cause="a tensor of values that never change: `torch.tensor([0.5, 2.0]).to(device)`",
        ops=_COPIES,
        does=LineDoes.MAKES_CONSTANT,
        spot=_MADE,
        why=_TO_GPU,
        do="make it once, before the loop or as a buffer: its values never change",
    ),
    Remedy(
        rule="tensor-from-cpu",
        cause="a tensor that is made from a list or a number",
        ops=_COPIES,
        does=LineDoes.MAKES_TENSOR,
        spot=_MADE,
        why=_TO_GPU,
        do="make it in pinned memory: torch.tensor(..., pin_memory=True).to(device, "
        "non_blocking=True); of one number: torch.full((), number, device=device)",
    ),
    Remedy(
        rule="put-number",
        cause="a number that is put into a tensor: `x[0] = 1.0`, `x[places] = 1.0`",
        ops=rf"{_COPIES}|aten::_?index_put\w*",
        does=LineDoes.PUTS_NUMBER,
        why=_TO_GPU,
        named_by=r"number from the CPU is copied to the GPU to be put",
        do="use x[0].fill_(number), and for an index tensor x[places] = torch.full((), "
        "number, device=device)",
    ),
    Remedy(
        rule="pinned-batch",
        cause="`.to(device)` of a batch in pinned memory",
        ops=_COPIES,
        spot=_COPIED,
        why=r"from pinned memory, but not non_blocking",
        do="pass non_blocking=True: .to(device, non_blocking=True)",
    ),
    Remedy(
        rule="pageable-batch",
        cause="`.to(device)` of a batch in ordinary memory",
        ops=_COPIES,
        spot=_COPIED,
        why=_TO_GPU,
        do="use DataLoader(pin_memory=True) and .to(device, non_blocking=True); copy once, "
        "before the loop, what never changes",
    ),
    Remedy(
        rule="cpu-index",
        cause="an index on the CPU: `x[order]`, `x[[0, 2]]`",
        ops=rf"{_COPIES}|aten::_?(?:unsafe_)?index\w*",
        does=LineDoes.INDEXES,
        spot=r"\[.*\]",
        why=rf"^(?!{_TO_CPU}|a boolean mask)",
        named_by=r"^(?:an index tensor|a mask) on the CPU",
        do="keep the index on the GPU: make it there, or copy it once before the loop",
    ),
    Remedy(
        rule="positions",
        cause="`nonzero()`, `argwhere()`, `torch.where(mask)`",
        reads=True,
        ops=r"aten::(?:nonzero\w*|argwhere|where)",
        spot=r"\b(?:nonzero|argwhere|where)\(",
        why=_TO_GPU,
        do="name their number, if it is known: torch.nonzero_static(mask, size=n); else "
        "go on with the mask",
    ),
    Remedy(
        rule="mask",
        cause="a boolean mask as index, `masked_select()`",
        reads=True,
        ops=r"aten::(?:nonzero\w*|masked_select|_?index|_?index_put\w*|_unsafe_index\w*)",
        spot=r"\[[^\[\]]*\]|\.masked_select\(",
        named_by=r"^a boolean mask",
        do="keep the shape: choose with torch.where(mask, new, x), or multiply by the mask "
        "before a sum",
    ),
    Remedy(
        rule="masked-fill",
        cause="`masked_fill()` with a value that is on the GPU",
        reads=True,
        ops=r"aten::masked_fill_?",
        do="choose with torch.where(mask, value, x)",
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
        cause="`unique()` and `bincount()`",
        ops=r"aten::(?:_?unique2?|bincount)",
        spot=r"\.(?:unique|bincount)\((?!.*\b(?:return_inverse|dim)\b)",
        do="count values below a known n in a fixed size: "
        "torch.zeros(n, ...).scatter_add_(0, x, torch.ones_like(x))",
    ),
    Remedy(
        rule="histogram",
        cause="`histc()` without a range",
        ops=r"aten::histc",
        do="pass min= and max=, so that no range has to be read",
    ),
    Remedy(
        rule="normal",
        cause="`torch.normal(mean, std)`, `Normal(...).sample()`",
        ops=r"aten::normal\w*",
        reaches=True,
        do="draw with mean + std * torch.randn_like(std), or with rsample() under "
        "torch.no_grad()",
    ),
    Remedy(
        rule="linalg-check",
        cause="`torch.linalg` and its error codes",
        ops=r"aten::(?:_linalg_check_errors|linalg_\w+|cholesky\w*|inverse)",
        spot=r"\b(?:cholesky|inv|inverse|solve|lu_factor|ldl_factor)\(",
        do="use the variant that ends in _ex, such as torch.linalg.inv_ex, and check its "
        "info every N steps",
    ),
    Remedy(
        rule="copy-to-gpu",
        cause="any other copy to the GPU",
        ops=rf"{_COPIES}|aten::where",
        why=r"to the GPU",
        do="make it on the GPU or copy it once before the loop; else pin it and pass "
        "non_blocking=True",
    ),
    Remedy(
        rule="wait",
        cause="any other value that the CPU reads",
        ops=_READS,
        do="keep the value on the GPU, and read it every N steps",
    ),
    Remedy(
        rule="no-remedy",
        cause="any other wait, and what a library waits for",
        reaches=True,
        do=NONE_KNOWN,
    ),
)
"""What to do about waits and copies: the first that fits."""

KIND_REMEDIES: Final[Mapping[FindingKind, Remedy]] = {
    FindingKind.BREAK: Remedy(
        cause="a graph break of `torch.compile`",
        spot=r"\bprint\(|\.item\(\)|\.tolist\(",
        do="move this line out of the compiled function; torch._dynamo.explain(step)() "
        "names the reason",
    ),
    FindingKind.RECOMPILE: Remedy(
        cause="a function that is compiled again for another shape",
        why=r"\b(?:size|rank|stride) mismatch|\.(?:size|stride)\(\)|\bEq\(|\bs\d+\b",
        do="keep shapes constant (drop_last=True, padding), or torch.compile(dynamic=True)",
    ),
    FindingKind.LEFT: Remedy(
        cause="memory that each step leaves behind",
        spot=r"\.append\(",
        do="drop what keeps it: a list, a cache, or a loss without detach()",
    ),
}

GARBAGE_REMEDIES: Final = (
    Remedy(
        cause="an exception that is kept, and only the garbage collector frees",
        why=r"traceback",
        do="keep str(error) in its place: its traceback keeps every variable of its functions",
    ),
    Remedy(
        cause="an inner function that refers to itself",
        why=r"in a cycle of function [\w.<>]+$",
        do="make it a function of the module and pass it what it uses",
    ),
    Remedy(
        cause="memory that only the garbage collector frees",
        do="break the cycle before the step ends, or let one side refer to the other by weakref.ref",
    ),
)
"""What to do about a reference cycle, by what is in it: the first that fits."""

# What a framework does between the lines of its users: found by its function.


_BY_RULE: Final = {remedy.rule: remedy for remedy in SYNC_REMEDIES}

FRAMEWORK_REMEDIES: Final = (
    replace(
        _BY_RULE["grad-scaler"],
        files=r"torch/amp/grad_scaler\.py",
        functions=r"_maybe_opt_step",
    ),
    replace(
        _BY_RULE["distribution-check"],
        files=r"torch/distributions/\w+\.py",
        functions=r"__init__|_validate_sample",
    ),
    Remedy(
        files=r"torch/nn/modules/transformer\.py",
        functions=r"_detect_is_causal_mask",
        rule="causal-mask",
        cause="`nn.TransformerEncoder`, which compares its mask with a causal one",
        do="pass is_causal=True with a causal mask, False with others: then the mask is not read",
    ),
    Remedy(
        files=r"transformers/trainer\.py",
        functions=r"_maybe_log_save_evaluate|log|store_flos",
        rule="transformers-logging",
        cause="logging of transformers' `Trainer`",
        do="log every N steps: TrainingArguments(logging_steps=50); this is the Trainer's logging, and not the step",
    ),
    Remedy(
        files=r"transformers/trainer\.py",
        functions=r"_run_epoch|_inner_training_loop",
        rule="transformers-nan-filter",
        cause="its filter of losses for the log that are NaN",
        ops=_READS,
        do="set TrainingArguments(logging_nan_inf_filter=False): the Trainer reads "
        "each loss for its log, twice a batch",
    ),
    Remedy(
        files=r"transformers/trainer\.py",
        functions=r"_track_num_input_tokens",
        rule="transformers-tokens",
        cause="its count of tokens",
        do='set TrainingArguments(include_num_input_tokens_seen="no"): the Trainer '
        "reads each count for its log",
    ),
    Remedy(
        files=r"accelerate/utils/operations\.py",
        functions=r"send_to_device",
        rule="accelerate-batch",
        cause="batches of accelerate's loaders, and of `Trainer`'s",
        do="set DataLoaderConfiguration(non_blocking=True) for the Accelerator, or "
        'TrainingArguments(accelerator_config={"non_blocking": True}), and pin_memory',
    ),
    Remedy(
        files=r"lightning(?:/|_)fabric/utilities/apply_func\.py",
        functions=r"to_item",
        rule="lightning-logging",
        cause="logging of Lightning's `Trainer` and its progress bar",
        do="log every N steps: Trainer(log_every_n_steps=50), and for "
        "self.log(prog_bar=True) TQDMProgressBar(refresh_rate=50)",
    ),
)
"""What to do about waits and copies inside of frameworks: the first that fits."""

_REMEDIES: Final = (*SYNC_REMEDIES, *FRAMEWORK_REMEDIES)

WAIT_REMEDIES: Final = tuple(
    ({remedy.rule: remedy for remedy in _REMEDIES} | _BY_RULE).values()
)
"""All that a wait may be advised, each with a rule of its own."""

METRIC_REMEDIES: Final[Mapping[str, str]] = {
    KEPT_GRAPHS.name: "detach() what outlives the step, such as a loss that is kept: it "
    "keeps the graph of autograd behind it alive",
    LOADER_WAIT.name: "make a batch cheaper: one call for a batch (__getitems__), tensors "
    "in place of Python objects, which workers pickle; then try num_workers",
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
    is_pageable = PAGEABLE_COPIES.name in finding.metrics
    if finding.kind in _WAITS or (finding.kind is FindingKind.TRANSFER and is_pageable):
        found = _of_framework(finding) or _by_line(finding)
        return _rarer(found) if finding.in_steps < finding.of_steps else found
    if finding.kind is FindingKind.BREAK and _DEFINITION.match(finding.source):
        return None  # The line inside that breaks it has the remedy.
    if finding.kind is FindingKind.GARBAGE:
        return garbage_remedy(finding.reason)
    remedy = KIND_REMEDIES.get(finding.kind)
    return remedy if remedy and re.search(remedy.why, finding.reason) else None


def garbage_remedy(reason: str) -> Remedy:
    """Return what to do about a cycle, by the *reason* that describes it."""
    return next(r for r in GARBAGE_REMEDIES if re.search(r.why, reason))


def _rarer(remedy: Remedy) -> Remedy:
    """Ask no one to do every few steps what is done in some steps already."""
    return replace(remedy, do=remedy.do.replace("every N steps", "less often"))


_DEFINITION: Final = re.compile(r"\s*(?:async\s+)?(?:def\b|@)")


def _of_framework(finding: Finding) -> Remedy | None:
    """Return what to do if it is a framework that waits: its users' lines do not say."""
    place = finding.innermost or finding.location
    if place is None:
        return None
    for remedy in FRAMEWORK_REMEDIES:
        if (
            re.search(rf"(?:^|/){remedy.files}$", place.file.replace("\\", "/"))
            and re.fullmatch(remedy.functions, place.function)
            and re.fullmatch(remedy.ops, finding.op or "", re.DOTALL)
        ):
            return _BY_RULE.get(remedy.rule, remedy)
    return None


def _by_line(finding: Finding) -> Remedy:
    """Return what to do by the operation, and by what its line of source does."""
    is_theirs = _is_of_library(finding)
    is_copy = "to the GPU" in finding.reason or finding.kind is FindingKind.TRANSFER
    is_read = not is_copy or re.search(_TO_CPU, finding.reason)
    return next(
        remedy
        for remedy in SYNC_REMEDIES
        if (is_read or not remedy.reads)
        and (remedy.reaches or not is_theirs)
        and re.fullmatch(remedy.ops, finding.op or "", re.DOTALL)
        and _shows(finding, remedy)
    )


def _is_of_library(finding: Finding) -> bool:
    """Whether another line waits than its user's, who cannot change it."""
    place = finding.location
    is_installed = place is not None and "-packages/" in place.file.replace("\\", "/")
    return is_installed or finding.innermost not in {None, place}


def _shows(finding: Finding, remedy: Remedy) -> bool:
    """Whether its line or its reason shows what *remedy* is for."""
    if remedy.named_by and re.search(remedy.named_by, finding.reason):
        return True
    if not re.search(remedy.why, finding.reason):
        return False
    if remedy.does:
        return remedy.does in deeds_of(finding.source)
    return bool(re.search(remedy.spot, finding.source))


def spot_of(remedy: Remedy | None, source: str) -> tuple[int, int]:
    """Return where the cause begins in *source*, and its length: all of it if in doubt."""
    found = list(re.finditer(remedy.spot, source)) if remedy and remedy.spot else []
    if len(found) != 1:
        return 0, len(source)
    return found[0].start(), found[0].end() - found[0].start()
