"""``gpuperf audit``: scripts as people write them, whole outputs, and what goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main, script_process
from pytest_gpuperf.cli.script import Program, _script_code, load
from pytest_gpuperf.cli.script_process import ScriptRequest
from pytest_gpuperf.errors import UsageError


SCRIPTS = Path(__file__).parents[2] / "scripts"
WAITS = re.compile(r"# waits: (?P<count>\d+) (?P<op>\S+)(?: (?P<phase>\w+))?$")

NONE_COPIED = "copies: 0 (0 B) to the GPU, 0 (0 B) to the CPU"
ONE = "gpuperf: 1 sync on 1 line"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _torch() -> None:
    pytest.importorskip("torch")


with_torch = pytest.mark.usefixtures("_torch")


def write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file.absolute()


def expected_waits(script: Path) -> set[tuple[Any, ...]]:
    """What the comments of a script say: line, operation, phase, count."""
    lines = script.read_text(encoding="utf-8").splitlines()
    marks = ((number, WAITS.search(line)) for number, line in enumerate(lines, 1))
    return {
        (number, mark["op"], mark["phase"] or "forward", int(mark["count"]))
        for number, mark in marks
        if mark
    }


def found_waits(document: dict[str, Any], script: Path) -> Iterator[tuple[Any, ...]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for finding in document["findings"]:
        assert finding["file"] == str(script)
        assert finding["kind"] == "sync"
        op = finding["op"].removeprefix("aten::")
        # Lines of torch that it led to are findings of their own.
        counts[finding["line"], op, finding["phase"]] += finding["count"]
    yield from ((*wait, count) for wait, count in counts.items())


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize(
    "command",
    [
        ["train_gpt.py", "--dtype=float16"],
        ["train_gpt.py", "--dtype=bfloat16"],
        ["train_mnist.py"],
        ["train_resnet.py"],
    ],
    ids=" ".join,
)
def test_a_training_script_waits_on_the_lines_that_say_so_and_on_no_other(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    name, *arguments = command
    script = SCRIPTS / name

    code = main(["audit", str(script), "--json", "--", *arguments])

    document = json.loads(capfd.readouterr().out)
    found = sorted(found_waits(document, script))
    assert code == 0
    assert found == sorted(expected_waits(script))
    assert document["not_checked"] == []
    assert document["totals"]["syncs"] == sum(count for *_, count in found)


PROGRAM = """\
import os, pickle, sys
from pathlib import Path

import neighbour

class Word(str):
    pass

main = sys.modules["__main__"]
print(sys.argv, sys.path[0], neighbour.__file__, __name__, __file__, __package__)
print(main.__dict__ is globals(), type(pickle.loads(pickle.dumps(Word("w")))) is Word)
print(type(__loader__).__name__, __spec__ and __spec__.name, __doc__, os.getcwd())
print(sorted(set(globals()) - {"__annotations__"}), sys.flags, "annotations" in globals())
"""


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize("command", [["sub/train.py"], ["-m", "sub"]], ids=" ".join)
def test_a_program_is_run_as_python_runs_it(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    write("neighbour.py", "")
    write("sub/neighbour.py", "")
    write("sub/train.py", PROGRAM)
    write("sub/__main__.py", PROGRAM)
    write("torch.py", "raise ValueError('a file of the working directory')")
    environment = dict(os.environ) | {"PYTHONSAFEPATH": ""}
    python = subprocess.run(
        [sys.executable, *command, "--steps", "3", "--", "a b"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    code = main(["audit", *command, "--", "--steps", "3", "--", "a b"])

    end = "gpuperf: nothing ran on the GPU, so nothing was judged\n"
    assert code == 0
    assert capfd.readouterr() == (python.stdout + end, "")


FAILING = """\
import atexit
import sys
import threading
import torch

atexit.register(print, "a farewell")
weights = torch.ones(2, 2, device="cuda")
print(f"total {weights.sum().item()}")
def multiply():
    weights @ torch.ones(3, device="cuda")

loader = threading.Thread(target=multiply, name="loader")
loader.start()
loader.join()
print("joined", file=sys.stderr)
try:
    multiply()
except RuntimeError as error:
    raise ValueError("cannot go on") from error
