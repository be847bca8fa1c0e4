"""Shards over HTTP, for a dataset beyond the local disk: each rank reads its own, once.

What arrives is unpacked as it comes. Nothing is written here.
"""

from __future__ import annotations

import tempfile
import threading
from functools import partial
from http.client import HTTPConnection
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from data.digits import digits
from data.shards import read_shard, read_shards, write_shards


SAMPLES, SHARDS, RANKS = 400, 8, 4


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        """Say nothing of requests."""


class Remote:
    """Reads shards from a server, and counts the bytes."""

    def __init__(self, port):
        self.port = port
        self.bytes_read = 0

    def samples(self, names):
        for name in names:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
            connection.request("GET", f"/{name}")
            response = connection.getresponse()
            assert response.status == 200
            self.bytes_read += response.length
            yield from read_shard(response)
            connection.close()


@pytest.fixture
def shards(tmp_path):
    (tmp_path / "served").mkdir()
    return write_shards(tmp_path / "served", digits(SAMPLES), SHARDS)


@pytest.fixture
def port(shards):
    serving = partial(Quiet, directory=shards[0].parent)
    with ThreadingHTTPServer(("127.0.0.1", 0), serving) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Make an empty folder the one that everything relative or temporary goes to."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.claim("D25")
def test_a_rank_reads_its_shards_over_the_network(shards, port, here, shown):
    names = [path.name for path in shards]
    every, own = Remote(port), Remote(port)

    everything = list(every.samples(names))
    mine = list(own.samples(names[::RANKS]))

    mib = [round(rank.bytes_read / 2**20, 3) for rank in (every, own)]
    shown(*mib, "MiB")
    assert everything == list(read_shards(shards))
    assert mine == list(read_shards(shards[::RANKS]))
    assert every.bytes_read == sum(path.stat().st_size for path in shards)
    assert own.bytes_read == every.bytes_read / RANKS
    assert list(here.iterdir()) == []
