"""``gpuperf audit train.ipynb``: cells as one program, magics, lines, and bad notebooks."""

from __future__ import annotations

import json
import linecache
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_gpuperf.cli import main
from pytest_gpuperf.cli.notebook import codes_of
from pytest_gpuperf.cli.notebook import in_file
from pytest_gpuperf.cli.notebook import note_on_magics
from pytest_gpuperf.cli.notebook import notebook_of
from pytest_gpuperf.cli.notebook import without_magics
from pytest_gpuperf.cli.script import Program
from pytest_gpuperf.cli.script import file_place
from pytest_gpuperf.cli.script import load
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.finding import Location


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _torch() -> None:
    pytest.importorskip("torch")


with_torch = pytest.mark.usefixtures("_torch")


def document(*sources: Any, **more: Any) -> dict[str, Any]:
    cells = [{"cell_type": "code", "outputs": [], "source": s} for s in sources]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more}


def text_of(content: Mapping[str, Any]) -> bytes:
    """As Jupyter writes it: one line of the file for each line of a cell."""
    return json.dumps(content, indent=1, ensure_ascii=False).encode()


def lines_of(source: str) -> list[str]:
    return source.splitlines(keepends=True)


# What is read.


def test_code_cells_are_numbered_from_1_on_without_the_others() -> None:
    content = document("a = 1", ["b = 2\n", "c = 3"], "")
    content["cells"].insert(1, {"cell_type": "markdown", "source": "# Title"})

    notebook = notebook_of("train.ipynb", text_of(content))

    assert [(cell.number, cell.text) for cell in notebook.cells] == [
        (1, "a = 1"),
        (2, "b = 2\nc = 3"),
        (3, ""),
    ]


@pytest.mark.parametrize(
    "source",
    ["a = 1\nb = 2\n", ["a = 1\n", "b = 2\n"], ["a =", " 1\n", "", "b = 2\n"]],
    ids=["a text", "a list of lines", "a list of parts"],
)
def test_each_line_of_a_cell_is_found_in_the_file(source: str | list[str]) -> None:
    # The output has the same line as the source, and comes first.
    content = document("", source)
    content["cells"][1]["outputs"] = [{"output_type": "stream", "text": ["b = 2\n"]}]
    data = text_of(content)
    notebook = notebook_of("train.ipynb", data)
    name = notebook.code_name(notebook.cells[1])

    found = [
        in_file(notebook, Location(file=name, line=line, function="f"))
        for line in (1, 2)
    ]

    assert {each.file for each in found} == {str(Path("train.ipynb").absolute())}
    shown = [data.decode().splitlines()[each.line - 1] for each in found]
    assert "a =" in shown[0]
    assert "b = 2" in shown[1]
    assert len({each.line for each in found}) == (1 if isinstance(source, str) else 2)
    stripped = [line.strip() for line in data.decode().splitlines()]
    assert stripped.index('"b = 2\\n"') + 1 < found[0].line


def test_lines_of_files_stay_as_they_are() -> None:
    notebook = notebook_of("train.ipynb", text_of(document("a = 1")))
    place = Location(file="/home/me/models.py", line=3, function="f")

    assert in_file(notebook, place) == place
    program = Program(name="train.py", is_module=False, arguments=())
    assert file_place(program)(place) == place


def test_a_line_of_a_cell_is_named_for_people() -> None:
    place = Location(file="train.ipynb cell 3", line=2, function="<module>")

    assert str(place) == "train.ipynb cell 3, line 2 in <module>"


# What IPython alone understands.


@pytest.mark.parametrize(
    ("text", "source", "magics"),
    [
        ("a = 1\n%matplotlib inline\nb = 2", "a = 1\npass\nb = 2", "%matplotlib inline"),
        ("if a:\n    !nvidia-smi | grep 0x\n", "if a:\n    pass\n", "!nvidia-smi | grep 0x"),
        ("torch.nn.Linear?", "pass", "torch.nn.Linear?"),
        ("?torch", "pass", "?torch"),
        ("files = !ls 'a", "pass", "files = !ls 'a"),
        ("!pip install \\\n  torch\na", "pass\n\na", "!pip install \\"),
        ("%%time\na = 1", "\na = 1", None),
        ("\n%%capture out\n%cd ..\na", "\n\npass\na", "%cd .."),
        ("%%bash\nls\n", "\n\n", "%%bash"),
        ("%time a = f()", "a = f()", None),
        ("  %timeit -n 10 -r2 f()", "  f()", None),
        ("a = (b\n  % c)\n'''\n%d\n!\n'''\nd = b'?'", None, None),
        ("a = '''\n%d\n'''\n%cd ..", "a = '''\n%d\n'''\npass", "%cd .."),
        ("a = (1\n", None, None),
        ("print('what?", None, None),
        ("model.layers[0]??", "pass", "model.layers[0]??"),
        ("a = 1 +\n% b", None, None),
        ("a\0", None, None),
        ("", None, None),
    ],
)  # fmt: skip
def test_only_what_python_cannot_read_is_a_magic(
    text: str, source: str | None, magics: str | None
) -> None:
    expected = (text if source is None else source, (magics,) if magics else ())

    assert without_magics(text) == expected


