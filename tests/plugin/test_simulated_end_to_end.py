"""Unmodified CUDA code on the simulated device: what is found, gated, allowed, refused."""

from __future__ import annotations

import pytest
from builders import entries_in
from scripted_project import ScriptedProject, otherwise


pytest.importorskip("torch")

ON = ("--gpuperf", "--gpuperf-device=simulated")

TRAINING = """
import torch
import pytest_gpuperf

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

def step_of(read, feed=lambda x: x):
    model = torch.nn.Linear(64, 10).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    x = feed(torch.randn(32, 64))
    y = torch.randint(10, (32,), device=DEVICE)
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x.to(DEVICE)), y)
        loss.backward()
        optimizer.step()
        return read(loss)
    return step

def on_device(x):
    return x.to(DEVICE)
"""

JUDGED = """
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")

@pytest.fixture
def model():
    assert torch.cuda.is_available()

@gpuperf.budget(syncs=0, ms=12, mem_mb=100)
def test_clean(gpuperf, gpuperf_device, model):
    assert gpuperf.device == gpuperf_device == DEVICE == "cuda"
    gpuperf(step_of(lambda loss: None, feed=on_device))
    assert gpuperf.measurement.exact["launches"] > 0

@gpuperf.budget(syncs=0)
def test_item(gpuperf):
    gpuperf(step_of(lambda loss: loss.item(), feed=on_device))

@gpuperf.budget(syncs=1, pageable_copies=0, h2d_mb=0, d2h_mb=0)
def test_feed(gpuperf):
    gpuperf(step_of(lambda loss: None))

@gpuperf.budget(syncs=0)
def test_host(gpuperf):
    x = torch.ones(3)
    gpuperf(lambda: x + x)
"""

MEMORY = """
def training():
    weight = torch.nn.Parameter(torch.zeros(1024, 1024, device=DEVICE))
    def step():
        x = weight * 1
        x = x.tanh()
        total = x.sum()
        total.backward()
        weight.grad = None
    return step

@gpuperf.budget(mem_mb=12)
def test_large(gpuperf):
    gpuperf(training())

@gpuperf.budget(mem_mb=16.5)
def test_near(gpuperf):
    gpuperf(training())

@gpuperf.budget(mem_mb=100)
def test_layer(gpuperf):
    layer = torch.nn.GRU(4, 4).to(DEVICE)
    x = torch.randn(3, 2, 4, device=DEVICE)
    gpuperf(lambda: layer(x)[0].sum().backward())
"""

ALLOWED = """
def read_twice(loss):
    with pytest_gpuperf.allow_sync(1, reason="it is logged"):
        loss.item()
    return loss.item()  # gpuperf: allow-sync the caller stops on it

@gpuperf.budget(syncs=0)
def test_allowed(gpuperf):
    gpuperf(step_of(read_twice, feed=on_device))

@gpuperf.budget(syncs=0)
def test_exceeded(gpuperf):
    def read(loss):
        with gpuperf.allow_sync(2, reason="it is logged"):
            for _ in range(3):
                loss.item()
    gpuperf(step_of(read, feed=on_device))

def test_speechless(gpuperf):
    gpuperf(step_of(lambda loss: loss.item(), feed=on_device))  # gpuperf: allow-sync
"""

LEAKING = """
import torch

@gpuperf.budget(growth_mb=0)
def test_leak(gpuperf):
    kept = []
    gpuperf(lambda: kept.append(torch.zeros(2**18, device=gpuperf.device)))

@gpuperf.budget(growth_mb=0)
def test_no_leak(gpuperf):
    gpuperf(lambda: torch.zeros(2**18, device=gpuperf.device))

class Node:
    def __init__(self):
        self.me, self.big = self, torch.zeros(2**18, device="cuda")

@gpuperf.budget(growth_mb=0, garbage_mb=0.5)
def test_cycle(gpuperf):
    gpuperf(Node)
"""

