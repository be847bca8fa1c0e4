"""What compiling once more in a second process answers if that process cannot finish."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from builders import a_measurement
from builders import a_result

from pytest_gpuperf.measure.plan import longest_run
from pytest_gpuperf.model.compile_metrics import COMPILE_S
from pytest_gpuperf.model.compile_metrics import COMPILE_WARM_S
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.model.run import CompileTiming
from pytest_gpuperf.runner.request import Project
from pytest_gpuperf.runner.request import RunRequest
from pytest_gpuperf.worker.compile_again import CompileFolders
from pytest_gpuperf.worker.compile_again import compiled_again


TEST = "test_it.py::test_step"
COMPILED = a_measurement({COMPILE_S.name: 40_000.0}, on=DeviceKind.CPU, test=TEST)


def test_where_earlier_tests_took_all_the_time_a_longer_one_is_named(
    tmp_path: Path,
) -> None:
    request = RunRequest(
        tests=(TEST,),
        device=DeviceKind.CPU,
        project=Project(directory=str(tmp_path)),
    )
    folders = CompileFolders(CompileTiming.ALWAYS, str(tmp_path))
    first = folders.completed(COMPILED, ())
    result = a_result(first, test=TEST)

    (joined,) = compiled_again(
        replace(request, names=(TEST,)),
        [result],
        folders,
        spent_s=longest_run(1, request.settings.seconds),
    )

    why = joined.calls[0].measurement.why_none(COMPILE_WARM_S.name)
    assert why == "no time was left to compile it again: raise --gpuperf-seconds"