@pytest.mark.parametrize(
    ("sources", "note"),
    [
        (["a = 1", "%%time\na"], ""),
        (["!ls"], "1 magic was not run: !ls (cell 1)"),
        (
            ["%a", "!b\n%c", "%%html\n<b>", "%e"],
            "5 magics were not run: %a (cell 1), !b (cell 2), %c (cell 2), 2 more",
        ),
    ],
)
def test_magics_are_counted_and_some_named(sources: list[str], note: str) -> None:
    notebook = notebook_of("train.ipynb", text_of(document(*sources)))

    assert note_on_magics(notebook) == note


# How it is run.


def test_what_tracebacks_read_is_the_line_as_it_was_typed() -> None:
    notebook = notebook_of("train.ipynb", text_of(document("a = 1", "%cd ..\nb = 2")))

    first, second = codes_of(notebook)

    assert first.co_filename == f"{Path('train.ipynb').absolute()} cell 1"
    linecache.checkcache()
    assert linecache.getline(second.co_filename, 1) == "%cd ..\n"
    assert linecache.getline(second.co_filename, 2) == "b = 2\n"


def test_a_future_of_one_cell_is_that_of_the_next() -> None:
    notebook = notebook_of(
        "train.ipynb",
        text_of(document("from __future__ import annotations", "def f(a: b): pass")),
    )
    names: dict[str, Any] = {}
    for code in codes_of(notebook):
        exec(code, names)  # noqa: S102, the test's own cells

    assert names["f"].__annotations__ == {"a": "b"}


def test_it_begins_in_its_own_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    folder = Path("sub").absolute()
    folder.mkdir()
    name = str(Path("sub/train.ipynb"))
    Path(name).write_bytes(text_of(document("a = 1")))

    load(Program(name=name, is_module=False, arguments=("3",)))

    assert (sys.path[0], sys.argv, Path.cwd()) == (str(folder), [name, "3"], folder)


