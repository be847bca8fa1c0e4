"""What to do about a cause, and which part of its line it is: one table for all reports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ..model.finding import A_MOVE, Finding, FindingKind
from ..model.measurement import Saving
from ..model.metrics import LOADER_WAIT, PAGEABLE_COPIES, RETAINED_GRAPHS
from .line_syntax import LineDoes, deeds_in_use, deeds_of


NONE_KNOWN: Final = "none known that keeps the result"
THEIRS: Final = "the library waits: try another version, or report it"
"""In place of what to do: no advice is better than one that does not fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What to ``do`` about causes of ``ops`` if their line of source shows ``spot``.

    Both are regular expressions, of a whole operation and of a part of the line, and so
    are ``why`` and ``named_by``, of a part of the reason. What the line ``does`` counts
    in place of ``spot``, and where ``named_by`` fits, that is enough. What begins with
    ``_READS`` causes no copy to the GPU; what ``reaches`` into a library fits where a
    library waits. What torch or a framework does is found by the end of its ``files``
    and its ``functions``. ``rule`` never changes; ``by_hand`` says why no rewrite has it.
    """

    do: str
    ops: str = r".*"
    spot: str = r""
    does: LineDoes | None = None
    why: str = r""
    named_by: str | None = None
    reaches: bool = False
    files: str = r""
    functions: str = r""
    rule: str = ""
    by_hand: str = ""


_READS: Final = r"aten::(?:_local_scalar_dense|item|is_nonzero|_to_copy|to|copy_|cpu|equal|allclose)"
_NUMBERS: Final = r"aten::(?:_local_scalar_dense|item|is_nonzero)"
_COPIES: Final = r"aten::(?:_to_copy|to|copy_)"
_TO_CPU: Final = r".*(?:from the GPU|to (?:the CPU|pinned memory|pageable memory))"
_TO_GPU: Final = rf"^(?!{_TO_CPU})"

_CONDITION: Final = r"(?:(?<=\bif )|(?<=\belif )|(?<=\bassert )|(?<=\bwhile ))[^:]+?(?=\s*(?::|,\s*f?[\"']|\belse\b|$))"
_COPIED: Final = r"\.(?:to|cuda)\(|\.copy_\("
_MAKES: Final = (
    r"torch\.(?:randn?|randint|randperm|zeros|ones|full|empty|eye|arange|linspace)"
)
_MAKE_THERE: Final = "make it on the GPU: torch.zeros(..., device=device)"
_MADE: Final = r"\b(?:new_|as_)?tensor\(|\bfrom_numpy\(|\b\w+Tensor\("
_DISTRIBUTIONS: Final = (
    "Normal|Categorical|Bernoulli|Beta|Dirichlet|Gamma|Independent|Laplace|LogNormal|"
    "MixtureSameFamily|Multinomial|MultivariateNormal|OneHotCategorical|Uniform"
)

SYNC_REMEDIES: Final = (
    Remedy(
        rule="synchronize",
        spot=r"(?<!\w\.)\bsynchronize\(|\b(?:cuda|accelerator)\.synchronize\(",
        do="take torch.cuda.synchronize() out of the step; gpuperf waits where it measures",
    ),
    Remedy(
        rule="stream-synchronize",
        by_hand="the CPU may read what the stream copies",
        spot=r"\.synchronize\(",
        do="let the GPU wait, if only it goes on with the result: "
        "torch.cuda.current_stream().wait_stream(stream) or .wait_event(event)",
    ),
    Remedy(
        rule="empty-cache",
        spot=r"\.empty_cache\(\)",
        do="take torch.cuda.empty_cache() out of the step: the allocator reuses what is free",
    ),
    Remedy(
        rule="checkpoint",
        by_hand="how often to save is a choice",
        ops=rf"{_READS}|.*",
        reaches=True,
        spot=r"\btorch\.save\(|\bsave_(?:file|model|pretrained|checkpoint)\("
        r"|\bpickle\.dumps?\(",
        do="save it less often: a checkpoint has to be copied to the CPU",
    ),
    Remedy(
        rule="printed-tensor",
        reaches=True,
        ops=rf"{_READS}|Tensor\.__repr__|aten::(?:nonzero|masked_select)",
        spot=r"\bprint\(|\b(?:log(?:ger|ging)?|wandb)\.\w+\(|\bf['\"]|['\"] %|\.format\(|\.add_scalar\("
        r"|\.set_postfix\(|\blog\w*\(f?['\"]",
        do="print or log it every N steps, and keep it with .detach() until then",
    ),
    Remedy(
        rule="size",
        ops=_READS,
        does=LineDoes.DECIDES_SIZE,
        do="pass the size in: count it on the CPU, where the batch is made",
    ),
    Remedy(
        rule="loop",
        by_hand="the loop needs another algorithm",
        ops=_READS,
        does=LineDoes.REPEATS,
        do=NONE_KNOWN,
    ),
    Remedy(
        rule="finite-norm",
        files=r"torch/nn/utils/clip_grad\.py",
        functions=r"\w+",
        reaches=True,
        spot=r"\berror_if_nonfinite\s*=\s*True",
        do="leave error_if_nonfinite out; add up ~norm.isfinite() on the GPU, read it every N steps",
    ),
    Remedy(
        rule="loss-scale",
        by_hand="what becomes of the scale is a choice",
        files=r"torch/amp/grad_scaler\.py",
        functions=r"get_scale",
        reaches=True,
        spot=r"\.get_scale\(\)",
        do="read get_scale() every N steps; to see that a step is skipped, count calls of "
        "optimizer.step()",
    ),
    Remedy(
        rule="random-choice",
        by_hand="both ways have their own types, shapes and gradients",
        ops=_NUMBERS,
        spot=r"\b(?:if|elif)\b.*\btorch\.(?:rand|randint|bernoulli)\(",
        do="choose on the CPU: random.random() < p, which gives other numbers",
    ),
    Remedy(
        rule="checks-of-each",
        ops=_NUMBERS,
        spot=r"\b(?:all|any)\(.* for ",
        do="join them on the GPU, and read once: torch.stack([... for p in parameters]).all()",
    ),
    Remedy(
        rule="condition",
        ops=_READS,
        does=LineDoes.DECIDES,
        spot=rf"{_CONDITION}|\b(?:and|or|not)\b|\bbool\(|\.any\(\)|\.all\(\)",
        do="choose on the GPU with torch.where; check every N steps what only watches the training",
    ),
    Remedy(
        rule="python-max",
        ops=_NUMBERS,
        does=LineDoes.COMPARES_IN_PYTHON,
        spot=r"\b(?:max|min)\(",
        do="compare on the GPU: torch.maximum, torch.stack([...]).max(), or .clamp() by a number",
    ),
    Remedy(
        rule="number-in-formula",
        ops=_READS,
        does=LineDoes.CALCULATES,
        spot=r"\.item\(\)|\bfloat\(",
        do="compute with the tensor itself, with .detach() in place of .item()",
    ),
    Remedy(
        rule="tensor-of-tensors",
        ops=_NUMBERS,
        does=LineDoes.JOINS,
        spot=r"\b(?:torch\.)?(?:as_)?tensor\(",
        do="join them on the GPU: torch.stack([a, b])",
    ),
    Remedy(
        rule="computed-on-cpu",
        by_hand="what the CPU computes must move to the GPU",
        ops=_READS,
        does=LineDoes.CALLS_HOST,
        spot=r"\.item\(\)|\.(?:cpu|tolist|numpy)\(",
        do=NONE_KNOWN,
    ),
    Remedy(
        rule="one-hot",
        by_hand="the number of classes is not in the source",
        ops=_NUMBERS,
        spot=r"\bone_hot\((?!.*\bnum_classes)",
        do="pass num_classes=, so that no maximum has to be read",
    ),
    Remedy(
        rule="distribution-check",
        files=r"torch/distributions/\w+\.py",
        functions=r"__init__|_validate_sample",
        ops=_NUMBERS,
        reaches=True,
        spot=rf"\b(?:{_DISTRIBUTIONS})\((?!.*\.item\(\))|\.log_prob\((?!.*\.item\(\))",
        do="pass validate_args=False to the distribution",
    ),
    Remedy(
        rule="grad-scaler",
        files=r"torch/amp/grad_scaler\.py",
        functions=r"_maybe_opt_step|<genexpr>",
        ops=_NUMBERS,
        reaches=True,
        spot=r"\b\w*[sS]caler\.step\(|\.step\((?:\w+\.)*\w*opt(?:im\w*)?\b",
        do="pass fused=True to the optimizer: then GradScaler.step() reads nothing",
    ),
    Remedy(
        rule="counted-index",
        by_hand="how often to read the counts is a choice",
        ops=_READS,
        spot=r"\[.*(?:\.item\(\)|\bint\().*\]\s*\+=",
        do="count on the GPU: counts.index_add_(0, index, torch.ones_like(index)), read every N steps",
    ),
    Remedy(
        rule="index",
        ops=_READS,
        does=LineDoes.PICKS,
        do="an index or key is read: read all at once before the loop, with .tolist(); or, if x "
        "is on the GPU too, x.index_select(0, i[None])[0]",
    ),
    Remedy(
        rule="number-for-torch",
        by_hand="torch takes a number there",
        # a tensor where torch needs a number: `F.dropout(x, p)`
        ops=_NUMBERS,
        does=LineDoes.PASSES_NUMBER,
        do=NONE_KNOWN,
    ),
    Remedy(
        rule="kept-number",
        ops=_READS,
        spot=r"\.append\(.*(?:\.item\(\)|\bfloat\()",
        do="append it with .detach(), and read all at once every N steps: "
        "torch.stack(kept).tolist()",
    ),
    Remedy(
        rule="kept-in-object",
        by_hand="what else reads the object is not in the source",
        ops=_NUMBERS,
        does=LineDoes.KEEPS_IN_OBJECT,
        spot=r"\.item\(\)|\bfloat\(",
        do="keep the tensor there, with .detach(), and read it where you log it",
    ),
    Remedy(
        rule="position",
        by_hand="where the place is used is not on this line",
        ops=_NUMBERS,
        does=LineDoes.READS_POSITION,
        do="if it picks from a tensor on the GPU: x.index_select(0, i[None])[0]; else search "
        "where the CPU knows the values",
    ),
    Remedy(
        rule="read-number",
        ops=_READS,
        spot=r"\.item\(\)|\b(?:float|int)\(",
        do="add it up on the GPU with .detach(), read it every N steps",
    ),
    Remedy(
        rule="copy-to-cpu",
        by_hand="how much stays on the GPU is a choice",
        ops=_READS,
        spot=r"\.(?:cpu|tolist|numpy)\(|\.to\((?:device=)?['\"]cpu",
        named_by=r"^a (?:blocking |non_blocking )?copy to (?:the CPU|pinned|pageable)",
        do="keep it on the GPU with detach(), copy it to the CPU every N steps",
    ),
    Remedy(
        rule="made-on-cpu",
        ops=_COPIES,
        spot=rf"\b{_MAKES}"
        rf"\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\.(?:to|cuda)\(|\.copy_\(\s*{_MAKES}\((?!.*\bdevice=)",
        why=_TO_GPU,
        do=_MAKE_THERE,
    ),
    Remedy(
        rule="made-on-cpu",
        ops=_COPIES,
        does=LineDoes.COMPUTES_ON_CPU,
        why=_TO_GPU,
        do=_MAKE_THERE,
    ),
    Remedy(
        rule="constant",
        ops=_COPIES,
        does=LineDoes.MAKES_CONSTANT,
        spot=_MADE,
        why=_TO_GPU,
        do="make it once, before the loop or as a buffer, if nothing changes it in place; of one "
        "number: torch.full((), number, device=device)",
    ),
    Remedy(
        rule="tensor-from-cpu",
        ops=_COPIES,
        does=LineDoes.MAKES_TENSOR,
        spot=_MADE,
        why=_TO_GPU,
        do="make it in pinned memory: torch.tensor(..., pin_memory=True).to(device, "
        "non_blocking=True); of one number: torch.full((), number, device=device)",
    ),
    Remedy(
        rule="put-number",
        ops=rf"{_COPIES}|aten::_?index_put\w*",
        does=LineDoes.PUTS_NUMBER,
        why=_TO_GPU,
        named_by=r"number from the CPU is copied to the GPU to be put",
        do="use x[0].fill_(number), and for an index tensor x[places] = torch.full((), number, device=device)",
    ),
    Remedy(
        rule="moved-model",
        by_hand="where to make the model is a choice",
        files=r"torch/nn/modules/module\.py",
        functions=r"convert|<lambda>",
        named_by=rf"^{A_MOVE}",
        why=rf"^{A_MOVE}",
        spot=_COPIED,
        do="move a model once, before the loop, or make it there: with torch.device(device): "
        "Model()",
    ),
    Remedy(
        rule="pinned-batch",
        spot=_COPIED,
        why=r"from pinned memory, but not non_blocking",
        do="pass non_blocking=True: .to(device, non_blocking=True)",
    ),
    Remedy(
        rule="module-state",
        by_hand="where to move the module is a choice",
        ops=_COPIES,
        spot=r"\.running_(?:mean|var)\b.*\.(?:to|cuda)\(|[\w\])]\.\w+\.(?:weight|bias)\b.*\.(?:to|cuda)\(",
        why=_TO_GPU,
        do="move the module that owns it once, before the loop: module.to(device)",
    ),
    Remedy(
        rule="attribute",
        ops=_COPIES,
        spot=r"\bself\.[\w.]+\.(?:to|cuda)\(",
        why=_TO_GPU,
        do="make it a buffer, which the model's .to() moves once: self.register_buffer(...) in "
        "__init__; pin what changes each step",
    ),
    Remedy(
        rule="custom-batch",
        spot=r"\bpin_memory=True\)+\.\w+.*\.(?:to|cuda)\(",
        why=_TO_GPU,
        do="give the batch's class a pin_memory() method that returns it pinned: DataLoader pins "
        "no class that it does not know",
    ),
    Remedy(
        rule="unpinned-batch",
        spot=_COPIED,
        why=r"^a non_blocking copy from pageable",
        do="pin it: DataLoader(pin_memory=True), and a batch of your own class needs a "
        "pin_memory() method; else copy constant tensors once, before the loop",
    ),
    Remedy(
        rule="pageable-batch",
        ops=_COPIES,
        spot=_COPIED,
        why=_TO_GPU,
        do="use DataLoader(pin_memory=True) and .to(device, non_blocking=True); copy "
        "constant tensors once, before the loop",
    ),
    Remedy(
        rule="cpu-index",
        ops=rf"{_COPIES}|aten::_?(?:unsafe_)?index\w*",
        does=LineDoes.INDEXES,
        spot=r"\[.*\]",
        why=rf"^(?!{_TO_CPU}|a boolean mask)",
        named_by=r"^(?:an index tensor|a mask) on the CPU",
        do="keep the index on the GPU: make it there, or copy it once before the loop",
    ),
    Remedy(
        rule="positions",
        ops=r"aten::(?:nonzero\w*|argwhere|where)",
        spot=r"\b(?:nonzero|argwhere|where)\(",
        why=r"^(?!.*to the (?:CPU|GPU))",
        do="name their number, if it is known: torch.nonzero_static(mask, size=n); else "
        "go on with the mask",
    ),
    Remedy(
        rule="mask",
        ops=r"aten::(?:nonzero\w*|masked_(?:select|fill_?)|_?index|_?index_put\w*|_unsafe_index\w*)",
        spot=r"\[[^\[\]]*\]|\.masked_(?:select|fill_?)\(",
        named_by=r"^a boolean mask",
        do="keep the shape: choose with torch.where(mask, new, x), or multiply by the mask "
        "before a sum; a mean is that sum by mask.sum(); cross_entropy has ignore_index",
    ),
    Remedy(
        rule="repeat-interleave",
        ops=r"aten::repeat_interleave",
        spot=r"repeat_interleave\(",
        do="pass output_size=, so that no sum has to be read",
    ),
    Remedy(
        rule="unique",
        ops=r"aten::(?:_?unique2?|bincount)",
        spot=r"\.(?:unique|bincount)\((?!.*\b(?:return_inverse|dim)\b)",
        do="count values below a known n in a fixed size: "
        "torch.zeros(n, ...).scatter_add_(0, x, torch.ones_like(x))",
    ),
    Remedy(
        rule="histogram",
        by_hand="the range is not in the source",
        ops=r"aten::histc",
        do="pass min= and max=, so that no range has to be read",
    ),
    Remedy(
        rule="normal",
        ops=r"aten::normal\w*",
        reaches=True,
        do="use mean + std * torch.randn_like(std), or with rsample() under "
        "torch.no_grad()",
    ),
    Remedy(
        rule="linalg-check",
        ops=r"aten::(?:_linalg_check_errors|linalg_\w+|cholesky\w*|inverse)",
        spot=r"\b(?:cholesky|inv|inverse|solve|lu_factor|ldl_factor)\(",
        do="use the variant that ends in _ex, such as torch.linalg.inv_ex, and check its "
        "info every N steps",
    ),
    Remedy(
        rule="copy-to-gpu",
        # any other copy to the GPU
        ops=rf"{_COPIES}|aten::where",
        why=r"to the GPU",
        do="make it on the GPU or copy it once before the loop; else pin it and pass "
        "non_blocking=True",
    ),
    Remedy(
        rule="sync",
        # any other value that the CPU reads
        ops=_READS,
        do="keep the value on the GPU, and read it every N steps",
    ),
    Remedy(
        rule="no-remedy",
        by_hand="nothing is known that keeps the result",
        # any other sync, and what a library waits for
        reaches=True,
        do=NONE_KNOWN,
    ),
)
"""What to do about syncs and copies: the first that fits."""

KIND_REMEDIES: Final[Mapping[FindingKind, Remedy]] = {
    FindingKind.BREAK: Remedy(
        # a graph break of `torch.compile`
        spot=r"\bprint\(|\.item\(\)|\.tolist\(",
        do="move this line out of the compiled function; torch._dynamo.explain(step)() "
        "names the reason",
    ),
    FindingKind.RECOMPILE: Remedy(
        # a function that is compiled again for another shape
        why=r"\b(?:size|rank|stride) mismatch|\.(?:size|stride)\(\)|\bEq\(|\bs\d+\b",
        do="keep shapes constant (drop_last=True, padding), or torch.compile(dynamic=True)",
    ),
    FindingKind.LEFT: Remedy(
        # memory that each step leaks
        spot=r"\.append\(",
        do="drop what keeps it: a list, a cache, or a loss without detach()",
    ),
}

JOINED_REMEDY: Final = Remedy(
    # one tensor that each step makes longer
    do="keep the last N rows, or append each part's .cpu() to a list and join that at the end",
)

SLICE_REMEDY: Final = Remedy(
    do="keep .clone() of the slice: a view keeps the whole tensor",
)

_SLICED: Final = re.compile(
    r"(?:\A\w+ = |^.*\.(?:append|appendleft|add|put)\(|^.*(?:\.\w+|\]) = ).*"
    r"(?:[\w)\]]\[[^\[\]]*\]|\.(?:narrow|select|diagonal|chunk|split|unbind)\(.*\))"
    r"(?:\.detach\(\)|\.data)?\)?$",
    re.MULTILINE,
)
"""A statement that keeps a part of what another makes."""

_JOINS: Final = frozenset({"aten::cat", "aten::stack", "aten::constant_pad_nd"})

GARBAGE_REMEDIES: Final = (
    Remedy(
        # an exception that is kept, and only the garbage collector frees
        why=r"traceback",
        do="keep str(error) in its place: its traceback keeps every variable of its functions",
    ),
    Remedy(
        # an inner function that refers to itself
        why=r"in a cycle of function [\w.<>]+$",
        do="make it a function of the module and pass it what it uses",
    ),
    Remedy(
        # a function of autograd that keeps its own output
        why=r"torch \w+Backward\b",
        do="keep it with ctx.save_for_backward(output), and read ctx.saved_tensors",
    ),
    Remedy(
        # memory that only the garbage collector frees
        do="break the cycle before the step ends, or let one side refer to the other by weakref.ref",
    ),
)
"""What to do about a reference cycle, by what is in it: the first that fits."""

# What a framework does between the lines of its users: found by its function.

_OPTION: Final = "an option of the library ends it"

FRAMEWORK_REMEDIES: Final = (
    Remedy(
        files=r"torch/nn/modules/transformer\.py",
        functions=r"_detect_is_causal_mask",
        rule="causal-mask",
        by_hand=_OPTION,
        do="pass is_causal=True with a causal mask, False with others: then the mask is not read",
    ),
    Remedy(
        files=r"torch/nn/utils/rnn\.py",
        functions=r"pack_padded_sequence",
        rule="packed-order",
        by_hand=_OPTION,
        ops=_COPIES,
        do="sort each batch by length on the CPU, and leave enforce_sorted=False out",
    ),
    Remedy(
        files=r"transformers/trainer\.py",
        functions=r"_maybe_log_save_evaluate|log|store_flos",
        rule="transformers-logging",
        by_hand=_OPTION,
        do="log every N steps: TrainingArguments(logging_steps=50); this is the Trainer's logging, and not the step",
    ),
    Remedy(
        files=r"transformers/trainer\.py",
        functions=r"_run_epoch|_inner_training_loop",
        rule="transformers-nan-filter",
        by_hand=_OPTION,
        ops=_READS,
        do="set TrainingArguments(logging_nan_inf_filter=False): the Trainer reads "
        "each loss for its log, twice a batch",
    ),
    Remedy(
        files=r"accelerate/utils/operations\.py",
        functions=r"send_to_device",
        rule="accelerate-batch",
        by_hand=_OPTION,
        do="set DataLoaderConfiguration(non_blocking=True) for the Accelerator, or "
        'TrainingArguments(accelerator_config={"non_blocking": True}), and pin_memory',
    ),
    Remedy(
        files=r"lightning(?:/|_)fabric/utilities/apply_func\.py",
        functions=r"to_item",
        rule="lightning-logging",
        by_hand=_OPTION,
        do="log every N steps: Trainer(log_every_n_steps=50), and for "
        "self.log(prog_bar=True) TQDMProgressBar(refresh_rate=50)",
    ),
)
"""What to do about syncs and copies inside of frameworks: the first that fits."""

ALL_SYNC_REMEDIES: Final = (*SYNC_REMEDIES, *FRAMEWORK_REMEDIES)
"""All that a sync may be advised, each with a rule of its own."""

METRIC_REMEDIES: Final[Mapping[str, str]] = {
    RETAINED_GRAPHS.name: "detach() what outlives the step, such as a loss that is kept: it "
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

_SYNCS: Final = frozenset(
    {FindingKind.SYNC, FindingKind.COPY, FindingKind.INCONCLUSIVE}
)


def remedy_of(finding: Finding) -> Remedy | None:
    """Return what to do about the cause; ``None`` if its kind alone says too little."""
    is_pageable = PAGEABLE_COPIES.name in finding.metrics
    if finding.kind in _SYNCS or (finding.kind is FindingKind.TRANSFER and is_pageable):
        found = _of_framework(finding) or _by_line(finding)
        found = _rarer(found) if finding.in_steps < finding.of_steps else found
        # It is detached already.
        do = found.do.replace(" with .detach()", "").replace(" with detach()", "")
        return replace(found, do=do) if "detach()" in finding.source else found
    if finding.kind is FindingKind.BREAK and _DEFINITION.match(finding.source):
        return None  # The line inside that breaks it has the remedy.
    if finding.kind is FindingKind.GARBAGE:
        return garbage_remedy(finding.reason)
    if finding.kind is FindingKind.LEFT and finding.op in _JOINS:
        return JOINED_REMEDY
    if finding.kind is FindingKind.LEFT and _SLICED.search(finding.context):
        return SLICE_REMEDY
    remedy = KIND_REMEDIES.get(finding.kind)
    return remedy if remedy and re.search(remedy.why, finding.reason) else None


def has_rewrite(finding: Finding) -> bool:
    """Whether ``gpuperf audit --diff`` knows edits for such a cause."""
    remedy = remedy_of(finding)
    is_known = bool(remedy and remedy.rule and not remedy.by_hand)
    is_left = finding.kind is FindingKind.LEFT
    return is_left or (is_known and not _RETURNS_NUMBER.match(finding.source))


_RETURNS_NUMBER: Final = re.compile(r"\s*return\b.*(?:\.item\(|\b(?:float|int)\()")
"""The caller takes a number, and no tensor."""


def garbage_remedy(reason: str) -> Remedy:
    """Return what to do about a cycle, by the *reason* that describes it."""
    return next(r for r in GARBAGE_REMEDIES if re.search(r.why, reason))


_READ_SOMETIMES: Final = frozenset(
    {"read-number", "kept-number", "kept-in-object", "copy-to-cpu", "printed-tensor"}
)
"""Rules that some steps may have followed already."""


def _rarer(remedy: Remedy) -> Remedy:
    """Ask no one to do every few steps what is done in some steps already."""
    if remedy.rule in _READ_SOMETIMES:
        do = "some steps read it: do so less often, or keep it with .detach() and read all at the end"
        return replace(remedy, do=do)
    return replace(remedy, do=remedy.do.replace("every N steps", "less often"))


_DEFINITION: Final = re.compile(r"\s*(?:async\s+)?(?:def\b|@)")


def _of_framework(finding: Finding) -> Remedy | None:
    """Return what to do if it is a framework that waits: its users' lines do not say."""
    place = finding.torch or finding.innermost or finding.location
    if place is None:
        return None
    file = place.file.replace("\\", "/")
    found = (
        remedy
        for remedy in ALL_SYNC_REMEDIES
        if remedy.files
        and re.search(rf"(?:^|/){remedy.files}$", file)
        and re.fullmatch(remedy.functions, place.function)
        and re.fullmatch(remedy.ops, finding.op or "", re.DOTALL)
    )
    return next(found, None)


