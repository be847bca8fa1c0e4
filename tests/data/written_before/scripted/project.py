"""Steps that a script plays: each moves in another way after the baseline."""

import pytest

import pytest_gpuperf as gpuperf


def test_steady(gpuperf):
    gpuperf(int)


def test_slower(gpuperf):
    gpuperf(int)


def test_faster(gpuperf):
    gpuperf(int)


def test_noisy(gpuperf):
    gpuperf(int)


def test_disturbed(gpuperf):
    gpuperf(int)


@gpuperf.tolerance(ms="5% and 0.1 ms", mem_mb="2%", detect="9%")
def test_within_its_tolerance(gpuperf):
    gpuperf(int)


@gpuperf.budget(ms=11, syncs=1, mem_mb=120, on="scripted")
def test_over_budget(gpuperf):
    gpuperf(int)


def test_waits_and_grows(gpuperf):
    gpuperf(int)


def test_needs_more_memory(gpuperf):
    gpuperf(int)


def test_ranked_parts(gpuperf):
    gpuperf(int)


def test_two_calls(gpuperf):
    gpuperf(int, name="encoder")
    gpuperf(int, name="decoder")


@gpuperf.budget(speedup=1.5, on="scripted")
def test_compared(gpuperf):
    gpuperf.compare(int, float)


@pytest.mark.parametrize("name", ["plain", "größe [µ]"])
def test_named(gpuperf, name):
    gpuperf(int)


def test_new(gpuperf):
    gpuperf(int)
