"""Findings of the simulated GPU say what, where, in which phase and how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import CopyDirection, StepAudit, copy_fields
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.layout_rules import LAYOUT_RULES, SPARSE_RULES
from pytest_gpuperf.devices.simulated.operation import OpCall
from pytest_gpuperf.devices.simulated.program_audit import ProgramAudit
from pytest_gpuperf.devices.simulated.sync_rules import SYNC_RULES, rules_by_op
from pytest_gpuperf.model.finding import FindingKind, Phase


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    with simulated_gpu(root=str(Path(__file__).parent)) as entered:
        yield entered


def audited(gpu: SimulatedGpu, step: Callable[[], object]) -> StepAudit:
    gpu.begin_step()
    step()
    return gpu.end_step()


def line(step: Callable[[], object], offset: int) -> str:
    code = step.__code__
    return f"{__file__}:{code.co_firstlineno + offset} in {code.co_name}"


def test_a_sync_is_named_with_its_line_and_counted(gpu: SimulatedGpu) -> None:
    values = torch.ones(3, device="cuda")

    def step() -> None:
        for value in values:
            value.item()

    (finding,) = audited(gpu, step).findings

    assert finding.kind is FindingKind.SYNC
    assert finding.op == "aten::_local_scalar_dense"
    assert finding.reason == "the CPU reads one element"
    assert finding.per_step == 3
    assert finding.phase is Phase.FORWARD
    assert str(finding.location) == line(step, 2)
    assert finding.inner == finding.location


def test_code_outside_of_the_root_is_the_innermost_line(
    gpu: SimulatedGpu, tmp_path: Path
) -> None:
    source = tmp_path / "library.py"
    source.write_text("def peek(tensor):\n    return tensor.item()\n")
    library: dict[str, Any] = {}
    exec(compile(source.read_text(), str(source), "exec"), library)  # noqa: S102
    value = torch.ones((), device="cuda")

    def step() -> None:
        library["peek"](value)

    (finding,) = audited(gpu, step).findings

    assert str(finding.location) == line(step, 1)
    assert str(finding.innermost) == f"{source}:2 in peek"


def test_a_sync_in_backward_stands_at_its_call_and_names_the_forward_line(
    gpu: SimulatedGpu,
) -> None:
    weight = torch.ones(3, device="cuda", requires_grad=True)

    def step() -> None:
        loss = (weight * 2).prod()
        loss.backward()

    (finding,) = audited(gpu, step).findings

    assert finding.reason == "the backward of prod() looks for zeros in its input"
    assert finding.phase is Phase.BACKWARD
    assert str(finding.location) == line(step, 2)
    assert str(finding.forward) == line(step, 1)


def test_both_passes_over_a_mask_are_found(gpu: SimulatedGpu) -> None:
    weight = torch.ones(3, device="cuda", requires_grad=True)
    mask = torch.ones(3, device="cuda") > 0

    def step() -> None:
        loss = weight[mask].sum()
        loss.backward()

    found = audited(gpu, step).findings

    assert [(f.phase, f.per_step) for f in found] == [
        (Phase.FORWARD, 1),
        (Phase.BACKWARD, 1),
    ]
    assert str(found[1].forward) == line(step, 1)


NO_NODE = {
    "a mask": lambda _, other, mask: other[mask],
    "indices": lambda _, other, mask: other[torch.tensor([1])],
    "repeats": lambda _, other, mask: torch.repeat_interleave(mask[0].long()),
    "places": lambda out, other, mask: out.nonzero(),
    "a detached one": lambda out, other, mask: out.detach().masked_select(out > 0),
}
WRITES = {
    "masked_fill": lambda x, mask, w: x.masked_fill(mask, w[0, 0]),
    "masked_scatter": lambda x, mask, w: x.masked_scatter(mask, w),
    "masked_scatter_": lambda x, mask, w: x.masked_scatter_(mask, w),
    "index_put": lambda x, mask, w: x.index_put((mask[0],), w[0]),
    "a view": lambda x, mask, w: (x[0].index_put_((mask[0],), w[0, 0]), x)[1],
    "CPU indices": lambda x, mask, w: x[torch.tensor([2, 0])],
    "a copy": lambda x, mask, w: x.cpu(),
    "a product": lambda x, mask, w: x.prod(dim=0),
}


@pytest.mark.parametrize("between", NO_NODE.values(), ids=NO_NODE)
@pytest.mark.parametrize("forward", WRITES.values(), ids=WRITES)
def test_the_forward_line_is_that_of_the_node_that_waits(
    gpu: SimulatedGpu, forward: Callable[..., Any], between: Callable[..., object]
) -> None:
    weight = torch.ones(3, 3, device="cuda", requires_grad=True)
    other, mask = torch.ones(3, 3, device="cuda"), torch.ones(3, 3, device="cuda") > 0

    def step() -> None:
        out = forward(weight * 2, mask, weight)
        between(out, other, mask)
        out.sum().backward()

    waits = audited(gpu, step).findings
    lines = {str(f.forward) for f in waits if f.phase is Phase.BACKWARD}

    assert lines == {line(forward, 0)}


def test_a_custom_backward_is_blamed_itself(gpu: SimulatedGpu) -> None:
    class Peeking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad if grad.sum() else grad * 2

    weight = torch.ones(3, device="cuda", requires_grad=True)

    (finding,) = audited(gpu, lambda: Peeking.apply(weight).sum().backward()).findings

    assert str(finding.location) == line(Peeking.backward, 2)
    assert finding.phase is Phase.BACKWARD


def test_a_dataset_on_the_device_is_the_data_phase(gpu: SimulatedGpu) -> None:
    class Careless(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> float:
            return torch.ones((), device="cuda").item()

    loader = torch.utils.data.DataLoader(Careless(), batch_size=2)

    (finding,) = audited(gpu, lambda: list(loader)).findings

    assert finding.phase is Phase.DATA
    assert finding.per_step == 2


@pytest.mark.parametrize(
    ("move", "pinned", "blocking", "syncs", "inconclusive"),
    [
        (lambda host: host.to("cuda"), False, True, 1, 0),
        (lambda host: host.pin_memory().to("cuda"), True, True, 1, 0),
        (lambda host: host.cuda(non_blocking=True), False, False, 0, 1),
        (lambda host: host.pin_memory().cuda(non_blocking=True), True, False, 0, 0),
    ],
)
def test_copies_to_the_device_carry_their_bytes(
    gpu: SimulatedGpu,
    move: Callable[[Any], Any],
    pinned: bool,  # noqa: FBT001
    blocking: bool,  # noqa: FBT001
    syncs: int,
    inconclusive: int,
) -> None:
    host = torch.ones(8, 4)

    audit = audited(gpu, lambda: move(host))
    (copy,) = audit.copies

    expected = copy_fields(CopyDirection.H2D, pinned=pinned)
    assert {name: getattr(copy, name) for name in expected} == expected
    assert (copy.per_step, copy.moved_bytes) == (1, 128)
    assert (audit.totals.syncs, audit.totals.inconclusive) == (syncs, inconclusive)
    assert (audit.totals.counts["h2d_bytes"], audit.totals.counts["d2h_bytes"]) == (
        128,
        0,
    )
    assert audit.totals.counts["pageable_copies"] == int(not pinned)
    assert audit.totals.blocking_copies == int(blocking)


def test_a_move_is_named_as_torch_names_it_and_a_copy_as_well(
    gpu: SimulatedGpu,
) -> None:
    host = torch.ones(3)
    target = torch.empty(3, device="cuda")

    def step() -> None:
        host.to("cuda")
        host.cuda()
        target.copy_(host)

    audit = audited(gpu, step)

    assert [f.op for f in audit.findings] == [
        "aten::_to_copy",
        "aten::_to_copy",
        "aten::copy_",
    ]
    assert [c.op for c in audit.copies] == [f.op for f in audit.findings]


def test_a_non_blocking_copy_into_pageable_memory_blocks_without_a_sync_call(
    gpu: SimulatedGpu,
) -> None:
    host, device = torch.empty(4), torch.ones(4, device="cuda")

    audit = audited(gpu, lambda: host.copy_(device, non_blocking=True))

    assert [f.kind for f in audit.findings] == [FindingKind.COPY]
    assert audit.totals.syncs == 1
    assert audit.totals.counts["d2h_bytes"] == 16


def test_waits_asked_for_by_name_count(gpu: SimulatedGpu) -> None:
    def step() -> None:
        torch.cuda.synchronize()
        torch.cuda.Stream().synchronize()
        event = torch.cuda.Event()
        event.record()
        event.synchronize()
        torch.ones((), device="cuda").item()

    totals = audited(gpu, step).totals

    assert totals.syncs == 4


def test_views_and_allocations_launch_nothing(gpu: SimulatedGpu) -> None:
    grid = torch.ones(4, 4, device="cuda")

    def step() -> None:
        torch.empty(3, device="cuda")
        grid.view(-1)[2:].unsqueeze(0).detach()

    assert audited(gpu, step).totals.counts["launches"] == 0


def test_operations_are_counted_one_by_one(gpu: SimulatedGpu) -> None:
    grid = torch.ones(4, 4, device="cuda")

    def step() -> None:
        (grid @ grid).add_(1).relu()
        torch.zeros(3, device="cuda")

    assert audited(gpu, step).totals.counts["launches"] == 4


def test_a_step_on_the_host_alone_did_not_touch_the_gpu(gpu: SimulatedGpu) -> None:
    audit = audited(gpu, lambda: torch.ones(3).sum().item())

    assert not audit.touched_gpu
    assert audit.findings == ()


def test_a_sync_in_inference_mode_is_found(gpu: SimulatedGpu) -> None:
    layer = torch.nn.Linear(2, 1).cuda()

    def step() -> bool:
        with torch.inference_mode():
            return bool(layer(torch.ones(1, 2, device="cuda")) > 0)

    assert audited(gpu, step).totals.syncs == 1


@pytest.mark.parametrize(
    ("read", "pageable"),
    [
        (lambda found: found.cpu(), 1),
        (lambda found: found.tolist(), 1),
        (lambda found: found.to("cpu").numpy(), 1),
        (lambda found: found[0].item(), 0),
        (lambda found: bool(found[0] > 0), 0),
    ],
)
def test_what_inference_mode_made_is_read_after_it(
    gpu: SimulatedGpu, read: Callable[[Any], object], pageable: int
) -> None:
    with torch.inference_mode():
        found = torch.ones(2, device="cuda") * 2

    totals = audited(gpu, lambda: read(found)).totals

    assert (totals.syncs, totals.counts["pageable_copies"]) == (1, pageable)


def test_a_sync_in_another_thread_is_found_at_its_line(gpu: SimulatedGpu) -> None:
    def work() -> None:
        torch.ones(2, device="cuda").sum().item()

    def step() -> None:
        thread = Thread(target=work)
        thread.start()
        thread.join()

    (finding,) = audited(gpu, step).findings

    assert str(finding.location) == line(work, 1)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
def test_what_cannot_be_judged_is_named_and_the_run_goes_on(gpu: SimulatedGpu) -> None:
    layer = torch.nn.Linear(2, 2).cuda()
    batch = torch.ones(1, 2, device="cuda")

    def step() -> None:
        torch.jit.script(layer)(batch)
        torch.nn.DataParallel(layer)(batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            layer(batch)
        graph.replay()

    audit = audited(gpu, step)

    assert [u.op for u in audit.not_checked] == [
        "torch.jit.script",
        "torch.nn.DataParallel",
        "torch.cuda.CUDAGraph",
        "torch.cuda.CUDAGraph.replay",
    ]
    assert [f.op for f in audit.findings if f.is_certain] == ["torch.cuda.synchronize"]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_rows_are_not_checked(gpu: SimulatedGpu) -> None:
    square = torch.eye(3, device="cuda")

    audit = audited(gpu, square.to_sparse_csr)

    assert [u.op for u in audit.not_checked] == ["torch.sparse_csr"]


class Tagged(torch.Tensor):  # type: ignore[misc]
    """A tensor of a class of the user's."""


