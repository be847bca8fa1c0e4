"""``gpuperf merge``: files in, one table and one exit code out."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import H200
from builders import a_head
from builders import a_test
from builders import a_verdict
from builders import an_entry
from builders import baselines

from pytest_gpuperf.baselines.format import loads
from pytest_gpuperf.baselines.operations import keep_operations
from pytest_gpuperf.baselines.operations import read_operations
from pytest_gpuperf.baselines.store import write_pending
from pytest_gpuperf.cli import main
from pytest_gpuperf.model.codec import encode_briefly
from pytest_gpuperf.model.operations import LineWork
from pytest_gpuperf.model.results import Record
from pytest_gpuperf.model.results import Results
from pytest_gpuperf.model.run import Ending
from pytest_gpuperf.model.verdict import Outcome
from pytest_gpuperf.report.json.results import dumps


EXPECTED = "expected the results.json of a run of pytest --gpuperf"


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def leave(folder: str, test: str, *, pending: bool = True) -> None:
    """Leave what a shard leaves that ran *test*; another one is there for all."""
    judged = a_verdict("syncs", Outcome.PASS, 1, None)
    call = encode_briefly(a_test(judged, test=test))
    head = a_head(exit_status=0, collected=("a", "b"), selected=(test,))
    record = Record(Ending.PASSED, Outcome.PASS, "", (call,))
    path = Path(folder)
    path.mkdir()
    text = dumps(Results(head=head, tests={test: record}))
    (path / "results.json").write_text(text, "utf-8")
    if pending:
        entry = an_entry(None, exact={"syncs": 1})
        write_pending(path, baselines(H200, **{test: entry}))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What stands on standard error of a merge that says nothing else."""
    assert main(["merge", *arguments]) == 4
    output, error = capsys.readouterr()
    assert output == ""
    return error


def test_folders_and_files_are_joined(capsys: pytest.CaptureFixture[str]) -> None:
    leave("one", "a")
    leave("two", "b", pending=False)

    status = main(["merge", "one", "two/results.json", "--shards=2"])

    assert status == 0
    assert capsys.readouterr().out == (
        "pending: .gpuperf/pending-cuda-nvidia-h200.json\n"
        "step now  baseline  change  syncs  memory  outcome  test\n"
        "       -         -       -      1       -  passed   a\n"
        "       -         -       -      1       -  passed   b\n"
        "gpuperf: 2 passed on cuda-nvidia-h200; 2 shards\n"
    )


def test_what_is_pending_is_joined_in_the_folder_that_is_named() -> None:
    leave("one", "a")
    leave("two", "b")

    status = main(["merge", "one", "two", "--out=joined"])
    text = Path("joined/pending-cuda-nvidia-h200.json").read_text("utf-8")

    assert status == 0
    assert sorted(loads(text, "joined").entries) == ["a", "b"]
    assert Path("joined/.gitignore").read_text("utf-8") == "*\n"
    assert not Path(".gpuperf").exists()


def ran(folder: str, test: str, **exact: int) -> None:
    """Leave in *folder* what the lines of *test* ran."""
    work = LineWork(source="x + y", ops={"aten::add": (1, 4)})
    entry = an_entry(None, exact={"syncs": 1, **exact})
    keep_operations(Path(folder), H200, {test: entry}, {test: (work,)})


def operations(folder: str, test: str) -> int:
    entry = an_entry(None, exact={"syncs": 1})
    return len(read_operations(Path(folder), H200, test, entry))


def test_what_the_lines_of_each_shard_ran_is_joined_and_accepted() -> None:
    leave("one", "a")
    leave("two", "b")
    ran("one", "a")
    ran("two", "b")

    assert main(["merge", "one", "two"]) == 0
    assert [operations(".gpuperf", test) for test in "ab"] == [1, 1]

    assert (
        main(["accept", str(*Path(".gpuperf").glob("p*")), "--baselines=stored"]) == 0
    )
    assert [operations("stored", test) for test in "ab"] == [1, 1]


def test_what_the_lines_of_other_numbers_ran_is_not_joined() -> None:
    leave("one", "a")
    leave("two", "b")
    ran("one", "a", ops=3)
    ran("two", "c")
    Path("two/operations/cuda-nvidia-h200/b.json").write_text("{")

    assert main(["merge", "one", "two"]) == 0

    assert [operations(".gpuperf", test) for test in "ab"] == [0, 0]
    assert len([*Path(".gpuperf").iterdir()]) == 2  # what is pending, and .gitignore


def test_a_missing_test_fails_unless_it_is_allowed() -> None:
    leave("one", "a")

    assert main(["merge", "one"]) == 1
    assert main(["merge", "one", "--allow-missing"]) == 0


def test_a_folder_without_results_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave("one", "a")
    Path("empty").mkdir()

    assert refusal(capsys, "one", "empty") == (
        "gpuperf: empty/results.json: there is no such file; its run died before it "
        "began, or the hidden folder .gpuperf was not uploaded [GP527]\n"
    )
    assert not Path(".gpuperf").exists()


def test_a_shard_that_is_named_twice_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    leave("one", "a")

    assert refusal(capsys, "one", "one/../one/results.json") == (
        "gpuperf: one/../one/results.json: given twice; name each shard once [GP515]\n"
    )


@pytest.mark.parametrize(
    ("content", "found", "error_id"),
    [
        (b"", "the file is empty", "GP512"),
        (b"\xff", "not UTF-8 text", "GP527"),
        (b"<html>", "the file is not JSON at line 1", "GP512"),
    ],
)
def test_a_file_that_is_no_results_is_refused(
    content: bytes, found: str, error_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("x.json").write_bytes(content)

    expected = f"gpuperf: x.json: {found}; {EXPECTED} [{error_id}]\n"
    assert refusal(capsys, "x.json") == expected


def test_a_file_that_cannot_be_read_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("one/results.json").mkdir(parents=True)

    assert refusal(capsys, "one") == (
        f"gpuperf: one/results.json: cannot be read, is a directory; {EXPECTED} [GP527]\n"
    )


@pytest.mark.parametrize("number", ["0", "-1", "two"])
def test_a_number_of_shards_is_a_number(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refusal(capsys, "one", f"--shards={number}") == (
        "gpuperf: argument --shards: expected a whole number from 1 on, found "
        f"'{number}'; see `gpuperf merge --help` [GP102]\n"
    )
