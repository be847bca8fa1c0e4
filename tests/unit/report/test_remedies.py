"""What is advised is executed: it waits less, computes the same, and adds nothing."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from builders import a_finding
from framework_programs import FRAMEWORK_PROGRAMS
from remedy_programs import COSTS, PROGRAMS, SETTING, Program


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.sync_rules import release_of
from pytest_gpuperf.model.finding import FindingKind, Location
from pytest_gpuperf.report.line_syntax import with_context
from pytest_gpuperf.report.remedies import (
    ALL_SYNC_REMEDIES,
    KIND_REMEDIES,
    METRIC_REMEDIES,
    NONE_KNOWN,
    SLICE_REMEDY,
    Remedy,
    remedy_of,
)
from pytest_gpuperf.report.screen.audit import AuditView, remedy_of_sync


pytestmark = pytest.mark.filterwarnings("ignore")

HERE = Path(__file__).parent
FILE = str(HERE / "program.py")
VIEW = AuditView(here=HERE, line_of=linecache.getline, steps=1)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What a program computed, what it cost, why it waited, and by which rules."""

    result: Any
    cost: Any
    causes: frozenset[tuple[FindingKind, str, str]] = frozenset()
    rules: frozenset[str] = frozenset()


def run(program: Program, text: str) -> Ran:
    names: dict[str, Any] = {"print": lambda *_: None}
    with simulated_gpu(str(HERE)) if program.on_gpu else nullcontext() as gpu:
        exec((SETTING if gpu else "") + program.setting, names)  # noqa: S102, our own programs
        linecache.cache[FILE] = (len(text), None, text.splitlines(keepends=True), FILE)
        if gpu:
            gpu.recorder.starts = (0,)
            gpu.begin_step()
        exec(compile(text, FILE, "exec"), names)  # noqa: S102
        audit = gpu.end_step() if gpu else None
        result = on_cpu(names["result"])
    if audit is None:
        return Ran(result=result, cost=names["cost"])
    rules = frozenset(remedy_of_sync(found, VIEW).rule for found in audit.findings)
    cost = names.get("cost", (*waits(audit), audit.totals.counts["launches"]))
    return Ran(result=result, cost=cost, causes=repeated(audit), rules=rules)


def on_cpu(result: Any) -> list[Any]:
    results = result if isinstance(result, tuple) else (result,)
    return [torch.as_tensor(each).detach().cpu() for each in results]


def repeated(audit: StepAudit) -> frozenset[tuple[FindingKind, str, str]]:
    """Return why it waits, but for what one step of all does."""
    found = (f for f in audit.findings if f.per_step > 1)
    return frozenset((f.kind, f.op, f.reason) for f in found)


def programs() -> Iterator[Any]:
    for rule, found in PROGRAMS.items():
        for number, program in enumerate(found, 1):
            yield pytest.param(rule, program, id=f"{rule}-{number}")


@pytest.mark.parametrize(("rule", "program"), list(programs()))
def test_a_remedy_is_offered_where_it_waits_less_and_computes_the_same(
    rule: str, program: Program
) -> None:
    if program.until and release_of(torch.__version__) >= program.until:
        pytest.skip("this release of torch does not wait there")

    before = run(program, program.before)
    after = run(program, program.after)

    assert before.rules == {rule, program.beside or rule}
    assert after.cost[:2] < before.cost[:2]
    assert after.causes <= before.causes
    torch.testing.assert_close(before.result, after.result, check_dtype=False)


