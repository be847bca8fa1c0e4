"""The fork server: one job, one fresh process, and nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from process_fifo import ProcessFifo

from pytest_gpuperf.devices.process_time import HostClock
from pytest_gpuperf.errors import RunError
from pytest_gpuperf.model.environment import DeviceKind
from pytest_gpuperf.runner import fork_server
from pytest_gpuperf.runner.fork_server import (
    EarlyServer,
    ForkServer,
    Job,
    ProgressPipe,
    inherited,
)
from pytest_gpuperf.sharing.processes import EXIT_LAST_LINES, FATAL_LINES


pytestmark = pytest.mark.slow


ENOUGH_SECONDS = 30.0
TOO_FEW_SECONDS = 0.2


def job(name: str, **request: object) -> Job:
    return Job(entry=f"fork_server_jobs:{name}", request=request)


def started(preload: tuple[str, ...] = (), warm: str | None = None) -> ForkServer:
    server = ForkServer(preload, warm)
    server.wait_until_ready()
    return server


def refusal_of(act: Callable[[], object]) -> str:
    with pytest.raises(RunError) as refused:
        act()
    return refused.value.text


def death_in(server: ForkServer, order: Job, seconds: float = ENOUGH_SECONDS) -> str:
    return refusal_of(lambda: server.run(order, seconds))


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with closing(started(("json",))) as server:
        yield server


@pytest.fixture
def process_fifo(tmp_path: Path) -> Iterator[ProcessFifo]:
    with closing(ProcessFifo(tmp_path / "fifo")) as process_fifo:
        yield process_fifo


def test_a_result_comes_back(server: ForkServer) -> None:
    request = {"text": "é\n", "number": 1.5, "list": [None, True]}

    assert server.run(job("echo", **request), ENOUGH_SECONDS) == request


def test_each_run_has_an_order_of_strings_and_addresses_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    found = []
    with closing(started(("json",))) as server:
        for number in (0, 0, 1, 2, 0):
            server.renew(number)
            found.append(server.run(job("order_and_address"), ENOUGH_SECONDS))
    orders = ["".join(order) for order, _ in found]
    addresses = [address for _, address in found]

    assert orders[0] == orders[1] == orders[4]
    assert len(set(orders)) > 1
    assert addresses[0] == addresses[1]
    assert len(set(addresses)) == 4


def test_a_server_that_measures_no_code_stays() -> None:
    with closing(started()) as server:
        first = server.run(job("order_and_address"), ENOUGH_SECONDS)
        server.renew(1)

        assert server.run(job("order_and_address"), ENOUGH_SECONDS) == first


def test_a_renewed_server_starts_as_the_first_one_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    said: list[str] = []
    server = ForkServer(("json",), on_progress=said.append)
    with closing(server):
        server.wait_until_ready()
        first = server.run(job("order_and_address"), ENOUGH_SECONDS)
        monkeypatch.setenv("PYTHONHASHSEED", "6")
        monkeypatch.chdir(tmp_path)
        server.renew(1)
        second = server.run(job("order_and_address"), ENOUGH_SECONDS)
        server.run(job("talk", texts=["heard"]), ENOUGH_SECONDS)

    assert first[0] == second[0]
    assert said == ["heard"]


def test_each_job_has_a_fresh_process(server: ForkServer) -> None:
    pids = {server.run(job("pid"), ENOUGH_SECONDS) for _ in range(3)}
    calls = [server.run(job("leaves_state"), ENOUGH_SECONDS) for _ in range(2)]

    assert len(pids - {os.getpid()}) == 3
    assert calls == [1, 1]


def test_what_the_server_warmed_up_is_there_in_each_child() -> None:
    with closing(started(warm="fork_server_jobs:warm")) as server:
        calls = [server.run(job("leaves_state"), ENOUGH_SECONDS) for _ in range(2)]

    assert calls == [101, 101]


def test_garbage_is_collected_in_a_job_but_not_during_the_imports() -> None:
    with closing(started(("collecting_preload",))) as server:
        known = server.run(job("collections"), ENOUGH_SECONDS)

    assert known == {"at import": False, "in a job": True}


def test_a_result_and_an_order_may_be_large(server: ForkServer) -> None:
    items = ["x" * 100] * 20_000

    result = server.run(job("large", characters=3_000_000), ENOUGH_SECONDS)
    count = server.run(job("argument_count", items=items), ENOUGH_SECONDS)

    assert result == "x" * 3_000_000
    assert count == 20_000


def test_what_a_job_prints_is_no_reply(server: ForkServer) -> None:
    result = server.run(job("chatter"), ENOUGH_SECONDS)

    assert result == "an honest result"


def test_what_children_say_is_heard_while_they_work() -> None:
    heard: list[str] = []
    server = ForkServer((), on_progress=heard.append)
    with closing(server):
        server.wait_until_ready()
        server.run(job("talk", texts=["first", "x" * 1000, "é\n"]), ENOUGH_SECONDS)
        server.run(job("talk", texts=["last"]), ENOUGH_SECONDS)
        server.run(job("echo"), ENOUGH_SECONDS)

    assert heard == ["first", "é\n", "last"]


def test_who_says_more_than_fits_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fork_server, "_progress_ends", [])
    heard: list[str] = []
    with closing(ProgressPipe(heard.append)) as pipe:
        fork_server.send_progress_to(pipe.write_end)
        for number in range(10_000):
            fork_server.send_progress(f"text {number}")
        os.close(pipe.write_end)
        while pipe.read():
            pass

    assert heard[:2] == ["text 0", "text 1"]
    assert 1000 < len(heard) < 10_000


def test_what_may_be_left_unsaid_is_said_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = iter([round(s * 1e9) for s in (100.0, 100.9, 101.1, 101.1, 101.2)])
    monkeypatch.setattr(fork_server, "_progress_ends", [])
    monkeypatch.setattr(fork_server, "_sent_at", [])
    monkeypatch.setattr(HostClock, "wall_ns", lambda: next(now))
    heard: list[tuple[str, ...]] = []
    with closing(ProgressPipe(lambda *texts: heard.append(texts))) as pipe:
        fork_server.send_progress_to(pipe.write_end)
        fork_server.send_progress("t.py::a")
        for number in range(3):
            fork_server.send_progress_seldom("t.py::a", f"round {number}/20")
        pipe.read()
        os.close(pipe.write_end)

    assert heard == [("t.py::a",), ("t.py::a", "round 1/20")]


def test_nothing_is_said_where_nobody_listens(server: ForkServer) -> None:
    assert server.run(job("talk", texts=["unheard"]), ENOUGH_SECONDS)


def test_what_a_library_prints_at_its_import_is_no_reply() -> None:
    with closing(started(("chatty_preload",))) as server:
        result = server.run(job("echo", x=1), ENOUGH_SECONDS)

    assert result == {"x": 1}


def test_an_exception_is_shown_with_its_traceback_and_what_was_printed(
    server: ForkServer,
) -> None:
    first, *rest = death_in(server, job("fail")).splitlines()

    assert first == "the measuring process exited with 1: said before"
    assert rest[0] == "Traceback (most recent call last):"
    assert rest[-1] == "ValueError: found 3, expected 4"


def test_a_job_that_does_not_exist_is_shown(server: ForkServer) -> None:
    message = death_in(server, job("no_such_job"))

    assert message.splitlines()[-1] == (
        "AttributeError: module 'fork_server_jobs' has no attribute 'no_such_job'"
    )


def test_a_result_that_is_no_json_is_shown(server: ForkServer) -> None:
    message = death_in(server, job("unwritable"))

    assert "TypeError: Object of type object is not JSON serializable" in message


@pytest.mark.parametrize(
    ("name", "request_", "message"),
    [
        ("leave", {"code": 7}, "the measuring process exited with 7: last words"),
        ("leave", {"code": 0}, "the measuring process exited with 0: last words"),
        (
            "leave_in_silence",
            {"code": 7},
            "the measuring process exited with 7: it printed nothing",
        ),
        (
            "kill_itself",
            {"signal": int(signal.SIGKILL)},
            "the measuring process was killed by signal 9: last words",
        ),
        (
            "kill_itself",
            {"signal": int(signal.SIGABRT)},
            "the measuring process was killed by signal 6: last words",
        ),
    ],
)
def test_a_death_is_one_sentence_with_the_last_words(
    server: ForkServer, name: str, request_: dict[str, object], message: str
) -> None:
    assert death_in(server, job(name, **request_)) == message


def test_sys_exit_gives_no_result(server: ForkServer) -> None:
    message = death_in(server, job("leave_by_exit"))

    assert message.startswith("the measuring process exited with 1: Traceback")
    assert message.endswith("SystemExit: 3")


def test_closing_the_outputs_changes_nothing(server: ForkServer) -> None:
    assert server.run(job("close_outputs"), ENOUGH_SECONDS) == "closed"
    assert death_in(server, job("close_outputs_and_fail")) == (
        "the measuring process exited with 1: it printed nothing"
    )


def test_only_the_end_of_a_long_output_is_shown(server: ForkServer) -> None:
    message = death_in(server, job("print_lines", lines=1000))

    shown = [f"line {number}" for number in range(1000 - EXIT_LAST_LINES, 1000)]
    assert message == "the measuring process exited with 1: " + "\n".join(shown)


def test_of_a_fatal_error_the_top_is_shown(server: ForkServer) -> None:
    first, *rest = death_in(server, job("crash")).splitlines()

    assert first == (
        "the measuring process was killed by signal 11: Fatal Python error: "
        "Segmentation fault"
    )
    assert len(rest) == FATAL_LINES - 1
    assert rest[-1].endswith("in deeper")


@pytest.mark.parametrize(
    ("limited_by", "said"),
    [
        ("", ""),
        (
            "--gpuperf-seconds=2",
            " by --gpuperf-seconds=2, raise that if it only needs longer",
        ),
    ],
)
def test_a_hanging_job_is_killed_after_the_limit_and_the_next_works(
    server: ForkServer, limited_by: str, said: str
) -> None:
    order = replace(job("hang"), limited_by=limited_by)

    message = death_in(server, order, TOO_FEW_SECONDS)
    next_result = server.run(job("echo", x=1), ENOUGH_SECONDS)

    assert re.fullmatch(
        r"the measuring process gave no result and was killed: it did nothing for most of "
        r"0\.\d s \(\d\.\d s of CPU\); does it wait for input, a lock or another process\? "
        rf"It had 0\.2 s of its own time{said}; it printed nothing",
        message,
    )
    assert next_result == {"x": 1}


def test_a_job_that_runs_into_the_limit_leaves_no_process(
    server: ForkServer, process_fifo: ProcessFifo
) -> None:
    order = job("hang_with_a_grandchild", fifo=process_fifo.fifo)

    death_in(server, order, TOO_FEW_SECONDS)

    assert process_fifo.all_ended()


def test_a_grandchild_that_outlives_its_job_is_killed(
    server: ForkServer, process_fifo: ProcessFifo
) -> None:
    grandchild = server.run(
        job("leave_a_grandchild", fifo=process_fifo.fifo), ENOUGH_SECONDS
    )

    assert process_fifo.has_heard()
    assert process_fifo.all_ended()
    assert grandchild != os.getpid()


DEATH = "the measuring server died while this ran: it printed nothing"


def test_a_server_that_dies_is_started_anew() -> None:
    with closing(started()) as server:
        assert death_in(server, job("kill_the_server")) == DEATH
        assert server.run(job("echo", text="a"), ENOUGH_SECONDS) is not None
        os.kill(server._process.pid, signal.SIGKILL)
        server._process.wait()
        assert server.run(job("echo", text="b"), ENOUGH_SECONDS) is not None


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux ends a child with its parent"
)
@pytest.mark.parametrize("and_stay", ["and_stay", "and_leave_a_grandchild"])
def test_a_child_does_not_outlive_the_server(
    process_fifo: ProcessFifo, and_stay: str
) -> None:
    with closing(started()) as server:
        death_in(server, job(f"kill_the_server_{and_stay}", fifo=process_fifo.fifo))

        assert process_fifo.all_ended()


def test_a_child_that_was_too_late_to_hear_of_its_server_s_death_ends() -> None:
    warm = "fork_server_jobs:lose_the_server_at_birth"
    with closing(started(warm=warm)) as server:
        message = death_in(server, job("echo"))

    assert message == "the measuring process exited with 1: it printed nothing"


def test_a_preload_that_cannot_be_imported_is_named() -> None:
    with closing(ForkServer(("broken_preload",))) as server:
        message = refusal_of(server.wait_until_ready)

    first, *_, last = message.splitlines()
    assert first == (
        "the measuring server could not start: Traceback (most recent call last):"
    )
    assert last == "ImportError: libcudart.so.13: cannot open shared object file"


def test_a_server_that_takes_too_long_to_start_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pytest_gpuperf.runner.fork_server.START_SECONDS", 0.0)
    with closing(ForkServer((), warm="fork_server_jobs:warm_for_ever")) as server:
        message = refusal_of(server.wait_until_ready)

    assert re.fullmatch(
        r"the measuring server could not start: it (did nothing|used) .*: it printed nothing",
        message,
    )
    assert server._process.returncode == -signal.SIGKILL


def test_modules_of_the_working_directory_do_not_shadow_the_standard_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('shadowed')")
    (tmp_path / "select.py").write_text("raise ImportError('shadowed')")
    monkeypatch.chdir(tmp_path)

    with closing(started()) as server:
        result = server.run(job("echo", x=1), ENOUGH_SECONDS)

    assert result == {"x": 1}


def test_close_ends_the_server_its_children_and_their_children(
    process_fifo: ProcessFifo,
) -> None:
    server = started()
    server._start(job("hang_with_a_grandchild", fifo=process_fifo.fifo), ENOUGH_SECONDS)
    assert process_fifo.has_heard()

    server.close()

    assert process_fifo.all_ended()
    assert server._process.returncode == 0
    assert not Path(server._folder.name).exists()


def test_close_may_be_called_twice() -> None:
    server = started()

    server.close()
    server.close()

    assert server._process.returncode == 0


# A server that was started before the tests were collected.


def pid_of_server(server: ForkServer) -> int:
    pid: int = server.run(job("parent"), ENOUGH_SECONDS)
    return pid


def started_early() -> EarlyServer:
    early = EarlyServer(DeviceKind.SCRIPTED)
    early.start()
    return early


def test_an_early_server_starts_once_and_only_when_it_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    early = EarlyServer(DeviceKind.SCRIPTED)
    assert not list(tmp_path.iterdir())
    early.start()
    early.start()

    assert len(list(tmp_path.iterdir())) == 1
    early.close()


def test_an_early_server_is_taken_once_and_ends_with_its_taker() -> None:
    early = started_early()
    with closing(early.take()) as first, closing(early.take()) as second:
        pids = {pid_of_server(first), pid_of_server(second)}
        early.close()  # nobody's but the taker's any more
        again = {pid_of_server(first), pid_of_server(second)}

    assert len(pids) == 2
    assert again == pids


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TORCHINDUCTOR_CACHE_DIR"])
def test_children_see_variables_that_were_set_while_tests_were_collected(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    early = started_early()
    monkeypatch.setenv(name, "3")

    with closing(early.take()) as server:
        assert server.run(job("variable", variable=name), ENOUGH_SECONDS) == "3"


def test_children_start_in_the_directory_that_was_entered_while_tests_were_collected(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    early = started_early()
    monkeypatch.chdir(tmp_path)

    with closing(early.take()) as server:
        assert server.run(job("directory"), ENOUGH_SECONDS) == str(tmp_path)


def test_a_cache_that_torch_named_itself_needs_no_other_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    before = inherited()
    default = str(Path(tempfile.gettempdir(), "torchinductor_somebody"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default)

    assert inherited() == before


def test_an_early_server_that_nobody_took_ends_and_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    early = started_early()
    assert list(tmp_path.iterdir())

    early.close()

    assert not list(tmp_path.iterdir())