UNCHECKED = """
@torch.library.custom_op("plugin_test::op", mutates_args=(), device_types="cuda")
def op(x: torch.Tensor) -> torch.Tensor:
    raise NotImplementedError

@op.register_fake
def _(x):
    return torch.empty_like(x)

@gpuperf.budget(syncs=0)
def test_extension(gpuperf):
    x = torch.ones(3, device="cuda")
    gpuperf(lambda: op(x).sum().item())

@gpuperf.budget(syncs=0)
def test_script(gpuperf):
    x = torch.ones(3, device="cuda")
    scripted = torch.jit.script(torch.nn.ReLU())
    gpuperf(lambda: scripted(x))

@gpuperf.budget(syncs=0)
def test_compiled(gpuperf):
    x = torch.ones(3, device="cuda")
    gpuperf(torch.compile(lambda: x + x))

def test_own(gpuperf):
    def step():
        raise ValueError("own")
    gpuperf(step)

def test_main():
    assert DEVICE == "cpu"
"""


def line_of(project: ScriptedProject, text: str) -> int:
    source = (project.path / "test_it.py").read_text().splitlines()
    return next(number for number, line in enumerate(source, 1) if text in line)


EXPLAINED = (
    "not checked: step_ms of 1 test, ms=12 binds on cuda only, the simulated GPU has no",
    "peak_allocated_bytes inconclusive: 16 MiB against 16.5 MiB, and the prediction may",
    "peak_allocated_bytes not checked: only a GPU can judge aten::gru: cuDNN keeps memory",
)


def findings(project: ScriptedProject) -> dict[str, tuple[str, ...]]:
    """What each test comes to, and with which words."""
    item, feed, forward, backward, speechless = (
        f"test_it.py:{line_of(project, text)}"
        for text in (
            *("loss.item()", "x.to(DEVICE))", "x.tanh()", "total.backward()"),
            "on_device))  # gpuperf: allow-sync",
        )
    )
    return {
        "test_clean": ("passed",),
        "test_item": (
            *(
                "failure",
                "OVER LIMIT syncs: 1 per step, limit 0",
                f"{item} in <lambda>",
            ),
            *("the CPU reads one element", "1 against 0 in each of 2 runs"),
        ),
        "test_feed": (
            *("failure", "OVER LIMIT pageable_copies: 1 per step, limit 0"),
            *("OVER LIMIT h2d_mb: 8.000 KiB per step, limit 0 B", f"{feed} in step"),
            "from pageable memory to the GPU, 8.000 KiB",
        ),
        "test_host": ("skipped",),
        "test_large": (
            *("failure", "OVER LIMIT mem_mb: 16.00 MiB, limit 12.00 MiB"),
            f"{backward} in step",
            "most memory is in use here: aten::mul, backward, 16.00 MiB: temporaries",
            f"{forward} in step",
            "in use at the peak: aten::tanh, forward, 4.000 MiB in 1 block",
            "16 MiB against 12 MiB in each of 2 runs",
        ),
        "test_near": ("passed",),
        "test_layer": ("passed",),
        "test_allowed": ("passed",),
        "test_exceeded": ("failure", "OVER LIMIT syncs: 1 per step, limit 0"),
        "test_speechless": (
            *(
                "failure",
                f"{speechless}: the comment allow-sync gives no reason, so it ",
            ),
            'such as "# gpuperf: allow-sync the loss is logged" [GP213]',
        ),
        "test_leak": (
            *("failure", "OVER LIMIT growth_mb: 1.000 MiB per step, limit 0 B"),
            *("--> test_it.py:", "1.000 MiB in 1 block leaked by each step"),
        ),
        "test_no_leak": ("passed",),
        "test_cycle": (
            *("failure", "OVER LIMIT garbage_mb: 1.000 MiB per step, limit 512.0 KiB"),
            *("--> test_it.py:", "collector frees: in a cycle of Node.me"),
        ),
    }


def test_syncs_copies_and_memory_are_named_with_line_and_reason(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING + JUDGED + MEMORY + ALLOWED + LEAKING)
    block, comment, exceeded = (
        f"test_it.py:{line_of(project, text)}"
        for text in (
            *("        loss.item()", "allow-sync the caller"),
            "                loss.item()",
        )
    )

    cases = project.cases("--gpuperf-device=simulated", "--gpuperf-explain", "-v")

    assert otherwise(cases, findings(project)) == []
    said = " ".join(project.shown.stdout.str().split())
    assert [words for words in EXPLAINED if words not in said] == []
    where = "allowed in test_it.py::test_allowed: "
    op = "aten::_local_scalar_dense"
    lines = project.shown.outlines
    assert [line for line in lines if line.startswith("allowed in")] == [
        f"{where}{block} in read_twice: {op}, 1 per step: it is logged",
        f"{where}{comment} in read_twice: {op}, 1 per step: the caller stops on it",
        (
            f"{where.replace('allowed:', 'exceeded:')}{exceeded} in read: {op}, "
            "2 per step: it is logged"
        ),
    ]


