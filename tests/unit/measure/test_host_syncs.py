from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from typing import Any

import pytest

from pytest_gpuperf.measure.syncs import Syncs
from pytest_gpuperf.measure.syncs import find_syncs


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.cpu.syncs import mark_syncs  # noqa: E402, after the skip
from pytest_gpuperf.devices.profiler import record_trace  # noqa: E402


F = torch.nn.functional
X = torch.tensor([3.0, -1.0, 2.0])
I = torch.tensor([0, 2, 1])  # noqa: E741, an index
MASK = X > 0
SQUARE = torch.eye(3)


def syncs_of(step: Callable[[], object]) -> Syncs:
    return find_syncs(record_trace(mark_syncs(step), [()], cuda=False))


def count(step: Callable[[], object]) -> int:
    return syncs_of(step).per_step


def read_item() -> float:
    loss = X.sum()
    return float(loss.item())


def branch_on_it() -> int:
    if X.sum():
        return 1
    return 0


def make_it_a_float() -> float:
    return float(X[0])


def find_nonzeros() -> object:
    return X.nonzero()


def pick_by_mask() -> object:
    return X[MASK]


@pytest.mark.parametrize(
    ("step", "operation", "line"),
    [
        (read_item, "aten::_local_scalar_dense", 2),
        (branch_on_it, "aten::_local_scalar_dense", 1),
        (make_it_a_float, "aten::_local_scalar_dense", 1),
        (find_nonzeros, "aten::nonzero", 1),
        (pick_by_mask, "aten::index", 1),
    ],
)
def test_a_sync_is_found_with_its_file_line_and_function(
    step: Callable[[], object], operation: str, line: int
) -> None:
    (found,) = syncs_of(step).findings

    at = step.__code__.co_firstlineno + line
    assert str(found.location) == f"{__file__}:{at} in {step.__name__}"
    assert (found.op, found.api) == (operation, None)
    assert (found.per_step, found.blocked_ms) == (1, 0.0)


def set_by_mask() -> None:
    X.clone()[MASK] = X[:2]


def set_by_two_masks() -> None:
    torch.ones_like(SQUARE)[MASK, MASK] = 1.0


def add_by_mask() -> None:
    X.clone().index_put_((MASK,), SQUARE[0, 0], accumulate=True)


@pytest.mark.parametrize(
    ("waits", "step"),
    [
        (1, set_by_mask),
        (2, set_by_two_masks),
        (1, add_by_mask),
        (2, lambda: SQUARE[MASK, MASK]),
        (1, lambda: torch.masked_select(X, MASK)),
        (1, lambda: torch.where(MASK)),
        (1, lambda: torch.unique(I)),
        (3, lambda: torch.unique(SQUARE, dim=0)),
        (1, lambda: torch.unique_consecutive(I)),
        (1, lambda: torch.equal(X, X)),
        (1, lambda: torch.allclose(X, X)),
        (1, lambda: torch.linalg.inv(SQUARE)),
        (1, lambda: torch.linalg.eigh(SQUARE)),
        (2, lambda: torch.linalg.svd(SQUARE)),
        (2, lambda: torch.linalg.pinv(SQUARE)),
        (2, lambda: torch.normal(X, X.abs())),
        (1, lambda: X[I[0]]),
        (1, lambda: f"{X[0]:.3f}"),
        (2, lambda: torch.repeat_interleave(X, I)),
        (2, lambda: torch.bincount(I)),
        (2, lambda: torch.histc(X)),
        (2, lambda: torch.isin(I, I.repeat(10))),
        (2, lambda: torch.searchsorted(X, X, sorter=I)),
    ],
)
def test_operations_whose_result_the_host_must_know_are_syncs(
    waits: int, step: Callable[[], object]
) -> None:
    assert count(step) == waits


def fill_by_mask() -> None:
    X.clone()[MASK] = 1.0


def set_by_index() -> None:
    X.clone()[I] = X


def split_by_host_indices() -> object:
    return torch.tensor_split(X, I[:2])


@pytest.mark.parametrize(
    "step",
    [
        fill_by_mask,
        set_by_index,
        split_by_host_indices,
        lambda: X[I],
        lambda: torch.where(MASK, X, 0.0),
        X.nanmedian,
        lambda: X.nanmedian(dim=0),
        lambda: torch.repeat_interleave(X, I, output_size=3),
        lambda: torch.repeat_interleave(X, 2),
        lambda: torch.histc(X, min=0, max=1),
        lambda: torch.isin(I, I),
        lambda: torch.isin(I, 2),
        lambda: torch.isin(I, I.repeat(10), assume_unique=True),
        lambda: torch.normal(X, 1.0),
        lambda: torch.searchsorted(X, X),
        lambda: F.one_hot(I, 3),
        lambda: torch.linalg.inv_ex(SQUARE),
        lambda: F.dropout(X),
    ],
)
def test_operations_that_stay_on_the_device_are_none(
    step: Callable[[], object],
) -> None:
    assert count(step) == 0


def test_the_backward_of_a_mask_is_a_sync_at_the_line_of_backward() -> None:
    weight = torch.nn.Parameter(X.clone())

    def step() -> None:
        loss = weight[MASK].sum()
        loss.backward()

    lines = [f.location.line for f in syncs_of(step).findings if f.location]

    first = step.__code__.co_firstlineno
    assert lines == [first + 1, first + 2]


def test_a_sync_in_inference_mode_is_found() -> None:
    def step() -> float:
        with torch.inference_mode():
            return 1.0 if X.sum() else X[0].item()

    assert count(step) == 1


