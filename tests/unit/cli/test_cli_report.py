"""``gpuperf report``: files in, a page out."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from builders import baselines
from pages import BAD, GOOD, HEAD, ITEM, contents, entry

from pytest_gpuperf.baselines.format import dumps as baselines_text
from pytest_gpuperf.cli import main
from pytest_gpuperf.cli.report import source_lines
from pytest_gpuperf.cli.shared_options import PAGES, leave_page
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.finding import Location
from pytest_gpuperf.model.run import Head
from pytest_gpuperf.model.verdict import TestVerdict
from pytest_gpuperf.report.html import contents as markup
from pytest_gpuperf.report.json import dumps


EXPECTED = "expected the results.json of a run of pytest --gpuperf"


@pytest.fixture(autouse=True)
def in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def leave(*verdicts: TestVerdict, head: Head = HEAD, folder: str = ".gpuperf") -> None:
    """Leave what a run leaves that came to *verdicts*."""
    Path(folder).mkdir(exist_ok=True)
    text = dumps(contents(*verdicts, head=head).results)
    (Path(folder) / "results.json").write_text(text, "utf-8")


def put(path: str, *step_ms: float) -> None:
    """Put a file of baselines there that knows ``BAD`` with these times."""
    assert HEAD.hardware
    Path(path).parent.mkdir(exist_ok=True)
    known = baselines(HEAD.hardware, **{BAD.test: entry(*step_ms)})
    Path(path).write_text(baselines_text(known), "utf-8")


def page(*arguments: str) -> str:
    assert main(["report", *arguments]) == 0
    return Path(".gpuperf/report.html").read_text("utf-8")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What stands on standard error of a report that says nothing else."""
    assert main(["report", *arguments]) == 4
    output, error = capsys.readouterr()
    assert output == ""
    return error


def test_the_last_run_becomes_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    leave(BAD, GOOD)

    text = page()

    assert capsys.readouterr().out == "report: .gpuperf/report.html\n"
    assert text.startswith('<!doctype html>\n<html lang="en"><head>')
    assert text.endswith("</body></html>\n")
    assert "gpuperf: 1 of 2 tests failed on NVIDIA H200" in text


def test_what_a_command_found_since_the_last_run_is_the_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(BAD)
    leave_page(PAGES["audit"], None, lambda: "an audit")
    leave_page(PAGES["memory"], None, lambda: "a forecast")
    os.utime(PAGES["audit"], (2e9, 2e9))

    assert page() == "an audit"
    assert capsys.readouterr().out == (
        "report: .gpuperf/report.html\n"
        "the page of the last gpuperf audit, which came after the tests\n"
        "that of the tests: --results=.gpuperf/results.json\n"
    )
    assert page("--results=.gpuperf/results.json") != "an audit"

    os.utime(".gpuperf/results.json", (3e9, 3e9))
    assert "gpuperf: 1 of 1 test failed" in page()


