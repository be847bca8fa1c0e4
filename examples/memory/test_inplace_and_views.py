"""Operations in place, and views: results that take no memory of their own."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.claim("M7")
def test_in_place_operations_write_where_they_read(gpuperf):
    x = torch.randn(1024, 1024, device=gpuperf.device)

    def chained():
        return torch.relu(x * 2).mul(3).add(1)

    def in_place():
        return (x * 2).relu_().mul_(3).add_(1)

    torch.testing.assert_close(chained(), in_place())
    result = gpuperf.compare(chained, in_place)

    assert result.memory.difference == -x.nbytes


@pytest.mark.claim("M8")
def test_a_view_takes_no_memory(gpuperf):
    x = torch.randn(1024, 1024, device=gpuperf.device)

    result = gpuperf.compare(lambda: x.t().contiguous().relu(), lambda: x.t().relu())

    assert result.memory.difference == -x.nbytes