SET_UP = """\
%matplotlib inline
import torch
from neighbour import lr

model = torch.nn.Linear(64, 8, device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
print(__name__, "__file__" in globals(), get_ipython())
"""
TRAINING = """\
%%time
for step in range(3):
    loss = model(torch.ones(32, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def write_training(*more: str) -> None:
    Path("sub").mkdir()
    Path("sub/neighbour.py").write_text("lr = 0.1\n", encoding="utf-8")
    sources = [lines_of(source) for source in (SET_UP, TRAINING, *more)]
    Path("sub/train.ipynb").write_bytes(text_of(document(*sources)))


@with_torch
def test_an_audit_shows_cell_and_line_and_what_was_not_run(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_training("display(1 + 1)")

    code = main(["audit", "sub/train.ipynb", "--sarif=audit.sarif"])

    out, err = capfd.readouterr()
    assert (code, err) == (0, "")
    assert out == (
        "__main__ False None\n"
        "2\n"
        "gpuperf: 1 wait per step on 1 line, 3 steps\n"
        "each step:\n"
        "  --> sub/train.ipynb cell 2, line 6 in <module>\n"
        "    6 | loss.item()\n"
        "      |     ^^^^^^^ 1 per step: the CPU reads one element\n"
        "  fix      add it up on the GPU with .detach(), read it every N steps\n"
        "note: 1 magic was not run: %matplotlib inline (cell 1)\n"
        "copies: 0 (0 B) to the GPU, 0 (0 B) to the CPU\n"
        "next: gpuperf audit --max-syncs-per-step=1 sub/train.ipynb\n"
        "      exits with 1 when a wait is added to each step\n"
    )
    (result,) = json.loads(Path("audit.sarif").read_text())["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "sub/train.ipynb"
    lines = Path("sub/train.ipynb").read_text(encoding="utf-8").splitlines()
    assert "loss.item()" in lines[place["region"]["startLine"] - 1]


@pytest.mark.slow
@with_torch
def test_a_notebook_that_is_saved_while_it_runs_is_reported_as_it_was(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_training("open('train.ipynb', 'w').close()")

    code = main(["audit", "sub/train.ipynb", "--sarif=audit.sarif"])

    out = capfd.readouterr().out
    assert code == 0
    assert (
        "  --> sub/train.ipynb cell 2, line 6 in <module>\n    6 | loss.item()" in out
    )
    (result,) = json.loads(Path("audit.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1


@pytest.mark.slow
@with_torch
def test_a_cell_that_raises_ends_the_program_as_a_script_does(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_training("1 / 0", "print('never')")

    code = main(["audit", "sub/train.ipynb", "--json"])

    out, err = capfd.readouterr()
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    name = Path("sub/train.ipynb").absolute()
    assert (finding["file"], finding["line"]) == (f"{name} cell 2", 6)
    assert "never" not in err
    assert f'File "{name} cell 3", line 1, in <module>\n    1 / 0' in err
    assert err.count('File "') == 1


@pytest.mark.slow
@with_torch
def test_memory_of_a_notebook_names_its_lines(
    capfd: pytest.CaptureFixture[str],
) -> None:
    write_training()

    code = main(["memory", "sub/train.ipynb", "--gb=8"])

    out = capfd.readouterr().out
    assert code == 0
    assert "sub/train.ipynb needs 64.0 MiB at its peak; it fits in 8 GiB" in out
    assert (
        "  --> sub/train.ipynb cell 2, line 3 in <module>\n    3 | loss = model(" in out
    )
    assert "1 magic was not run: %matplotlib inline (cell 1)" in out


# Notebooks that are none.

R_KERNEL = {"kernelspec": {"language": "R"}}
SAGE = {"language_info": {"name": "sage"}}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as JSON"),
        (b"import torch", "cannot be read as JSON"),
        (b"\xff\xfe", "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b"[]", "is JSON without cells"),
        (b"{}", "is JSON without cells"),
        (b'{"cells": 3}', "is JSON without cells"),
        (b'{"cells": [], "nbformat": 4}', "has no code cells"),
        (b'{"cells": [3, {"cell_type": "raw", "source": ""}]}', "has no code cells"),
        (b'{"worksheets": [], "nbformat": 3}', "is in an older nbformat"),
        (text_of(document("1", metadata=R_KERNEL)), "is for a kernel of R;"),
        (text_of(document("1", metadata=SAGE)), "is for a kernel of sage;"),
        (text_of(document("1", 3)), "has no text as the source of cell 2"),
        (text_of(document(["1", None])), "has no text as the source of cell 1"),
        (b'{"cells": [{"cell_type": "code"}]}', "has no text as the source of cell 1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["audit", "memory"])
def test_what_is_no_notebook_is_refused_in_a_sentence(
    command: str, content: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.ipynb").write_bytes(content)

    code = main([command, "train.ipynb"])

    err = capsys.readouterr().err
    assert code == 4
    assert err.startswith(f"gpuperf: train.ipynb: {said}")
    assert "expected a notebook with Python in nbformat 4" in err
    assert "GP110" in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("%cd ..\na = (", "cell 2, line 2: cannot be compiled ('(' was never closed)"),
        ("await f()", "cell 2, line 1: cannot be compiled ('await' outside function)"),
        ("a\0", "cell 2"),
        ("'\ud800'", "cell 2: cannot be compiled ("),
    ],
)
def test_a_cell_that_is_no_python_is_named(
    cell: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.dumps(document("a = 1", cell))
    Path("train.ipynb").write_text(content, encoding="utf-8")

    assert main(["audit", "train.ipynb"]) == 4

    err = capsys.readouterr().err
    assert err.startswith(f"gpuperf: train.ipynb {said}")
    assert "expected Python" in err


@pytest.mark.parametrize("exists", [True, False])
def test_a_folder_or_nothing_is_no_notebook(
    exists: bool,  # noqa: FBT001
    capsys: pytest.CaptureFixture[str],
) -> None:
    if exists:
        Path("train.ipynb").mkdir()

    assert main(["memory", "train.ipynb"]) == 4

    what = "is a folder" if exists else "cannot be read (No such file or directory)"
    expected = f"gpuperf: train.ipynb: {what}; expected a notebook"
    assert capsys.readouterr().err.startswith(expected)


def test_a_notebook_without_a_kernel_is_one_of_python() -> None:
    with pytest.raises(UsageError, match="kernel of julia"):
        notebook_of(
            "a.ipynb",
            text_of(document("1", metadata={"kernelspec": {"language": "julia"}})),
        )
    for metadata in ({}, None, {"kernelspec": {"name": "python3"}}):
        assert notebook_of("a.ipynb", text_of(document("1", metadata=metadata))).cells
