"""Threads of numpy in loader workers: as many a worker as there are cores, unless told.

torch itself gives each worker one thread; the BLAS library that numpy brings does not know
of workers, and two of them compute with twice as many threads as there are cores.
"""

from __future__ import annotations

from functools import partial

import pytest
from torch.utils.data import DataLoader, Dataset


def blas_threads():
    """Return how many threads a product of matrices gets here; 0 without a pool."""
    import threadpoolctl

    pools = threadpoolctl.threadpool_info()
    return max((p["num_threads"] for p in pools if p["user_api"] == "blas"), default=0)


class Threads(Dataset):
    """Each sample is the number of threads of the worker that made it."""

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return blas_threads()


def limited(worker, threads):  # noqa: ARG001, the loader's
    import threadpoolctl

    threadpoolctl.threadpool_limits(threads)


@pytest.mark.claim("D8")
@pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning",
    "ignore:This DataLoader will create 2 worker:UserWarning",  # on one core
)
def test_a_worker_computes_with_one_thread_if_it_is_told_to(shown):
    pytest.importorskip("numpy")
    pytest.importorskip("threadpoolctl")
    if blas_threads() <= 1:
        pytest.skip(
            "numpy computes with one thread here: on one core, or by its settings"
        )
    untold = DataLoader(Threads(), num_workers=2)
    told = DataLoader(
        Threads(), num_workers=2, worker_init_fn=partial(limited, threads=1)
    )

    before, after = sum(map(sum, untold)), sum(map(sum, told))

    shown(before, after, "threads")
    assert (before, after) == (2 * blas_threads(), 2)
