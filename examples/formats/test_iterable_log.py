"""A log as a stream: a loader holds one batch of it, however long it is.

The trap: each worker gets a copy of the dataset, and without sharing out they all read it
all.
"""

from __future__ import annotations

from itertools import islice

import pytest
from data.peak import peak_mib
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


LINES = 20_000


class Log(IterableDataset):
    """The length of each line."""

    def __init__(self, path):
        self.path = path

    def lines(self, file):
        return file

    def __iter__(self):
        with self.path.open() as file:
            yield from map(len, self.lines(file))


class SharedLog(Log):
    """Each worker takes the lines that are its turn."""

    def lines(self, file):
        worker = get_worker_info()
        return islice(file, worker.id, None, worker.num_workers)


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "training.log"
    path.write_text(
        "".join(f"step {n}: loss {1 / (n + 1):.4f}\n" for n in range(LINES))
    )
    return path


@pytest.mark.claim("D9")
def test_a_stream_holds_a_batch_and_not_the_log(log, shown):
    streamed = DataLoader(Log(log), batch_size=256)
    rows = sum(len(batch) for batch in streamed)

    whole = peak_mib(lambda: log.read_text().splitlines())
    batch = peak_mib(lambda: [None for _ in streamed])

    shown(round(whole, 2), round(batch, 2), "MiB")
    assert rows == LINES
    assert batch < whole / 5


@pytest.mark.filterwarnings(
    "ignore:.*use of fork:DeprecationWarning",
    "ignore:This DataLoader will create 2 worker:UserWarning",  # on one core
)
@pytest.mark.parametrize(("dataset", "times"), [(Log, 2), (SharedLog, 1)])
def test_two_workers_read_the_log_twice_unless_they_share_it(log, dataset, times):
    loader = DataLoader(dataset(log), batch_size=500, num_workers=2)

    rows = sum(len(batch) for batch in loader)

    assert rows == times * LINES
