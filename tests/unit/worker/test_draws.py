"""Where the random numbers of each run of a test begin."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_gpuperf.worker import draws


def test_each_run_of_each_test_draws_its_own() -> None:
    seeds = {
        draws.seed_of(test, run, base)
        for test in ("test_a.py::test_a", "test_a.py::test_b")
        for run in range(8)
        for base in (0, 7)
    }

    assert len(seeds) == 32
    assert all(0 <= seed < 2**32 for seed in seeds)


def test_a_run_of_the_next_session_draws_the_same() -> None:
    assert draws.seed_of("test_a.py::test_a", 1, 0) == 0x6F515376


def test_a_rank_draws_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = draws.seed_of("t", 0, 0)

    monkeypatch.setenv("RANK", "0")
    first = draws.seed_of("t", 0, 0)
    monkeypatch.setenv("RANK", "1")

    assert first == alone != draws.seed_of("t", 0, 0)


def test_python_numpy_and_torch_begin_there() -> None:
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")

    def drawn(seed: int) -> list[float]:
        draws.begin(seed)
        return [random.getrandbits(53), numpy.random.rand(), torch.rand(()).item()]

    assert drawn(1) == drawn(1)
    assert not set(drawn(1)) & set(drawn(2))


def test_what_has_not_been_imported_stays_so() -> None:
    program = (
        "import sys\n"
        "from pytest_gpuperf.worker import draws\n"
        "draws.begin(1)\n"
        "print(sorted({'numpy', 'torch'} & set(sys.modules)))\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert printed.stdout == "[]\n"


UNSEEDED = (
    "import os; os.urandom(1)",
    "import random; random.SystemRandom().random()",
    "import random; random.seed()",
    "import random; random.seed(None)",
    "import secrets; secrets.token_bytes(1)",
    "import uuid; uuid.uuid4()",
    "import numpy.random; numpy.random.default_rng().random()",
    "import torch; torch.seed()",
    "exec('import os; os.urandom(1)', {'__name__': 'wandb_of_mine'})",
)

SEEDED = (
    "import random; random.seed(1); random.random()",
    "import tempfile; tempfile.mkdtemp()",
    "import numpy.random; numpy.random.default_rng(1).random()",
    "import torch; torch.manual_seed(1); torch.rand(1)",
    "import torch; torch.autograd.profiler.profile().default_trace_id()",
    # As a loader's workers hand over batches.
    (
        "from multiprocessing.connection import Client, Listener; from threading import Thread\n"
        "listener = Listener(authkey=b'k'); accepts = Thread(target=listener.accept)\n"
        "accepts.start(); Client(listener.address, authkey=b'k'); accepts.join()"
    ),
    # As trackers name a run, and clients a request.
    "exec('import secrets; secrets.choice([1, 2])', {'__name__': 'wandb.sdk.runid'})",
    "exec('import uuid; uuid.uuid4()', {'__name__': 'mlflow.telemetry.client'})",
    "exec('import uuid; uuid.uuid4()', {'__name__': 'huggingface_hub.utils._http'})",
    "exec('import os; os.urandom(16)', {'__name__': 'urllib3.filepost'})",
)


@pytest.mark.slow
def test_what_is_drawn_from_the_operating_system_is_noted() -> None:
    pytest.importorskip("torch")
    program = (
        "import numpy, sys, torch\n"
        "from pytest_gpuperf.worker import draws\n"
        "draws.begin(1)\n"
        "draws.watch()\n"
        "for statement in sys.argv[1:]:\n"
        "    draws._unseeded.clear()\n"
        "    exec(statement)\n"
        "    print(bool(draws.unseeded()))\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program, *UNSEEDED, *SEEDED],
        check=True,
        capture_output=True,
        text=True,
    )

    noted = dict(zip([*UNSEEDED, *SEEDED], printed.stdout.split(), strict=True))
    assert noted == dict.fromkeys(UNSEEDED, "True") | dict.fromkeys(SEEDED, "False")


READ_ON_IMPORT = (
    "import time\nstart = time.perf_counter()",
    "import random, time\nrandom.seed(int(time.time()))",
    "import datetime\nSEED = datetime.datetime.now().microsecond",
    "from time import time\nSEED = time()",
)

NAMED_ALONE = (
    "from time import monotonic_ns as now",
    "import time\ndef cost(): return time.process_time()",
    "from timeit import timeit",
    "def best(benchmark): return benchmark.Timer('1').timeit(1)",
    "def cost(start, end): return start.elapsed_time(end)",
    "import time\ntime.sleep(0)",
    "import logging\nlogging.debug('slow')",
    "# time.time() would be the time of day",
    "at_a_time = 3",
)


@pytest.mark.parametrize("folder", [".", "lib/site-packages"])
def test_a_clock_that_the_user_s_own_module_reads_may_choose_otherwise_next_time(
    tmp_path: Path, folder: str
) -> None:
    place = tmp_path / folder
    place.mkdir(parents=True, exist_ok=True)
    texts = READ_ON_IMPORT + NAMED_ALONE
    names = [f"module_{number}" for number in range(len(texts))]
    for name, text in zip(names, texts, strict=True):
        (place / f"{name}.py").write_text(text)
    program = (
        "import importlib, sys\n"
        "from pytest_gpuperf.worker import draws\n"
        "for name in sys.argv[1:]:\n"
        "    importlib.import_module(name)\n"
        "    print(bool(draws.unseeded()))\n"
        "    del sys.modules[name]\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program, *names],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(place)},
    )

    is_own = folder == "."
    expected = [is_own] * len(READ_ON_IMPORT) + [False] * len(NAMED_ALONE)
    assert printed.stdout.split() == [str(each) for each in expected]


LIBRARY = """
import os, time
from random import SystemRandom
os.urandom(1)