def test_tensors_of_the_users_classes_are_checked_as_any(gpu: SimulatedGpu) -> None:
    tagged = torch.ones(3).as_subclass(Tagged)
    sums = []

    audit = audited(gpu, lambda: sums.append((tagged.to("cuda") * 2).sum().item()))

    assert sums == [6.0]
    assert not audit.not_checked


class Dispatching(torch.Tensor):  # type: ignore[misc]
    """One that dispatches by itself, and is no wrapper."""

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def test_tensors_of_classes_that_dispatch_are_taken_for_plain_ones(
    gpu: SimulatedGpu,
) -> None:
    audit = audited(gpu, lambda: torch.ones(3, device="cuda").as_subclass(Dispatching))

    assert {(u.op, u.reason) for u in audit.not_checked} == {
        (
            f"{__name__}.Dispatching",
            "a tensor of this class is taken for a plain one",
        )
    }


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_go_through_and_are_not_checked(gpu: SimulatedGpu) -> None:
    parts = [torch.ones(2, 3), torch.ones(4, 3)]
    seen: list[Any] = []

    def step() -> None:
        nested = torch.nested.nested_tensor(parts, device="cuda", requires_grad=True)
        seen.append((nested.is_nested, str(nested.device)))
        padded = torch.nested.to_padded_tensor(nested * 2, 0.0)
        seen.append(padded.sum().item())

    audit = audited(gpu, step)

    assert seen == [(True, "cuda:0"), 36.0]
    assert {(u.op, u.reason) for u in audit.not_checked} == {
        ("nested tensors", "no rules are known for this layout")
    }