def test_a_sync_in_a_custom_backward_is_found_at_its_line() -> None:
    class Peeking(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            return grad if grad.sum() else grad * 2

    weight = torch.nn.Parameter(X.clone())

    (found,) = syncs_of(lambda: Peeking.apply(weight).sum().backward()).findings

    assert found.location is not None
    assert found.location.function == "backward"


def test_the_standard_library_is_passed_over() -> None:
    def step() -> float:
        return fmean(X)

    found = syncs_of(step).findings

    line = step.__code__.co_firstlineno + 1
    assert {str(f.location) for f in found} == {f"{__file__}:{line} in step"}


def training(optimizer_of: Callable[[Any], Any]) -> Callable[[], None]:
    model = torch.nn.Linear(4, 3)
    optimizer = optimizer_of(model.parameters())

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().sum()
        loss.backward()
        return loss

    def step() -> None:
        optimizer.step(closure)

    step()
    return step


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "Adadelta",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    ],
)
def test_optimisers_read_their_counters_on_the_host(
    name: str, *, foreach: bool
) -> None:
    kind = getattr(torch.optim, name)

    assert count(training(lambda p: kind(p, lr=0.1, foreach=foreach))) == 0


def test_sgd_with_momentum_has_none() -> None:
    step = training(lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True))

    assert count(step) == 0


@pytest.mark.parametrize("foreach", [True, False])
def test_adafactor_reads_two_norms_a_parameter_and_its_counter_is_on_the_host(
    *, foreach: bool
) -> None:
    step = training(lambda p: torch.optim.Adafactor(p, foreach=foreach))

    assert count(step) == 2 * 2


def test_asgd_keeps_its_scalars_on_the_device() -> None:
    """eta, mu and the counter of both parameters."""
    step = training(lambda p: torch.optim.ASGD(p, foreach=False))

    assert count(step) == 3 * 2


def test_lbfgs_reads_real_values() -> None:
    step = training(lambda p: torch.optim.LBFGS(p, max_iter=2))

    assert count(step) > 0


def test_an_average_of_weights_counts_on_the_host() -> None:
    model = torch.nn.Linear(2, 2)
    average = torch.optim.swa_utils.AveragedModel(model)

    assert count(lambda: average.update_parameters(model)) == 0


def test_a_scheduler_that_reads_the_loss_is_a_sync() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(X.clone())])
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)

    assert count(lambda: scheduler.step(X.sum())) == 1


class Cropped(torch.utils.data.Dataset):  # type: ignore[misc]
    """A data set with random decisions of its own, made on the host."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> torch.Tensor:
        return X if X[0].item() else X[:1]


def test_what_a_data_loader_does_is_on_the_host() -> None:
    loader = torch.utils.data.DataLoader(Cropped(), batch_size=2, shuffle=True)

    assert count(lambda: list(loader)) == 0


def test_clipping_that_checks_for_nan_is_one_sync_at_the_users_line() -> None:
    weight = torch.nn.Parameter(X.clone())
    weight.grad = X.clone()

    def step() -> None:
        torch.nn.utils.clip_grad_norm_([weight], 1.0, error_if_nonfinite=True)

    (found,) = syncs_of(step).findings

    line = step.__code__.co_firstlineno + 1
    assert (str(found.location), found.per_step) == (f"{__file__}:{line} in step", 1)


def test_clipping_without_the_check_is_none() -> None:
    weight = torch.nn.Parameter(X.clone())
    weight.grad = X.clone()

    assert count(lambda: torch.nn.utils.clip_grad_norm_([weight], 1.0)) == 0


@pytest.mark.parametrize(
    "step",
    [
        lambda: torch.rand(1).item(),
        lambda: bool(torch.rand([]) < 0.5),
        lambda: int(torch.randperm(5)[0] + 1),
        lambda: torch.tensor([1.0, 2.0]).double().sum().item(),
        lambda: torch.linalg.inv(torch.eye(3)),
    ],
)
def test_a_tensor_that_the_step_makes_without_a_device_is_on_the_host(
    step: Callable[[], object],
) -> None:
    assert count(step) == 0


def on_the_default_device() -> float:
    with torch.device("cpu"):
        return float(torch.rand(1).item())


@pytest.mark.parametrize(
    "step",
    [
        lambda: torch.rand(1, device="cpu").item(),
        lambda: torch.rand(1).to("cpu").item(),
        lambda: torch.rand(1).to(X).item(),
        lambda: torch.rand(1).type_as(X).item(),
        lambda: (torch.rand(3) * X).sum().item(),
        lambda: float(torch.full_like(X, 2.0)[0]),
        on_the_default_device,
    ],
)
def test_a_tensor_that_is_given_a_device_is_on_it(step: Callable[[], object]) -> None:
    assert count(step) == 1


def test_a_default_device_set_for_the_process_is_the_device() -> None:
    torch.set_default_device("cpu")
    try:
        waits = count(lambda: torch.rand(1).item())
    finally:
        torch.set_default_device(None)

    assert waits == 1


def test_the_line_is_known_in_a_file_of_any_name() -> None:
    name = 'Übung 1|"a\\b"%20.py'
    code = compile("def step(x):\n    return x.item()\n", name, "exec")
    scope: dict[str, Any] = {}
    exec(code, scope)  # noqa: S102, a function of a file that does not exist

    (found,) = syncs_of(lambda: scope["step"](X[0])).findings

    assert str(found.location) == f"{name}:2 in step"