"""


def without_marks(traceback: str) -> list[str]:
    """Lines of a traceback, but for empty ones and marks below code."""
    return [line for line in traceback.splitlines() if not set(line) <= set(" ^~")]


@pytest.mark.slow
@with_torch
def test_a_failure_is_the_scripts_own_and_findings_are_printed_all_the_same(
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = write("train.py", FAILING)

    code = main(["audit", "train.py"])

    output, errors = capfd.readouterr()
    in_thread, _, own = errors.partition("joined\n")
    assert code == 1
    first, second, answer, place, *_ = output.splitlines()
    assert (first, second) == ("total 4.0", "a farewell")
    assert place == "  --> train.py:8 in <module>"
    assert answer == ONE
    assert in_thread.startswith("Exception in thread loader:\nTraceback (")
    assert without_marks(in_thread)[-3:] == [
        f'  File "{file}", line 10, in multiply',
        '    weights @ torch.ones(3, device="cuda")',
        "RuntimeError: size mismatch, got input (2), mat (2x2), vec (3)",
    ]
    assert without_marks(own) == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 17, in <module>',
        "    multiply()",
        f'  File "{file}", line 10, in multiply',
        '    weights @ torch.ones(3, device="cuda")',
        "RuntimeError: size mismatch, got input (2), mat (2x2), vec (3)",
        "The above exception was the direct cause of the following exception:",
        "Traceback (most recent call last):",
        f'  File "{file}", line 19, in <module>',
        '    raise ValueError("cannot go on") from error',
        "ValueError: cannot go on",
    ]


LEAVING = """\
import atexit
import os
import sys
import threading
import torch

value = torch.ones((), device="cuda")
if os.fork() == 0:
    value.item()
    sys.exit(0)
os.wait()
atexit.register(lambda: print("late", value.item()))
threading.Timer(0, lambda: print("thread", value.item())).start()
os.system("echo from a shell")
print("main", value.item())
sys.exit(3)
"""


@with_torch
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_json_is_all_that_is_printed_and_the_scripts_exit_status_is_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write("train.py", LEAVING)

    options = ["--json", "--html=out/page.html", "--max-syncs=0"]
    code = main(["audit", "train.py", *options])

    assert "<h1>train.py: 3 syncs on 3 lines" in Path("out/page.html").read_text(
        "utf-8"
    )
    output, errors = capfd.readouterr()
    found = json.loads(output)["findings"]
    assert code == 3
    assert sorted(f["line"] for f in found) == [12, 13, 15]
    assert [f["count"] for f in found] == [1, 1, 1]
    assert sorted(errors.splitlines()) == [
        "from a shell",
        (
            "gpuperf: 1 operation of forked processes went unchecked; to check it, call it "
            "in the script's own process"
        ),
        "gpuperf: 3 syncs: more than --max-syncs=0",
        "late 1.0",
        "main 1.0",
        "thread 1.0",
    ]


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize(
    ("device", "most", "code", "errors"),
    [
        ("cuda", 1, 1, "gpuperf: 2 syncs: more than --max-syncs=1\n"),
        (
            "cpu",
            0,
            1,
            "gpuperf: nothing ran on the GPU, so --max-syncs=0 could not be judged\n",
        ),
    ],
)
def test_a_script_fails_over_the_limit_or_where_nothing_was_judged(
    device: str, most: int, code: int, errors: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write("train.py", f"import torch\ntorch.ones(2, device={device!r}).tolist()\n" * 2)

    assert main(["audit", "train.py", f"--max-syncs={most}"]) == code
    assert capfd.readouterr().err == errors


@with_torch
def test_scripts_are_audited_in_turn_and_the_worst_exit_status_is_kept(
    capfd: pytest.CaptureFixture[str],
) -> None:
    waiting = (
        "import sys, torch\nprint(sys.argv)\ntorch.ones(2, device='cuda').tolist()\n"
    )
    write("one.py", waiting)
    write("two.py", waiting.replace(".tolist()", ""))

    code = main(["audit", "--max-syncs=0", "one.py", "two.py", "one.py", "--", "--x"])

    shown = capfd.readouterr()
    heads = [line for line in shown.out.splitlines() if line.startswith(("==", "["))]
    assert code == 1
    assert heads == ["== one.py", "['one.py', '--x']", "== two.py", "['two.py', '--x']"]
    assert shown.err == "gpuperf: 1 sync: more than --max-syncs=0\n"


IMPORTS = """\
import sys
import torch