def waits(audit: StepAudit) -> tuple[int, int]:
    """Return syncs and copies from ordinary memory; what may wait counts as it does."""
    return audit.totals.syncs + audit.totals.inconclusive, audit.totals.counts[
        "pageable_copies"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("program", COSTS.values(), ids=map(str, COSTS))
def test_what_else_is_advised_costs_less_and_computes_the_same(
    program: Program,
) -> None:
    before = run(program, program.before)
    after = run(program, program.after)

    assert after.cost < before.cost
    torch.testing.assert_close(before.result, after.result, check_dtype=False)


def test_no_remedy_is_without_its_programs() -> None:
    advised = {remedy.rule for remedy in ALL_SYNC_REMEDIES if remedy.do != NONE_KNOWN}
    others = {*KIND_REMEDIES, *METRIC_REMEDIES, "slice"}

    assert PROGRAMS.keys() | FRAMEWORK_PROGRAMS.keys() == advised
    assert COSTS.keys() == others


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "line"),
    [
        # Whose value it is: the line's own, one that comes in each step, an index.
        (
            "constant",
            "factors = torch.tensor([[10.0**n for n in range(4)]]).to(device)",
        ),
        ("constant", "torch.cuda.FloatTensor([1.0, 2.0])"),
        ("constant", "grid * torch.as_tensor((0.5, 0.5, 1, 1)).cuda()"),
        ("constant", "torch.tensor([0.5, 2.0], device=device)"),
        ("tensor-from-cpu", "torch.tensor([given, 2 * given], device=device)"),
        (
            "tensor-from-cpu",
            "factors = torch.tensor(\n    [given],\n    device=device,\n)",
        ),
        ("tensor-from-cpu", "torch.from_numpy(rows.numpy()).to(device)"),
        ("tensor-of-tensors", "losses = torch.tensor([row[0], row[1]])"),
        ("pageable-batch", "rows.to(device)"),
        ("cpu-index", "grid[order]"),
        ("cpu-index", "grid[torch.randperm(8)]"),
        ("cpu-index", "grid[range(2), [0, 1]]"),
        ("mask", "grid[grid > given].mean()"),
        ("positions", "row[(row > 0).nonzero()[:, 0]]"),
        ("put-number", "row[gpu_lengths] = 1.0"),
        # What is counted, and what only sorted values can tell.
        ("unique", "kinds, counts = labels.unique(return_counts=True)"),
        ("unique", "torch.bincount(labels, minlength=8)"),
        ("no-remedy", "labels.unique(return_inverse=True)"),
        ("no-remedy", "torch.unique_consecutive(labels)"),
        # Who needs the number.
        ("read-number", "total = loss.mean().item()"),
        ("size", "n = int(labels.max())\nfor _ in range(n): pass"),
        ("size", "self_n = labels.max().item() + 1"),
        ("size", "ends = gpu_lengths.tolist()\nparts = row.split(ends)"),
        ("size", "n = labels.amax().item()\nF.one_hot(lengths, num_classes=n + 1)"),
        ("number-in-formula", "count = loss.sum().item()\nscaled = grid / count"),
        ("condition", "found = bool(loss.isnan().any())\nif found: pass"),
        ("index", "key = labels[0].item()\nvalue = {0: 1, key: 2}[key]"),
        ("made-on-cpu", "noise = torch.ones(8)\nshifted = row + noise.to(device)"),
        ("constant", "half = torch.tensor(0.5)\nscaled = row * half.to(device)"),
        ("number-in-formula", "scaled = grid / loss.sum().item()"),
        ("number-for-torch", "torch.add(grid, 1, alpha=number)"),
        ("index", "grid[labels[0]]"),
        ("size", "F.pad(row, (int(labels[0]), 0))"),
        ("size", "grid[: labels.max()]"),
        ("size", "grid.split((gpu_lengths).tolist())"),
        ("condition", "if loss.mean().item() > 2: pass"),
        ("loop", "while loss.mean() > 9: pass"),
        ("condition", "assert not torch.isnan(loss).any()"),
        ("checks-of-each", "all(torch.isfinite(p).all() for p in model.parameters())"),
        ("python-max", "peak = max(loss[0].item(), 2.0)"),
        ("computed-on-cpu", "places, columns = assigned(grid.cpu())"),
        ("copy-to-cpu", "kept = grid.cpu()"),
        ("copy-to-cpu", "rows.copy_(grid)"),
        # Only a condition on the value that is read decides, and a later line says what for.
        (
            "index",
            "def at(i, is_last):\n    return row if is_last else rows[i]\nat(labels[0], 0)",
        ),
        (
            "index",
            "i = int(number)\ndef at(i):\n    y = row * rows[i, 0]\n    return y\nat(labels[0])",
        ),
        ("condition", "found = rows if labels[0] > 1 else row"),
        ("condition", "found = rows if mask[0, 0] else row"),
        (
            "kept-number",
            "kept = []\nnow = loss.mean().item()\nkept.append(round(now, 4))",
        ),
        ("printed-tensor", "now = loss.mean().item()\nprint(now)"),
        ("kept-in-object", "kept = [0]\nkept[0] = float(loss.mean())"),
        ("kept-in-object", "loss.last = loss.mean().item()"),
        ("read-number", "loss.last = now = loss.mean().item()"),
        ("read-number", "kept = [0]\nkept[0] += loss.mean().item()"),
        # What is read is a place, and no amount.
        ("position", "def best(x):\n    return x.argmax().item()\nbest(row)"),
        ("position", "place = int(torch.searchsorted(row, number))"),
        ("read-number", "hits = (grid.argmax(1) == labels).sum().item()"),
        ("kept-number", "kept = []\nkept.append(row.argmax().item())"),
        # What belongs to a module, and what a function is given.
        ("module-state", "scaled = grid / norm.running_var.sqrt().to(device)"),
        ("module-state", "scores = grid @ nets[0].head.weight.T.cuda()"),
        ("pageable-batch", "loss.weight = rows\nweights = loss.weight.to(device)"),
        ("constant", "def put(x):\n    return x.to(device)\nput(torch.tensor(0.0))"),
        ("made-on-cpu", "def at(x):\n    return x.to(device)\nat(torch.ones(8))"),
        (
            "pageable-batch",
            "def put(x):\n    return x.to(device)\nput(torch.tensor(0.0)), put(rows)",
        ),
        (
            "pageable-batch",
            "def put(x):\n    x = rows\n    return x.to(device)\nput(torch.ones(8))",
        ),
        # What has to be copied, and what torch does inside.
        ("pageable-batch", "for x in DataLoader(torch.ones(8, 4)): x.to(device)"),
        ("printed-tensor", "def log(*_): pass\nlog('loss', loss.mean().item())"),
        ("checkpoint", "torch.save(model.state_dict(), io.BytesIO())"),
        ("checkpoint", "torch.save({'model': model.state_dict()}, io.BytesIO())"),
        ("checkpoint", "pickle.dumps(grid)"),
        ("printed-tensor", "'%.3f' % loss.mean()"),
        ("no-remedy", "torch.linalg.svd(square)"),
        ("no-remedy", "torch.linalg.matrix_exp(square)"),
        ("finite-norm", "nn.utils.clip_grad_norm_(loss, 1.0, error_if_nonfinite=True)"),
        ("no-remedy", "torch.load(saved(), map_location=device)"),
    ],
)
def test_a_fix_is_chosen_by_what_the_line_does_and_whose_value_it_is(
    rule: str, line: str
) -> None:
    text = f"{line}\nresult = 0"

    assert run(Program(setting=OWN, before=text, after=""), text).rules == {rule}


