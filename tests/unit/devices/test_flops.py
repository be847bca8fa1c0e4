"""Operations of a step by precision, on a real step of torch."""

from __future__ import annotations

import pytest


torch = pytest.importorskip("torch")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from pytest_gpuperf.devices.cuda.flops import flops_of_step  # noqa: E402


IEEE = {"matmul": False, "convolution": False}
TF32 = {"matmul": True, "convolution": False}


@pytest.mark.parametrize(
    ("dtype", "tf32", "name"),
    [
        (torch.bfloat16, IEEE, "bf16"),
        (torch.float16, IEEE, "fp16"),
        (torch.float32, IEEE, "fp32"),
        (torch.float32, TF32, "tf32"),
        (torch.float64, TF32, "float64"),
    ],
)
def test_a_product_counts_in_what_computes_it(
    dtype: torch.dtype, tf32: dict[str, bool], name: str
) -> None:
    left, right = torch.ones(4, 8, dtype=dtype), torch.ones(8, 16, dtype=dtype)

    assert flops_of_step(lambda: left @ right, (), tf32=tf32) == {name: 2 * 4 * 8 * 16}


def test_a_convolution_follows_a_switch_of_its_own() -> None:
    image, kernel = torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3)

    found = flops_of_step(
        lambda: torch.nn.functional.conv2d(image, kernel), (), tf32=TF32
    )

    assert found == {"fp32": 2 * 4 * 6 * 6 * 3 * 3 * 3}


def test_a_training_step_has_as_many_as_torchs_own_counter_counts() -> None:
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(144, 5)
    )
    batch = torch.rand(2, 3, 8, 8)

    def step() -> None:
        query = model(batch).reshape(2, 1, 1, 5)
        torch.nn.functional.scaled_dot_product_attention(query, query, query)
        model(batch).sum().backward()

    with FlopCounterMode(display=False) as counter:
        step()

    assert sum(flops_of_step(step, (), tf32=IEEE).values()) == counter.get_total_flops()


def test_a_compiled_step_stays_compiled() -> None:
    calls = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        calls.append(graph)
        return graph.forward

    step = torch.compile(lambda x: x @ x, backend=backend)
    step(torch.ones(4, 4))
    found = flops_of_step(step, (torch.ones(4, 4),), tf32=IEEE)

    assert found == {"fp32": 2 * 4 * 4 * 4}
    assert len(calls) == 1