def test_compiled_code_is_judged_as_eager_and_said_to_be(gpu: SimulatedGpu) -> None:
    batch = torch.ones(2, device="cuda")

    audit = audited(gpu, lambda: torch.compile(lambda x: (x + 1).sum().item())(batch))

    assert [(e.op, e.reason) for e in audit.as_eager] == [
        ("torch.compile", "judged as eager code")
    ]
    assert audit.not_checked == ()
    assert audit.totals.syncs == 1


def test_an_operation_that_only_cuda_has_gives_zeros_and_is_named(
    gpu: SimulatedGpu,
) -> None:
    @torch.library.custom_op(
        "gpuperf_test::only_cuda", mutates_args=(), device_types="cuda"
    )
    def only_cuda(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    only_cuda.register_fake(torch.empty_like)
    batch = torch.ones(2, device="cuda")
    outputs = []

    audit = audited(gpu, lambda: outputs.append(only_cuda(batch)))

    assert [u.op for u in audit.not_checked] == ["gpuperf_test::only_cuda"]
    assert outputs[0].is_cuda
    assert outputs[0].tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_a_reduced_product_that_cuda_lacks_is_not_checked_by_its_name(
    gpu: SimulatedGpu,
) -> None:
    rows = torch.eye(3, device="cuda").to_sparse_csr()
    dense = torch.ones(3, 3, device="cuda")

    audit = audited(gpu, lambda: torch.sparse.mm(rows, dense, "amax"))

    reasons = {u.op: u.reason for u in audit.not_checked}
    assert reasons["aten::_sparse_mm_reduce_impl"] == "CUDA has no kernel for it"


def test_the_square_root_of_a_matrix_waits_since_torch_has_it() -> None:
    name = "linalg_matrix_sqrth"

    (rule,) = rules_by_op(version="2.14.0")[name]

    assert name not in rules_by_op(version="2.13.0")
    filled, empty = torch.ones(2, 2), torch.ones(0, 0)
    schema = torch.ops.aten.linalg_cholesky.default._schema
    waits = [
        rule.when(OpCall(schema, [matrix], {}, lambda _: True))
        for matrix in (filled, empty)
    ]
    assert waits == [1, 0]


def test_torch_2_14_and_2_15_wait_less_in_three_operations_and_more_in_polar() -> None:
    before, since = (rules_by_op(version=version) for version in ("2.14.1", "2.15.0"))

    assert "linalg_lu" in before.keys() - since.keys()
    factored = [len(rules["linalg_lu_factor_ex"]) for rules in (before, since)]
    assert factored == [2, 1]  # what check_errors reads stays
    assert "linalg_polar" not in before
    assert "normal" in rules_by_op(version="2.13.0")
    assert "normal" not in before
    assert [bool(rule.read_back) for rule in since["linalg_polar"]] == [False, True]
    assert [len(rules["isin"]) for rules in (before, since)] == [2, 1]


def test_a_mask_of_the_host_was_copied_once_for_each_of_its_dimensions() -> None:
    x = torch.ones(8, 8)
    schema = torch.ops.aten.index.Tensor._schema
    old, new = (rules_by_op(version=version)["index"] for version in ("2.8.0", "2.9.0"))

    (rule,) = [each for each in old if each not in new]
    waits = [
        rule.when(OpCall(schema, [x, [mask > 0]], {}, lambda each: each is x))
        for mask in (x[0], x.clone())
    ]
    assert waits == [1, 2]


def test_no_supported_torch_waits_in_the_median_without_nan() -> None:
    assert "nanmedian" not in rules_by_op(version="2.6.0")


def test_rules_follow_the_version_of_torch() -> None:
    assert (
        len(rules_by_op(version="2.8.0")["index"])
        == len(rules_by_op(version="2.13.0+cpu")["index"]) + 1
    )


def test_every_rule_names_its_reason_and_its_source() -> None:
    assert all(
        rule.reason and rule.source and rule.ops
        for rule in (*SYNC_RULES, *LAYOUT_RULES, *SPARSE_RULES)
    )


def test_an_audit_that_is_closed_counts_no_more_steps(gpu: SimulatedGpu) -> None:
    weight = torch.ones(1, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight])
    program = ProgramAudit(gpu)
    optimizer.step()

    program.close()
    optimizer.step()

    assert program.audit().steps == 1