def _by_line(finding: Finding) -> Remedy:
    """Return what to do by the operation and the line; by its statement, if that says more."""
    found = _first_shown(finding)
    if not finding.context:
        return found
    of_all, *of_uses = (
        _first_shown(replace(finding, source=text))
        for text in finding.context.split("\n")
    )
    if found.rule in {"read-number", "position"}:
        return next((use for use in of_uses if use.rule in _USES_OF_NUMBER), found)
    says_more = found.rule in _OF_ANY_LINE or of_all.rule == "random-choice"
    return of_all if says_more else found


_USES_OF_NUMBER: Final = frozenset({"kept-number", "printed-tensor"})
"""Rules that a later line shows, for a number that one line reads by itself."""


_OF_ANY_LINE: Final = frozenset(
    {"pageable-batch", "unpinned-batch", "copy-to-gpu", "sync", "no-remedy"}
)
"""Rules that the definition of a name, or another line of the statement, makes better."""


def _first_shown(finding: Finding) -> Remedy:
    is_theirs = _is_of_library(finding)
    is_transfer = finding.kind is FindingKind.TRANSFER
    is_copy = is_transfer or re.search(r"to the GPU|copy from p", finding.reason)
    is_read = not is_copy or re.search(_TO_CPU, finding.reason)
    found = next(
        remedy
        for remedy in SYNC_REMEDIES
        if (is_read or not remedy.ops.startswith(_READS))
        and (remedy.reaches or not is_theirs)
        and re.fullmatch(remedy.ops, finding.op or "", re.DOTALL)
        and _shows(finding, remedy)
    )
    return replace(found, do=THEIRS) if is_theirs and found.do == NONE_KNOWN else found


def moves_module(finding: Finding) -> bool:
    """Whether torch waits where it moves a module, parameter by parameter."""
    return getattr(_of_framework(finding), "rule", "") == "moved-model"


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
        return remedy.does in deeds_of(finding.source) | deeds_in_use(finding.context)
    return bool(re.search(remedy.spot, finding.source))


def spot_of(remedy: Remedy | None, source: str) -> tuple[int, int]:
    """Return where the cause begins in *source*, and its length: all of it if in doubt."""
    found = list(re.finditer(remedy.spot, source)) if remedy and remedy.spot else []
    if len(found) != 1:
        return 0, len(source)
    return found[0].start(), found[0].end() - found[0].start()
