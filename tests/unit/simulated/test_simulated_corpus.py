"""The simulated GPU against a corpus of CUDA code whose waits are known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import simulated_corpus
import simulated_corpus_idioms
import simulated_corpus_more
import simulated_corpus_rare


torch = pytest.importorskip("torch")

from pytest_gpuperf.devices.audit_record import StepAudit
from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.gpu import SimulatedGpu
from pytest_gpuperf.devices.simulated.sync_rules import release_of


pytestmark = pytest.mark.filterwarnings("ignore")


CORPORA = (
    simulated_corpus,
    simulated_corpus_more,
    simulated_corpus_idioms,
    simulated_corpus_rare,
)


@pytest.fixture(scope="module")
def gpu() -> Iterator[SimulatedGpu]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with simulated_gpu() as entered:
        yield entered
    torch.set_num_threads(threads)


def snippets(part: str) -> list[Any]:
    return [
        pytest.param(corpus.SETTING, snippet, id=f"{topic}: {snippet}")
        for corpus in CORPORA
        for topic, snippets in getattr(corpus, part).items()
        for snippet in snippets
    ]


def audit(gpu: SimulatedGpu, setting: str, snippet: str) -> StepAudit:
    names: dict[str, Any] = {}
    exec(setting, names)  # noqa: S102, our own corpus
    gpu.begin_step()
    exec(snippet, names)  # noqa: S102
    return gpu.end_step()


def test_the_corpus_has_at_least_the_size_of_the_research_behind_it() -> None:
    parts = (
        simulated_corpus.WAITS,
        simulated_corpus.RUNS_ON,
        simulated_corpus.MAY_WAIT,
    )

    sizes = [sum(map(len, topics.values())) for topics in parts]

    assert sizes[0] >= 83
    assert sizes[1] >= 77
    assert sizes[2] >= 2


@pytest.mark.parametrize(("setting", "snippet"), snippets("WAITS"))
def test_the_host_waits(gpu: SimulatedGpu, setting: str, snippet: str) -> None:
    release = release_of(torch.__version__)
    if "torch.normal(" in snippet and release >= (2, 14):
        pytest.skip("the GPU checks deviations since torch 2.14")
    if "torch.combinations(" in snippet and release >= (2, 15):
        pytest.skip(
            "torch 2.15 selects nothing by a mask, and does not wait, on CUDA either"
        )

    assert audit(gpu, setting, snippet).totals.syncs > 0


@pytest.mark.parametrize(("setting", "snippet"), snippets("RUNS_ON"))
def test_the_host_does_not_wait(gpu: SimulatedGpu, setting: str, snippet: str) -> None:
    found = audit(gpu, setting, snippet)

    assert found.findings == ()
    assert found.not_checked == ()


@pytest.mark.parametrize(("setting", "snippet"), snippets("MAY_WAIT"))
def test_what_may_wait_stands_apart(
    gpu: SimulatedGpu, setting: str, snippet: str
) -> None:
    totals = audit(gpu, setting, snippet).totals

    assert totals.syncs == 0
    assert totals.inconclusive > 0
