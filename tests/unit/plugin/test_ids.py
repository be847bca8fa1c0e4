"""Test ids are the same in every process: workers that collect others refuse to run."""

from __future__ import annotations

import os

import pytest


@pytest.mark.parametrize("content", [os.urandom(8), b"\x1f\x8b"])
def test_bytes_name_no_test(content: bytes, request: pytest.FixtureRequest) -> None:
    assert len(content) in (2, 8)
    assert request.node.name in (
        "test_bytes_name_no_test[content0]",
        "test_bytes_name_no_test[content1]",
    )