OWN = """
import pickle

given, loss = 0.5, row.clone()
norm, nets = nn.BatchNorm1d(4), [nn.ModuleDict({"head": nn.Linear(4, 4)})]
loss.grad = row.clone()

def assigned(costs):
    return costs.argmin(0), costs.argmin(1)

def saved():
    file = io.BytesIO()
    torch.save(torch.ones(2), file)
    return io.BytesIO(file.getvalue())
"""


def test_what_a_library_waits_for_is_not_said_to_be_without_a_fix() -> None:
    place = Location(file="train.py", line=1, function="step")
    waits = a_finding(location=place, source="smooth(loss)", op="aten::item")
    inside = replace(place, file="helper/__init__.py", line=2, function="smooth")

    remedy = remedy_of(replace(waits, innermost=inside))

    assert remedy is not None
    assert remedy.do == "the library waits: try another version, or report it"


@pytest.mark.parametrize(
    ("kept", "advised"),
    [
        ("log.append(codes.detach()[::10])", SLICE_REMEDY),
        ("self.last = codes[0]", SLICE_REMEDY),
        ("held['codes'] = codes[:, 0].detach()", SLICE_REMEDY),
        ("self.last = codes.narrow(0, 0, 4)", SLICE_REMEDY),
        ("log.append(codes.detach())", KIND_REMEDIES[FindingKind.LEFT]),
        ("log.append(codes[::10].clone())", KIND_REMEDIES[FindingKind.LEFT]),
        ("log.append([codes])", KIND_REMEDIES[FindingKind.LEFT]),
        ("first = codes[0]", KIND_REMEDIES[FindingKind.LEFT]),
    ],
)
def test_a_slice_that_keeps_its_whole_tensor_is_to_be_cloned(
    kept: str, advised: Remedy, tmp_path: Path
) -> None:
    file = tmp_path / "train.py"
    file.write_text(f"def step():\n    codes = rows.relu()\n    {kept}\n", "utf-8")
    place = Location(file=str(file), line=2, function="step")
    left = with_context(a_finding(FindingKind.LEFT, location=place, reason=""))

    assert remedy_of(left) is advised


@pytest.mark.parametrize("source", ["def model(x):", "@staticmethod", "async def f():"])
def test_a_function_that_is_not_compiled_has_the_remedy_of_the_line_that_breaks_it(
    source: str,
) -> None:
    whole = a_finding(FindingKind.BREAK, op=None, location=None, source=source)

    assert remedy_of(whole) is None
    assert remedy_of(replace(whole, source="print(x)")) is not None
