"""What is known of calls is found by their tests, however many there are."""

from __future__ import annotations

from pytest_gpuperf.model.run import KnownCalls


KNOWN = {"t.py::a": 1, "t.py::a#warm": 2, "t.py::ab": 3}


def test_a_group_has_the_calls_of_its_tests_and_no_others() -> None:
    known = KnownCalls(KNOWN)

    assert known.of(("t.py::a",)) == {"t.py::a": 1, "t.py::a#warm": 2}
    assert known.of(("t.py::ab", "t.py::new")) == {"t.py::ab": 3}
    assert known.of(()) == {}


def test_what_is_known_first_stays() -> None:
    known = KnownCalls(KNOWN)

    known.learn("t.py::ab", 9)
    known.learn("t.py::ab#2", 5)

    assert known.of(("t.py::ab",)) == {"t.py::ab": 3, "t.py::ab#2": 5}


def test_the_sign_in_a_parameter_names_no_call() -> None:
    known = KnownCalls({"t.py::a[C#]": 1, "t.py::a[C#]#warm": 2, "t.py::a[C]": 3})

    assert known.of(("t.py::a[C#]",)) == {"t.py::a[C#]": 1, "t.py::a[C#]#warm": 2}
    assert known.of(("t.py::a[C",)) == {}
