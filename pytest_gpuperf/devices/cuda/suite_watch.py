"""Watches ordinary tests on a GPU: where torch says that it waits, and its memory."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextlib import ExitStack
from contextlib import contextmanager
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from typing import Final

from ...model.finding import Finding
from ...model.finding import FindingKind
from ...model.finding import Location
from ...model.finding import Phase
from ..garbage import HeldCollector
from ..garbage import described_cycle
from ..garbage import held_collector
from ..memory_picture import held_by_place
from ..memory_picture import in_a_cycle
from ..own_code import is_own
from ..own_warnings import ignored
from ..source_lines import Site
from ..source_lines import is_blamable
from ..source_lines import site_of_caller
from ..source_lines import where_of
from ..suite_watch import MOST_KEEPERS
from ..suite_watch import MOST_OBJECTS_OF_TEST
from ..suite_watch import TestAudit
from ..suite_watch import keeper_of
from .memory import IN_USE
from .sync_markers import asked_waits_marked
from .sync_markers import heard


WARNED: Final = "torch waits for the GPU here"

ASKED_SO_FAR: Final = "allocation.all.allocated"
"""Key of ``torch.cuda.memory_stats``: how often memory was asked for so far."""

NO_LINE: Final = Site(location=None, innermost=None, phase=Phase.FORWARD)


@dataclass(frozen=True, slots=True)
class Block:
    """Memory in use, and the lines that asked for it, innermost first."""

    nbytes: int
    lines: tuple[Location, ...]


class CudaSuite:
    """Tells the tests of a process apart that run on its GPUs.

    Nothing here makes CUDA start: a suite may fork before it uses the GPU. Of a test that
    resets the peak itself, the peak is that from then on.
    """

    simulates = False

    def __init__(self, torch: Any, root: str) -> None:
        self._torch = torch
        self._root = root
        self._waits: Counter[Site] = Counter()
        self._known: Collection[int] = ()
        self._known_bytes = 0
        self._frees_more = False
        self._allocations = self._allocated = 0
        self._keepers = 0
        self._held = ExitStack()
        self._collector = HeldCollector()
        self._garbage: tuple[Block, ...] = ()
        self._cycle = ""

    # What torch records, once CUDA has started.

    def switch_on(self) -> None:
        """Let torch warn of each wait, and keep the lines of what is in use."""
        with ignored():  # the mode warns of itself
            self._torch.cuda.set_sync_debug_mode("warn")
        if self._names_blocks:
            self._torch.cuda.memory._record_memory_history(  # noqa: SLF001, there is no public one
                "state", context="alloc", stacks="python"
            )

    @property
    def _names_blocks(self) -> bool:
        """Whether the allocator is torch's own: others list no blocks, and would raise."""
        return bool(self._torch.cuda.get_allocator_backend() == "native")

    # A test.

    def begin_test(self) -> None:
        """Forget what was recorded, but for what is alive."""
        self._waits.clear()
        cuda = self._torch.cuda
        for gpu in self._gpus():
            cuda.reset_peak_memory_stats(gpu)
        self._allocations, self._allocated = self._asked_for(), self._in_use()
        self._held.close()
        self._collector = self._held.enter_context(held_collector(MOST_OBJECTS_OF_TEST))
        self._garbage, self._cycle = (), ""
        if self._allocated != self._known_bytes:
            self._note_alive()

    def listening(self) -> AbstractContextManager[object]:
        """Hear each warning of a wait, and keep it from whoever shows warnings."""
        return heard(self._note)

    def around(self, _kind: str) -> AbstractContextManager[object]:
        """Note a wait that Python code asks for by name."""
        self._note(_kind)
        return nullcontext()

    def _note(self, _kind: str) -> None:
        self._waits[site_of_caller(self._root, phase=Phase.FORWARD)] += 1

    @contextmanager
    def excused(self) -> Iterator[None]:
        """Take what is born inside for a shared fixture's, which outlives the test."""
        before = self._in_use()
        try:
            yield
        finally:
            born = self._in_use() - before
            if born > 0:
                self._allocated += born
                self._note_alive()

    def end_test(self, *, passed: bool) -> TestAudit:
        """Return what was recorded; a test that failed is kept alive by its traceback."""
        used = bool(self._waits) or self._asked_for() > self._allocations
        left = self._left() if passed and used else {}
        self._held.close()
        self._frees_more = not passed
        return TestAudit(
            waits=tuple(
                Finding(
                    kind=FindingKind.SYNC,
                    op="",
                    reason=WARNED,
                    per_step=count,
                    **where_of(site),
                )
                for site, count in self._waits.items()
            ),
            peak_bytes=self._peak() if used else 0,
            used=used,
            left=self._by_line(
                (block for block, _ in left.values()),
                FindingKind.LEFT,
                self._keeper([tensor for _, tensor in left.values()]),
            ),
            garbage=self._by_line(
                self._garbage, FindingKind.GARBAGE, in_a_cycle(self._cycle)
            ),
        )

    # Memory.

    def _gpus(self) -> range:
        cuda = self._torch.cuda
        return range(cuda.device_count() if cuda.is_initialized() else 0)

    def _in_use(self) -> int:
        return sum(self._torch.cuda.memory_allocated(gpu) for gpu in self._gpus())

    def _peak(self) -> int:
        return sum(self._torch.cuda.max_memory_allocated(gpu) for gpu in self._gpus())

    def _asked_for(self) -> int:
        stats = map(self._torch.cuda.memory_stats, self._gpus())
        return sum(int(of_gpu.get(ASKED_SO_FAR, 0)) for of_gpu in stats)

    def _left(self) -> Mapping[int, tuple[Block, object]]:
        """Return by address what tensors of this test still use; others are torch's own."""
        if not self._may_have_left():
            return {}
        # Only now: to collect costs more than most tests.
        self._free_garbage()
        if not self._may_have_left():
            return {}
        blocks, tensors = self._blocks(), _tensors(self._torch)
        return {
            address: (block, tensors[address])
            for address, block in blocks.items()
            if address in tensors and address not in self._known
        }

    def _free_garbage(self) -> None:
        """Collect, and keep the blocks that this frees, unless the test has collected."""
        was_run, before = self._collector.was_run, self._blocks()
        cycle = described_cycle(self._collector, self._size_of)
        after = self._blocks()
        freed = [
            b for a, b in before.items() if a not in after and a not in self._known
        ]
        if freed and not was_run:
            self._garbage, self._cycle = tuple(freed), cycle

    def _size_of(self, thing: object) -> int:
        if not issubclass(type(thing), self._torch.Tensor):
            return 0
        tensor: Any = thing
        is_known = tensor.is_cuda and tensor.layout is self._torch.strided
        return int(tensor.untyped_storage().nbytes()) if is_known else 0

    def _may_have_left(self) -> bool:
        """Whether more is in use than before, or what a failed test kept was freed since."""
        return self._frees_more or self._in_use() > self._allocated

    def _note_alive(self) -> None:
        """Keep the addresses in use: what lies there is not left by the test that runs."""
        self._known_bytes = self._in_use()
        self._known = set(self._blocks())

    def _blocks(self) -> dict[int, Block]:
        if not self._gpus() or not self._names_blocks:
            return {}
        return {
            int(block["address"]): Block(int(block["size"]), _lines(block))
            for segment in self._torch.cuda.memory_snapshot()
            for block in segment["blocks"]
            if block["state"] == IN_USE
        }

    def _by_line(
        self, blocks: Iterable[Block], kind: FindingKind, reason: str
    ) -> tuple[Finding, ...]:
        births = ((block.nbytes, "", self._site(block.lines)) for block in blocks)
        return held_by_place(births, kind, reason)

    def _site(self, lines: tuple[Location, ...]) -> Site:
        users = [line for line in lines if is_blamable(line.file)]
        project = [line for line in users if is_own(line.file, self._root)]
        if not users:
            return NO_LINE
        return Site(
            location=project[0] if project else None,
            innermost=users[0],
            phase=Phase.FORWARD,
        )

    def _keeper(self, left: list[object]) -> str:
        if not left or self._keepers >= MOST_KEEPERS:
            return ""
        self._keepers += 1
        return next(filter(None, map(keeper_of, left)), "")


def _lines(block: Mapping[str, Any]) -> tuple[Location, ...]:
    return tuple(
        Location(
            file=frame["filename"], line=int(frame["line"]), function=frame["name"]
        )
        for frame in block.get("frames", ())
    )


def _tensors(torch: Any) -> dict[int, object]:
    """Return the tensors on GPUs that Python knows, by the address of their storage."""
    # By type: to ask an object for its class may run code of others.
    known = [x for x in gc.get_objects() if issubclass(type(x), torch.Tensor)]
    return {
        int(tensor.untyped_storage().data_ptr()): tensor
        for tensor in known
        if tensor.is_cuda and tensor.layout is torch.strided
    }


@contextmanager
def watching_gpus(root: str) -> Iterator[CudaSuite]:
    """Watch what runs on this process's GPUs until the process ends.

    Findings name lines below the directory *root*.
    """
    import torch

    suite = CudaSuite(torch, root)
    torch.cuda._lazy_call(suite.switch_on)  # noqa: SLF001, torch's own modules register so
    with asked_waits_marked(torch, suite.around):
        yield suite