print(sorted({"pytest", "sympy", "torch._dynamo"} & {*sys.modules}))
x = torch.ones(1, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x])
for _ in range(2):
    (2 * x).backward()
    optimizer.step()
    x.item()
optimizer.zero_grad()
print("torch._dynamo" in sys.modules, torch.cuda.is_available())
"""


@pytest.mark.slow
@with_torch
def test_an_audit_imports_less_of_torch_than_the_script_does_by_itself(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write("train.py", IMPORTS)

    assert main(["audit", "train.py"]) == 0

    output = capfd.readouterr().out.splitlines()
    assert output[:3] == [
        "[]",
        "False True",
        "gpuperf: 1 sync per step on 1 line, 2 steps",
    ]


WITHOUT_NUMPY = """\
import warnings
import torch

warnings.warn("Failed to initialize NumPy: No module named 'numpy' (Triggered ...)")
warnings.warn("NumPy is old")
torch.ones(1, device="cuda")
"""


@with_torch
def test_what_torch_warns_of_at_its_import_without_numpy_is_not_shown(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write("train.py", WITHOUT_NUMPY)

    assert main(["audit", "train.py"]) == 0

    errors = capfd.readouterr().err
    assert "Failed to initialize" not in errors
    assert "NumPy is old" in errors


COMPILER = """\
import torch

x = torch.ones(1, device="cuda", requires_grad=True)
optimizers = [kind([x]) for kind in (torch.optim.SGD, torch.optim.AdamW)]

def step():
    (2 * x).backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()

step()
import torch._dynamo

called = []
torch._dynamo.graph_break = lambda: called.append("a graph breaks")
step()
print(len(called), optimizers[0].zero_grad.__wrapped__.__dict__.get("__dynamo_disable"))
"""


@with_torch
def test_optimizers_know_of_dynamo_as_soon_as_the_script_loads_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write("train.py", COMPILER)

    assert main(["audit", "train.py"]) == 0

    assert capfd.readouterr().out.splitlines()[0].startswith("4 ")


RECURRENT = """\
import sys
import torch

layer = torch.nn.LSTM(4, 4).cuda()
output, _ = layer(torch.ones(3, 2, 4).to("cuda"))
output.sum().backward()
print(sorted({"sympy", "torch.distributed.tensor", "torch._dynamo"} & {*sys.modules}))
"""


@pytest.mark.slow
@with_torch
def test_a_step_on_the_simulated_gpu_imports_no_more_of_torch_than_on_the_cpu(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write("train.py", RECURRENT)

    assert main(["audit", "train.py"]) == 0

    assert capfd.readouterr().out.splitlines()[0] == "[]"


INTERRUPTED = """\
import os
import signal
import torch

