"""The examples that `make cuda` runs over stub CUDA, and those that cannot pass there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final


LOOPS: Final = "find_the_bug/test_published_loops.py::test_"

PLACES: Final = (
    f"{LOOPS}each_change_does_one_thing[nothing]",
    f"{LOOPS}each_change_does_one_thing[pinned and non-blocking]",
    f"{LOOPS}the_step_shown_to_a_profiler_repaired",
    "no_hidden_sync/test_create_on_device.py",
    "no_hidden_sync/test_gradscaler.py",
    "no_hidden_sync/test_host_functions.py",
    "no_hidden_sync/test_item.py",
    "no_hidden_sync/test_synchronize.py",
    "profiles",
)
"""Folders, files and tests that fit into some minutes on two cores."""

ALL_FOLDERS: Final = (
    "distributed",
    "find_the_bug",
    "no_hidden_sync",
    "profiles",
    "formats",
    "gate",
    "graphs",
    "host_to_device",
    "inference",
    "kernels",
    "ladder",
    "memory",
    "trainers",
)
"""What ``check.py --examples`` runs, one after the other."""

OF_A_FOLDER: Final[Mapping[str, Mapping[str, str]]] = {
    "distributed": {"GPUPERF_STUB_DEVICES": "2"},
    # The scores of attention have 16 MiB, and the training of two sides is compared.
    "kernels": {"GPUPERF_STUB_MIRROR_MOST": "17M"},
    "ladder": {"GPUPERF_STUB_DEVICES": "2"},
}
"""What a folder needs next to or in place of the settings of all."""

SETTINGS: Final[Mapping[str, str]] = {
    "GPUPERF_STUB_VALUES": "mirror",
    # What is larger costs more to compute on the CPU than its value is worth here; the
    # sentinels above all.
    "GPUPERF_STUB_MIRROR_MOST": "10M",
    # Of steps that take longer there are fewer in a round, and each is computed on the CPU.
    "GPUPERF_STUB_SLOWER": "300",
}

SECONDS: Final = 60
"""The time cap of a test, on that clock."""

CANNOT_PASS: Final[Mapping[str, str]] = {
    "examples/profiles/test_profiler_schedule.py::test_one_step_of_four_is_recorded_with_its_loading": (
        "compares what loading and computing take of the CPU, and on the virtual clock "
        "Python and the operations of the CPU take no time"
    ),
    "examples/host_to_device/test_loader_overlap.py::test_a_second_worker_feeds_a_device_that_waited_for_the_first": (
        "has one worker that is too slow, and on the virtual clock each process has its own "
        "time: a worker takes none of the time of the process that waits for it"
    ),
    "examples/graphs/test_old_gpu.py::test_a_function_is_compiled_on_a_gpu_that_can": (
        "compares the values of a compiled function, and a kernel of Triton's is loaded there "
        "and not run"
    ),
    "examples/kernels/test_cuda_matmul.py::test_a_library_is_quicker_on_the_host": (
        "compares two products on the CPU, which take no time on the virtual clock, so that "
        "no number of steps fills a round: it did not end"
    ),
    "examples/kernels/test_cuda_matmul.py::test_the_kernel_is_right_on_a_gpu": (
        "compares the values of a kernel of its own, and what NVRTC compiles is not run there"
    ),
    "examples/kernels/test_triton_matmul.py::test_a_triton_kernel_gives_the_same_product": (
        "compares the values of a kernel of Triton's, which is loaded there and not run"
    ),
    "examples/kernels/test_layernorm_precision.py::test_the_same_norm_lowers_it_on_a_gpu": (
        "trains an encoder of some GiB, which the mirror computes on the CPU: it was not done "
        "after four minutes"
    ),
    "examples/ladder/test_predicted_gpt2_large.py::test_gpt2_large_on_a_gpu": (
        "trains GPT-2 large in 12 to 34 GiB, and device memory is the machine's own memory there: "
        "one process has 8 GiB"
    ),
    "examples/ladder/test_predicted_gpt2_large.py::test_gpt2_large_on_two_gpus": (
        "has two processes of 6 GiB and steps of 100 s on that clock: the time cap comes first, "
        "and nothing is decided"
    ),
}
"""Why, by node id; all cases of a test that has some."""


INCONCLUSIVE: Final = re.compile(r"^gpuperf: .*?(\d+) inconclusive", re.MULTILINE)


def options(out: Path, places: Sequence[str] = PLACES) -> list[str]:
    """Arguments of pytest; what is written lands below *out*."""
    return [
        *(f"examples/{place}" for place in places),
        "--gpuperf",
        "--gpuperf-device=cuda",
        "--gpuperf-claims",
        f"--gpuperf-seconds={SECONDS}",
        f"--override-ini=gpuperf_baselines={out / 'no-baselines'}",
        *(f"--deselect={test}" for test in CANNOT_PASS),
    ]


def settings_of(folder: str) -> dict[str, str]:
    return {**SETTINGS, **OF_A_FOLDER.get(folder, {})}


def inconclusive(printed: str) -> int:
    """Count the tests that passed because nothing could be decided about them."""
    found = INCONCLUSIVE.search(printed)
    return int(found[1]) if found else 0


CLAIMS: Final = re.compile(
    r"^=+ claims =+\n(?P<rows>claim .*\n(?:[A-Z]\d.*\n)+)", re.MULTILINE
)


HEAD: Final = """\
$ python tests/stub_cuda/check.py --examples OUT
real torch over stub CUDA with right values, no GPU; times are those of a virtual clock
"""


def record(printed: Mapping[str, str]) -> str:
    """Return what is kept of a run of all folders: results, claims, and what is left out."""
    parts = [HEAD]
    for folder, text in printed.items():
        found = CLAIMS.search(text)
        result = text.rstrip().rpartition("\n")[2].rpartition(" in ")[0]
        waiting = inconclusive(text)
        parts.append(
            f"\n== {folder}: {result}{f', {waiting} inconclusive' if waiting else ''}\n"
            + (found["rows"] if found else "")
        )
    parts.append("\ncannot pass there\n")
    parts += [f"{t.partition('::')[2]}: {why}\n" for t, why in CANNOT_PASS.items()]
    return "".join(parts)
