"""What the examples share: the device, marks, and the table of claims.

``pytest examples --gpuperf --gpuperf-claims`` ends with a line for each claim that was
measured. A test says with ``@pytest.mark.claim("M1")`` which one it shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from claims_table import SHOWN, ClaimsTable, remember_claims

import pytest_gpuperf


MARKS = (
    "claim(id, before=None, after=None, gate=None): shows this row of claims.toml, or these numbers of it, by this gate",
    "needs_capability(major, minor): skipped on a GPU that is older than that",
    "slow: takes more than 10 seconds; runs only where -m names it",
)

COUNTS_ALONE = pytest_gpuperf.tolerance(ms="99%", detect="1000%")
"""On a busy CPU these examples show counts and bytes: a comparison of times soon ends."""


def pytest_addoption(parser):
    parser.getgroup("examples").addoption(
        "--gpuperf-claims",
        action="store_true",
        help="end with what was measured of each claim (needs --gpuperf)",
    )


def pytest_configure(config):
    torch.set_num_threads(1)  # two that share a busy core spin while they wait
    for mark in MARKS:
        config.addinivalue_line("markers", mark)
    # on one core torch advises against two workers: these wait for a disk
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create")
    # where there is a GPU torch's compiler imports parts that torch itself has deprecated
    config.addinivalue_line("filterwarnings", "ignore:.torch.jit:DeprecationWarning")
    # a measuring process is told of the option below and of no -m
    asked = "slow" in (config.getoption("-m") or "")
    config.option.examples_slow = (
        getattr(config.option, "examples_slow", False) or asked
    )
    if config.getoption("--gpuperf-claims") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ClaimsTable(config), "examples-claims")


def pytest_collection_modifyitems(config, items):
    """Leave slow tests out, visibly."""
    for item in items:
        if item.get_closest_marker("slow") and not config.option.examples_slow:
            item.add_marker(pytest.mark.skip(reason="slow: select it with -m slow"))
        if not torch.cuda.is_available():
            item.add_marker(COUNTS_ALONE)


def pytest_runtest_setup(item):
    """Leave out, visibly, what the compiler cannot do on an old GPU."""
    needed = item.get_closest_marker("needs_capability")
    if needed is None or not torch.cuda.is_available():
        return
    found = torch.cuda.get_device_capability()
    if found < needed.args:
        asked, has = (".".join(map(str, version)) for version in (needed.args, found))
        pytest.skip(f"needs compute capability {asked}: this GPU has {has}")


pytest_runtest_makereport = remember_claims


@pytest.fixture
def gpu(gpuperf):
    """Name the device of CUDA code, real or simulated; skip where host and device are one."""
    if gpuperf.device != "cuda":
        pytest.skip("host and device are one here: nothing to copy, nobody to wait for")
    return gpuperf.device


@pytest.fixture
def real_gpu(gpu):
    """Name the device if there is one: a step this large is computed on a GPU alone."""
    if is_simulated(gpu):
        pytest.skip("this size is computed on a GPU alone")
    return gpu


@pytest.fixture
def clock(gpuperf):
    """Name the device where times can be judged, the CPU too."""
    if is_simulated(gpuperf.device):
        pytest.skip("the simulated GPU has no clock")
    return gpuperf.device


@pytest.fixture
def counts_kernels(gpuperf):
    """Say whether launches are counted, as on a GPU, and not operations."""
    return gpuperf.device == "cuda" and not is_simulated(gpuperf.device)


@pytest.fixture
def bfloat16(clock):
    """Skip where a CPU would multiply it no faster than float32."""
    asked = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    if clock == "cpu" and not any(getattr(torch.cpu, name, bool)() for name in asked):
        pytest.skip("this CPU multiplies no bfloat16: no avx512_bf16, no amx")
    return torch.bfloat16


def is_simulated(device):
    return device == "cuda" and torch.cuda.get_device_name() == "simulated GPU"


@pytest.fixture
def predicted():
    """Predict what a script needs at its peak, allocated and reserved, in MiB.

    It runs without values: what is this large, nobody computes on a CPU.
    """
    command = (
        *(sys.executable, "-m", "pytest_gpuperf", "memory"),
        *("--json", "--no-values", "--no-savings", "--steps=2"),
    )

    def needed(script, *options):
        asked = [*command, str(Path(__file__).parent / script), "--", *options]
        answer = json.loads(subprocess.check_output(asked))  # noqa: S603, our own
        return answer["allocated_bytes"] / 2**20, answer["reserved_bytes"] / 2**20

    return needed


@pytest.fixture
def shown(record_property):
    """Tell the table of claims what a test counted that the plugin does not measure."""

    def tell(before, after, what, column=SHOWN):
        record_property(column, f"{before:g} -> {after:g} {what}")

    return tell