def named_alone(): return time.time()
def drawn(): return SystemRandom().random()
"""

OWN_MODULE = """
import time
from datetime import datetime
from timeit import timeit

def nothing(): ...
def named_alone(): return time.time()
def read(): return time.perf_counter()
def today(): return datetime.now()
def timed(): return timeit(nothing, number=1)
def by_library(): import library; library.named_alone()
def drawn_by_library(): import library; library.drawn()
"""


@pytest.mark.parametrize(
    ("called", "expected"),
    [
        ("nothing", ""),
        ("by_library", ""),
        ("read", "own.py:8 reads a clock"),
        ("today", "own.py:9 reads a clock"),
        ("timed", "own.py:10 reads a clock"),
        ("drawn_by_library", "own.py:12 uses random._urandom"),
    ],
)
def test_what_a_step_reads_and_draws_is_named_and_not_what_its_file_could(
    tmp_path: Path, called: str, expected: str
) -> None:
    place = tmp_path / "lib" / "site-packages"
    place.mkdir(parents=True)
    (place / "library.py").write_text(LIBRARY)
    (tmp_path / "own.py").write_text(OWN_MODULE)
    program = (
        "import sys\n"
        "from pytest_gpuperf.worker import draws\n"
        "draws.watch()\n"
        "sys.path[:0] = sys.argv[2:]\n"
        "import library, own\n"
        "draws.watching_clocks(getattr(own, sys.argv[1]))()\n"
        "own.named_alone()\n"
        "print(draws.unseeded(), sys.getprofile() or '')\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program, called, str(place), str(tmp_path)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )

    assert printed.stdout.strip() == expected


def test_modules_that_are_imported_when_they_are_used_stay_so() -> None:
    program = (
        "import importlib.util, sys\n"
        "from pytest_gpuperf.worker import draws\n"
        "spec = importlib.util.find_spec('wave')\n"
        "spec.loader = importlib.util.LazyLoader(spec.loader)\n"
        "sys.modules['wave'] = module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "sys.modules['odd'] = type('Odd', (), {'__getattr__': lambda *_: 1})()\n"
        "sys.modules['none'] = None\n"
        "print(bool(draws.unseeded()), type(module).__name__)\n"
    )

    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert printed.stdout.split() == ["False", "_LazyModule"]