def test_the_page_of_a_command_needs_no_tests(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave_page(PAGES["memory"], None, lambda: "a forecast")

    assert page() == "a forecast"
    assert capsys.readouterr().out == (
        "report: .gpuperf/report.html\nthe page of the last gpuperf memory\n"
    )


def test_the_page_that_is_written_elsewhere_is_the_last_one_too() -> None:
    leave_page(PAGES["audit"], None, lambda: "an older audit")
    leave_page(PAGES["audit"], Path("sent.html"), lambda: "an audit")

    assert page() == Path("sent.html").read_text("utf-8") == "an audit"


def test_a_comparison_of_versions_leaves_its_page() -> None:
    assert [page.stem for page in PAGES.values()] == ["audit", "memory", "ab"]


def test_a_page_that_nobody_asked_for_is_left_out_where_no_file_can_be() -> None:
    Path(".gpuperf").write_text("a file")

    leave_page(PAGES["audit"], None, lambda: "an audit")

    with pytest.raises(UsageError):
        leave_page(PAGES["audit"], Path(".gpuperf/page.html"), lambda: "an audit")


def test_the_page_goes_where_it_is_wanted() -> None:
    leave(GOOD, folder="left")

    status = main(["report", "--results=left/results.json", "--out=public/perf.html"])

    assert status == 0
    assert sorted(path.name for path in Path("public").iterdir()) == ["perf.html"]


def test_what_is_pending_can_be_accepted() -> None:
    leave(BAD)
    put("perf/cuda-nvidia-h200.json", *[10.0] * 8)
    put(".gpuperf/pending-cuda-nvidia-h200.json", *[12.0] * 5)

    text = page("--baselines=perf")

    assert "gpuperf accept --accept-drift --only tests/test_train.py::test_step" in text


def test_without_baselines_there_is_a_page_all_the_same() -> None:
    leave(BAD)

    assert "SLOWER" in page()


def test_a_run_that_measured_nothing_is_a_page_all_the_same() -> None:
    leave(head=replace(HEAD, hardware=None, exit_status=None))

    assert "This run did not finish" in page()


def test_a_finding_shows_its_line_as_it_stands_now() -> None:
    Path("train.py").write_text("def step():\n    pass\n    loss.item()\n", "utf-8")
    leave(BAD)

    assert (
        '<span>2  pass\n</span><span class="here">3  loss<mark>.item()</mark>\n'
    ) in page()


def test_without_a_run_there_is_no_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(capsys) == (
        "gpuperf: .gpuperf: there is no such file; run `pytest --gpuperf`, "
        "or audit, memory or ab first, or name the folder with its results [GP527]\n"
    )


def test_results_with_an_infinite_number_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(BAD)
    path = Path(".gpuperf/results.json")
    text = path.read_text("utf-8").replace('"now": 12', '"now": 1e999')
    path.write_text(text, "utf-8")

    assert refusal(capsys) == (
        f"gpuperf: .gpuperf/results.json: a number of {BAD.test} is infinite; "
        f"{EXPECTED} [GP512]\n"
    )


def test_baselines_that_are_cut_off_are_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(BAD)
    Path("baselines").mkdir()
    Path("baselines/cuda-nvidia-h200.json").write_text("{", "utf-8")

    assert refusal(capsys) == (
        "gpuperf: baselines/cuda-nvidia-h200.json: the file is cut off at line 1; "
        "restore the file from version control, or delete it and record it again with "
        "--gpuperf-update=all [GP502]\n"
    )
    assert not Path(".gpuperf/report.html").exists()


def test_a_page_that_cannot_be_written_is_an_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave(BAD)
    Path("file").write_text("", "utf-8")

    assert refusal(capsys, "--out=file/report.html") == (
        "gpuperf: file/report.html: cannot be written, file exists; what was stored "
        "before is unchanged; solve that and run again [GP506]\n"
    )


def at(file: str, line: int = 1) -> Location:
    return Location(file=file, line=line, function="step")


def test_lines_are_read_as_python_counts_them(tmp_path: Path) -> None:
    source = "# a form feed \x0c and \u2028 end no line\n\n    loss.item()\n"
    (tmp_path / "train.py").write_text(source, "utf-8")

    found = source_lines(tmp_path, [at("train.py", n) for n in (2, 3, 99)])

    assert found == {("train.py", 3): "    loss.item()"}


def test_no_file_outside_of_the_project_is_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.py").write_text("TOKEN = 1\n", "utf-8")
    (project / "linked.py").symlink_to(tmp_path / "secret.py")
    (project / "settings.env").write_text("TOKEN=1\n", "utf-8")
    (project / "binary.py").write_bytes(b"\xff\xfe")
    files = ["../secret.py", str(tmp_path / "secret.py"), "linked.py", "settings.env"]

    assert source_lines(project, map(at, [*files, "binary.py", "\0.py", "."])) == {}


def test_no_name_of_this_machine_is_in_the_page(tmp_path: Path) -> None:
    leave(BAD, GOOD)
    put(".gpuperf/pending-cuda-nvidia-h200.json", *[12.0] * 5)

    text = page(f"--results={tmp_path / '.gpuperf'}", f"--baselines={tmp_path / 'b'}")

    assert str(tmp_path) not in text
    assert json.dumps(ITEM.reason)[1:-1] in text


def test_without_jinja2_one_sentence_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(GOOD)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    markup._environment.cache_clear()

    assert refusal(capsys) == (
        "gpuperf: a page needs jinja2, which is not installed; run "
        "`pip install jinja2` [GP528]\n"
    )
