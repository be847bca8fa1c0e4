"""A run that compares nothing imports nothing that installs."""

from __future__ import annotations

import subprocess
import sys


def test_a_run_of_pytest_reads_no_package_of_another_side() -> None:
    program = (
        "import sys\n"
        "import pytest_gpuperf.plugin.session\n"
        "print(sorted(n for n in sys.modules if n.startswith('pytest_gpuperf.env')))\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert printed.stdout.strip() == (
        "['pytest_gpuperf.environments', 'pytest_gpuperf.environments.packages']"
    )
