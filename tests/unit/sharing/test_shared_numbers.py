"""What two processes share."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_gpuperf.sharing.processes import shared_numbers


def test_numbers_that_one_process_counts_are_read_by_another(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbers = shared_numbers(path, 2)
    before = [*numbers]

    child = os.fork()
    if not child:
        of_child = shared_numbers(path, 2)
        of_child[0] = 2
        of_child[1] += 64
        os._exit(0)
    os.waitpid(child, 0)
    path.unlink()

    assert before == [0, 0]
    assert [*numbers] == [2, 64]