torch.ones((), device="cuda").item()
signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill({process}, signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
"""


@with_torch
def test_ctrl_c_ends_the_script_and_not_the_report(
    capfd: pytest.CaptureFixture[str],
) -> None:
    file = write("train.py", INTERRUPTED.format(process=os.getpid()))

    code = main(["audit", "train.py"])

    output, errors = capfd.readouterr()
    assert code == 130
    answer, place, *_, note, copies = output.splitlines()
    assert place == "  --> train.py:5 in <module>"
    assert (answer, copies) == (ONE, NONE_COPIED)
    assert note == "note: interrupted after 0 steps: a partial result"
    assert errors.splitlines() == [
        "Traceback (most recent call last):",
        f'  File "{file}", line 8, in <module>',
        "    os.kill(os.getpid(), signal.SIGINT)",
        "KeyboardInterrupt",
    ]


ENDS = ((0, 0), (7, 7), (-9, 137))
LEFT_NONE = (
    "ended with exit status {} in a way that left no findings, as os._exit and a killed "
    "process do; end it as a script ends"
)


@pytest.mark.parametrize(
    ("returncode", "ended", "code"),
    [
        *((number, LEFT_NONE.format(status), status or 1) for number, status in ENDS),
        (130, "was interrupted before it left findings", 130),
        (-2, "was interrupted before it left findings", 130),
    ],
)
def test_a_process_that_leaves_no_findings_is_no_pass(
    returncode: int,
    ended: str,
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write("train.py", "")
    monkeypatch.setattr(script_process, "spawn", lambda *_, **__: (returncode, None))

    assert main(["audit", "train.py"]) == code
    assert capsys.readouterr() == ("", f"gpuperf: train.py {ended}\n")


READING = "def read(x):\n    return x.item()\n"
CALLING = """\
import torch
from elsewhere import read
read(torch.ones((), device="cuda"))
"""


@with_torch
def test_lines_below_the_root_are_named_next_to_the_innermost(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"), prepend=os.pathsep)
    write("lib/elsewhere.py", READING)
    write("train/run.py", CALLING)

    code = main(["audit", "--root=train", "--max-syncs=1", "train/run.py"])

    assert code == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:2] == [ONE, "  --> train/run.py:3 in <module>"]
    assert "  inside   lib/elsewhere.py:2 in read: return x.item()" in lines


@pytest.mark.slow
@with_torch
def test_the_line_in_the_checkout_comes_first_wherever_the_script_lies(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    write(".git/HEAD", "")
    engine = write("elsewhere.py", READING)
    write("projects/one/train.py", CALLING)
    monkeypatch.chdir(tmp_path / "projects/one")

    code = main(["audit", "train.py"])

    assert code == 0
    assert capfd.readouterr().out.splitlines()[:2] == [ONE, f"  --> {engine}:2 in read"]


@pytest.mark.parametrize(
    ("arguments", "root"),
    [
        (["project/train.py"], "."),
        (["outside/train.py"], "outside"),
        (["outside/train.py", "--root=project"], "project"),
        (["-m", "train"], "."),
    ],
)
def test_the_root_is_the_working_directory_or_the_folder_of_a_script_outside(
    arguments: list[str], root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    write("outside/train.py", "")
    write("here/project/train.py", "")
    monkeypatch.chdir(here)
    (here / "outside").symlink_to(tmp_path / "outside")
    asked: list[str] = []

    def start(_: str, request: ScriptRequest, **__: object) -> tuple[int, None]:
        asked.append(request.root)
        return 0, None

    monkeypatch.setattr(script_process, "spawn", start)
    main(["audit", *arguments])

    assert asked == [str((here / root).resolve())]


EITHER = "expected either a script or -m MODULE; see `gpuperf audit --help` [GP102]"
NO_FILE = (
    "none.py: cannot be read (No such file or directory); expected a Python script "
    "[GP110]"
)
NO_PYTHON = (
    "wrong.py:2: cannot be compiled (invalid syntax); expected a Python script [GP110]"
)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", EITHER),
        ("train.py -m train", EITHER),
        ("-m train train.py again.py", EITHER),
        ("none.py", NO_FILE),
        ("train.py none.py", NO_FILE),
        ("wrong.py", NO_PYTHON),
        ("train.py wrong.py --json", NO_PYTHON),
        ("folder", "folder: is a folder; expected a Python script [GP110]"),
        (
            "train.ipynb",
            (
                "train.ipynb: is a notebook; `jupyter nbconvert --to script train.ipynb` "
                "makes a script [GP110]"
            ),
        ),
        (
            "train.py --epochs=3",
            (
                "unexpected --epochs=3: arguments of the script go after `--`; see "
                "`gpuperf audit --help` [GP102]"
            ),
        ),
        *(
            (
                f"train.py --max-syncs={most}",
                (
                    f"argument --max-syncs: expected a whole number from 0 on, found {most!r}; "
                    "see `gpuperf audit --help` [GP102]"
                ),
            )
            for most in ("-1", "few")
        ),
        (
            "train.py --max-syncs-per-step=nan",
            (
                "argument --max-syncs-per-step: expected a number from 0 on, found 'nan'; "
                "see `gpuperf audit --help` [GP102]"
            ),
        ),
        *(
            (
                f"train.py again.py {option}",
                (
                    f"{option.partition('=')[0]} describes one script, found 2 scripts; "
                    "expected one; see `gpuperf audit --help` [GP102]"
                ),
            )
            for option in ("--json", "--html=page.html")
        ),
        *(
            (
                f"{option} train.py",
                (
                    f"{option} is about edits: add --diff or --fix; "
                    "see `gpuperf audit --help` [GP102]"
                ),
            )
            for option in ("--unsafe", "--allow-dirty", "--verbose")
        ),
        (
            "train.py --root=nowhere",
            "--root=nowhere: there is no such folder; expected that of your code [GP112]",
        ),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    typed: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write("train.py", "")
    write("again.py", "")
    write("wrong.py", "import torch\nfor in range(3):\n")
    write("folder/__main__.py", "")

    assert main(["audit", *typed.split()]) == 4
    assert capfd.readouterr() == ("", f"gpuperf: {message}\n")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"# caf\xe9\nprint(1)\n", id="in a comment"),
        pytest.param(b'"caf\xe9"\n', id="in a docstring"),
        pytest.param(b"caf\xe9 = 1\n", id="in a name"),
    ],
)
def test_a_script_in_another_encoding_is_refused_as_python_does(
    tmp_path: Path, text: bytes
) -> None:
    script = tmp_path / "train.py"
    script.write_bytes(b"import torch\n" + text)

    with pytest.raises(UsageError) as refused:
        _script_code(str(script))

    assert str(refused.value) == (
        f"{script}:2: cannot be compiled (Non-UTF-8 code starting with '\\xe9'); "
        "expected a Python script [GP110]"
    )
    script.write_bytes(b"# coding: latin-1\n" + text)
    assert _script_code(str(script))


@pytest.mark.parametrize("module", ["none", "package", "package.none.inner", "sys", ""])
def test_a_module_that_cannot_be_run_is_one_sentence(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "package", raising=False)
    write("package/__init__.py", "")
    write("wrong.py", "print(\n")

    with pytest.raises(UsageError) as raised:
        load(Program(name=module or "wrong", is_module=True, arguments=()))

    assert raised.value.text == (
        f"-m {module}: found no such module; expected one that `python -m {module}` runs"
        if module
        else f"{tmp_path}/wrong.py:1: cannot be compiled ('(' was never closed); "
        "expected a Python script"
    )


def test_a_package_that_fails_to_import_says_so_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write("broken/__init__.py", "import something_that_is_not_installed")
    write("broken/train.py", "")

    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_installed"):
        load(Program(name="broken.train", is_module=True, arguments=()))


LOOP = """\
import torch
model = torch.nn.Linear(4, 4)
for _ in range(3):
    torch.ones(1, device="cuda").item()
model.to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.ones(4, 4, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


@with_torch
def test_what_each_step_does_stands_before_what_was_done_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(LOOP, "utf-8")

    assert main(["audit", "train.py"]) == 0

    lines = capfd.readouterr().out.splitlines()
    places = [line for line in lines if "train.py:" in line or line.endswith(":")]
    assert places == [
        "each step:",
        "  --> train.py:12 in <module>",
        "once, before the first step was over:",
        "  --> train.py:4 in <module>",
        "  --> train.py:5 in <module>",
    ]
    assert lines[0] == "gpuperf: 1 sync per step on 1 line, 2 steps; 5 syncs once"
    assert lines[-2:] == [
        "next: gpuperf audit --max-syncs-per-step=1 train.py",
        "      exits with 1 when a sync is added to each step; with --diff it tries fixes",
    ]


@pytest.mark.slow
@with_torch
@pytest.mark.parametrize(
    ("script", "rate", "code", "errors"),
    [
        (LOOP, "1", 0, ""),
        (
            LOOP,
            "0.5",
            1,
            "gpuperf: 1 sync per step: more than --max-syncs-per-step=0.5\n",
        ),
        (
            "import torch\ntorch.ones(2, device='cuda').tolist()\n",
            "9",
            1,
            (
                "gpuperf: --max-syncs-per-step=9 needs 2 steps or more to tell what "
                "repeats, and found 0: let the script run longer\n"
            ),
        ),
    ],
)
def test_a_limit_per_step_leaves_out_what_happens_once(
    script: str, rate: str, code: int, errors: str, capfd: pytest.CaptureFixture[str]
) -> None:
    write("train.py", script)

    assert main(["audit", "train.py", f"--max-syncs-per-step={rate}"]) == code
    assert capfd.readouterr().err == errors