def test_a_refresh_takes_two_runs_and_a_new_sync_then_regresses(
    project: ScriptedProject,
) -> None:
    clean = TRAINING + (
        "def test_step(gpuperf): gpuperf(step_of(lambda loss: None, feed=on_device))\n"
    )
    project.file(clean)
    pytester = project.pytester

    pytester.runpytest_inprocess(*ON, "--gpuperf-update=missing")
    project.file(clean.replace("lambda loss: None", "lambda loss: loss.item()"))
    gated = pytester.runpytest_inprocess(*ON)

    (entry,) = entries_in(project.path / "baselines/simulated-cuda.json").values()
    counted = entry["runs"][0]["exact"]
    assert entry["anchor"] == {
        "d2h_bytes": 0,
        "flops": counted["flops"],
        "h2d_bytes": 0,
        "retained_graphs": 0,
        "launches": counted["launches"],
        "pageable_copies": 0,
        "garbage_bytes": 0,
        "growth_bytes": 0,
        "peak_allocated_bytes": 67133440,
        "syncs": 0,
    }
    assert [run["times"] for run in entry["runs"]] == [{}, {}]
    gated.assert_outcomes(failed=1)
    assert "NEW SYNC: 1 per step, was 0 (+1), allowed 0" in gated.outlines


SHARED = """
def read(loss):
    return loss.item()

@pytest.mark.xfail
@gpuperf.budget(syncs=0)
def test_expected(gpuperf): gpuperf(step_of(read, feed=on_device))
@gpuperf.budget(syncs=0)
def test_first(gpuperf): gpuperf(step_of(read, feed=on_device))
@gpuperf.budget(syncs=0)
def test_second(gpuperf): gpuperf(step_of(read, feed=on_device))
"""


def test_a_line_that_tests_share_is_explained_at_the_first_that_pytest_shows(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING + SHARED)
    line = line_of(project, "return loss.item()")

    shown = project.pytester.runpytest_inprocess(*ON)

    shown.assert_outcomes(failed=2, xfailed=1)
    assert sum(text.startswith("  fix ") for text in shown.outlines) == 1
    shown.stdout.fnmatch_lines(
        [
            "  tests    2 fail here: test_first, test_second",
            "*test_second*",
            f"  --> test_it.py:{line} in read: the CPU reads one element; see",
            "           test_it.py::test_first",
        ]
    )


def test_what_only_a_gpu_can_judge_is_named_and_the_run_goes_on(
    project: ScriptedProject,
) -> None:
    project.file(TRAINING + UNCHECKED)
    op = line_of(project, "op(x).sum()")
    script = line_of(project, "torch.jit.script(")

    result = project.pytester.runpytest_inprocess(*ON, "-rs")

    result.assert_outcomes(passed=2, failed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "E       ValueError: own",
            "    no baseline: peak memory, memory growth, garbage, retained graphs, unpinned",
            "    copies, bytes to the GPU, bytes to the CPU, kernel launches, flops;",
            "    torch.compile: judged as eager code",
            (
                f"SKIPPED * only a GPU can judge plugin_test::op (test_it.py:{op}): there is "
                "no CPU kernel to run in its place"
            ),
            (
                f"SKIPPED * only a GPU can judge torch.jit.script (test_it.py:{script}): "
                "judged without what a script fuses"
            ),
        ],
    )


def test_a_machine_without_cuda_simulates_and_says_so(
    project: ScriptedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    project.file(
        TRAINING + "@gpuperf.budget(syncs=0)\n"
        "def test_step(gpuperf):\n"
        "    gpuperf(step_of(lambda loss: None, feed=on_device))\n"
    )

    result = project.pytester.runpytest_subprocess("--gpuperf")

    result.assert_outcomes(passed=1)
    assert (
        "gpuperf: 1 passed on simulated GPU (no CUDA device here: memory is predicted, no "
        "times); 9 metrics without baseline"
    ) in result.outlines
