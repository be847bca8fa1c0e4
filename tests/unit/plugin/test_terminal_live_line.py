"""A line that is written over: never wider than the terminal, never too often."""

from __future__ import annotations

from pytest_gpuperf.plugin.terminal import LiveLine, LogLines


class Terminal:
    """What was written, on a clock that is set."""

    def __init__(self, width: int = 80) -> None:
        self.written: list[str] = []
        self.now = 0.0
        self.line = LiveLine(self.written.append, lambda: width, lambda: self.now)


def test_a_text_is_written_over_the_last_one() -> None:
    terminal = Terminal()

    terminal.line.show("a long text")
    terminal.now = 1.0
    terminal.line.show("short")

    assert terminal.written == ["\ra long text", "\rshort      "]


def test_four_texts_a_second_are_shown_and_no_more() -> None:
    terminal = Terminal()

    for tick in range(100):
        terminal.now = tick / 100
        terminal.line.show(f"{tick}")

    assert terminal.written == ["\r0", "\r25", "\r50", "\r75"]


def test_the_same_text_is_written_once() -> None:
    terminal = Terminal()

    for now in range(3):
        terminal.now = now
        terminal.line.show("text")

    assert terminal.written == ["\rtext"]


def test_the_line_is_erased_with_blanks_and_the_cursor_put_back() -> None:
    terminal = Terminal()
    terminal.line.show("text")

    terminal.line.erase()
    terminal.line.erase()

    assert terminal.written == ["\rtext", "\r    \r"]


def test_what_follows_an_erased_line_is_shown_at_once() -> None:
    terminal = Terminal()
    terminal.line.show("first")
    terminal.line.erase()

    terminal.line.show("second")

    assert terminal.written[-1] == "\rsecond"


def test_nothing_is_erased_where_nothing_was_shown() -> None:
    terminal = Terminal()

    terminal.line.erase()

    assert terminal.written == []


def test_a_text_leaves_the_last_column_free() -> None:
    terminal = Terminal(width=10)

    terminal.line.show("x" * 50)

    assert terminal.written == ["\r" + "x" * 9]


def test_no_character_of_a_test_moves_the_cursor_or_takes_two_columns() -> None:
    terminal = Terminal()

    terminal.line.show("a\nb\x1b[2Jc\N{GRINNING FACE}d")

    assert terminal.written == ["\ra?b?[2Jc?d"]


class Log:
    """What was written into a log, on a clock that is set."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.written: list[str] = []
        self.now = 0.0
        self.lines = LogLines(self.written.append, seconds, lambda: self.now)

    def show_each_second(self, until: int) -> None:
        for tick in range(until):
            self.now = float(tick)
            self.lines.show(f"{tick}")


def test_a_log_gets_a_line_every_ten_seconds_and_no_more() -> None:
    log = Log()

    log.show_each_second(45)

    assert log.written == ["10", "20", "30", "40"]


def test_a_log_of_a_short_run_gets_no_line() -> None:
    log = Log()

    log.show_each_second(10)
    log.lines.erase()

    assert log.written == []


def test_a_pause_in_a_log_is_followed_by_the_newest_text_alone() -> None:
    log = Log()
    log.now = 35.0

    log.lines.show("a\x1b[2Jb")
    log.now = 44.9
    log.lines.show("too soon")

    assert log.written == ["a?[2Jb"]
