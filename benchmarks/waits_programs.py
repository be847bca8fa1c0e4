"""Short programs of one operation each, of which ``waits.py`` asks whether they wait."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


MADE: Final[Mapping[str, str]] = {
    "io": "import io",
    "np": "import numpy as np",
    "F": "import torch.nn.functional as F",
    "clip": "from torch.nn.utils import clip_grad_norm_ as clip",
    "pack": "from torch.nn.utils.rnn import pack_padded_sequence as pack",
    "Normal": "from torch.distributions import Normal",
    "Categorical": "from torch.distributions import Categorical",
    "DataLoader": "from torch.utils.data import DataLoader",
    "x": 'x = torch.randn(8, 8, device="cuda")',
    "v": 'v = torch.rand(64, device="cuda")',
    "t": 't = torch.ones((), device="cuda")',
    "n": 'n = torch.arange(8, device="cuda") % 3',
    "host": "host = torch.randn(8, 8)",
    "pinned": "pinned = torch.randn(8, 8).pin_memory()",
    "array": "array = np.ones(8)",
    "mask": 'mask = torch.arange(64, device="cuda").view(8, 8) % 2 == 0',
    "host_mask": "host_mask = mask.cpu()",
    "rows": 'rows = torch.tensor([2, 0, 1], device="cuda")',
    "host_rows": "host_rows = torch.tensor([2, 0, 1])",
    "zero": 'zero = torch.zeros((), device="cuda")',
    "i": 'i, j = torch.tensor([2, 6], device="cuda")',
    "square": 'square = torch.eye(8, device="cuda") * 2',
    "net": 'net = torch.nn.Linear(8, 3).to("cuda")',
    "trained": (
        'trained = torch.nn.Linear(8, 3).to("cuda")\ntrained(x).sum().backward()'
    ),
    "sgd": "sgd = torch.optim.SGD(trained.parameters(), lr=0.1)",
    "adam": "adam = torch.optim.Adam(trained.parameters())",
    "capturable": (
        "capturable = torch.optim.Adam(trained.parameters(), capturable=True)"
    ),
    "fused": "fused = torch.optim.Adam(trained.parameters(), fused=True)",
    "lbfgs": "lbfgs = torch.optim.LBFGS(trained.parameters(), max_iter=1)",
    "plateau": "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(sgd)",
    "scaler": 'scaler = torch.amp.GradScaler("cuda")',
    "norm": 'norm = torch.nn.BatchNorm1d(8).to("cuda")',
    "table": 'table = torch.nn.Embedding(10, 4).to("cuda")',
    "bag": 'bag = torch.nn.EmbeddingBag(10, 4).to("cuda")',
    "lstm": 'lstm = torch.nn.LSTM(8, 8).to("cuda")',
    "q": 'q = torch.randn(1, 2, 8, 8, device="cuda")',
    "scores": 'scores = torch.randn(8, 2, 5, device="cuda").log_softmax(-1)',
    "labels": 'labels = torch.ones(2, 3, dtype=torch.long, device="cuda")',
    "many": 'many = torch.full((2,), 8, device="cuda")',
    "few": 'few = torch.full((2,), 3, device="cuda")',
    "host_many": "host_many = torch.full((8,), 8)",
    "cuda_many": 'cuda_many = torch.full((8,), 8, device="cuda")',
    "normal": "normal = Normal(0.0, t)",
    "batches": "batches = iter(DataLoader(torch.randn(64, 8), batch_size=8))",
    "pinned_batches": (
        "pinned_batches = iter(\n"
        "    DataLoader(torch.randn(64, 8), batch_size=8, pin_memory=True)\n)"
    ),
    "stream": "stream = torch.cuda.Stream()",
    "event": "event = torch.cuda.Event()\nevent.record()",
    "start": (
        "start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n"
        "start.record()\nend.record()\nend.synchronize()"
    ),
    "graph": "graph = torch.cuda.CUDAGraph()\nwith torch.cuda.graph(graph):\n    t + 1",
}
"""Lines that make what an operation uses, by its name; each may use those before it."""


@dataclass(frozen=True, slots=True)
class Program:
    """An operation, as a table names it, and the code that does it."""

    topic: str
    operation: str
    code: str

    @property
    def prepared(self) -> str:
        """The lines that make what the operation uses."""
        needed = _needed(self.code)
        lines = (line for name, line in MADE.items() if name in needed)
        return "".join(f"{line}\n" for line in ("import torch", *lines))

    @property
    def text(self) -> str:
        """The program as a file, the operation last."""
        return f"{self.prepared}\n{self.code}\n"


def _needed(code: str) -> set[str]:
    """The names in MADE that *code* uses, and those that their lines use."""
    needed: set[str] = set()
    pending = [code]
    while pending:
        tree = ast.walk(ast.parse(pending.pop()))
        used = {node.id for node in tree if isinstance(node, ast.Name)} & {*MADE}
        pending += [MADE[name] for name in used - needed]
        needed |= used
    return needed


Row = str | tuple[str, str]
"""An operation that is its own name, or the name and the operation."""

TOPICS: Final[Mapping[str, Sequence[Row]]] = {
    "reading values": (
        "x.sum().item()",
        "float(t)",
        ("if t:", "if t:\n    pass"),
        "torch.is_nonzero(t)",
        "x.tolist()",
        "print(t)",
        'f"{t:.2f}"',
        "max(x[0, 0], x[0, 1])",
        "torch.max(x[0, 0], x[0, 1])",
        "1 in n",
        "range(n[0])",
        "torch.equal(x, x + 1)",
        "torch.allclose(x, x)",
        "x.isnan().any()",
        "x.shape, x.numel()",
        "torch.save(x, io.BytesIO())",
    ),
    "copies": (
        "x.cpu()",
        "x.cpu().numpy()",
        'x.to("cpu", non_blocking=True)',
        "pinned.copy_(x, non_blocking=True)",
        "host.copy_(x, non_blocking=True)",
        "x.type(torch.LongTensor)",
        "x.type(torch.long)",
        "host.cuda()",
        "host.cuda(non_blocking=True)",
        'host.to("cuda")',
        'host.to("cuda", non_blocking=True)',
        'pinned.to("cuda")',
        'pinned.to("cuda", non_blocking=True)',
        "x.copy_(host)",
        "x.copy_(pinned, non_blocking=True)",
        'x.to("cuda")',
        "host.pin_memory()",
        ("batch of DataLoader", 'next(batches).to("cuda", non_blocking=True)'),
        (
            "batch of DataLoader(pin_memory=True)",
            'next(pinned_batches).to("cuda", non_blocking=True)',
        ),
        ("Linear.to", 'torch.nn.Linear(8, 3).to("cuda")'),
    ),
    "making tensors": (
        'torch.tensor(0, device="cuda")',
        'torch.tensor([1, 2], device="cuda")',
        'torch.tensor([1, 2]).to("cuda", non_blocking=True)',
        'torch.as_tensor(array, device="cuda")',
        'torch.as_tensor(array).to("cuda", non_blocking=True)',
        "torch.cuda.BoolTensor([False])",
        'torch.tensor([False]).to("cuda", non_blocking=True)',
        "x.new_tensor([1.0, 2.0])",
        'torch.zeros(3, 4, device="cuda")',
        'torch.zeros(1, device="cuda", dtype=torch.int64).squeeze()',
        'torch.full((3,), 2.0, device="cuda")',
        'torch.full((3,), t, device="cuda")',
        'torch.arange(8, device="cuda")',
        'torch.randn(3, 4, device="cuda")',
        'torch.randperm(8, device="cuda")',
    ),
    "indexing": (
        "x[0]",
        "x[[2, 0, 1]]",
        "x[host_rows]",
        "x[rows]",
        "x[rows] = 0",
        "x[rows] = zero",
        "torch.index_select(x, 0, rows)",
        "x[i:j]",
        "x[:, rows]",
        "x[n[0]]",
        "x[0] = 1.0",
        "x[0, 0] = 1.0",
        "x[mask]",
        "x[host_mask]",
        "x[mask] = -1",
        "x[mask] = zero",
        "x.masked_fill_(mask, -1)",
        "x.masked_fill_(mask, zero)",
        "torch.masked_select(x, mask)",
        "x.masked_scatter_(mask, x + 1)",
        "torch.where(mask, x, 0)",
        "torch.where(mask, zero, x)",
        "torch.where(mask)",
        "x[torch.where(mask)] = -1",
        "torch.nonzero(mask)",
        "torch.nonzero_static(mask, size=64)",
        "torch.argwhere(mask)",
        "x.gather(0, n[None])",
        ("x[mask], backward", "x.clone().requires_grad_()[mask].sum().backward()"),
    ),
    "shapes that depend on values": (
        "torch.unique(n)",
        "torch.unique_consecutive(n)",
        "torch.unique(x, dim=0)",
        "torch.bincount(n)",
        "torch.bincount(n, minlength=8)",
        "torch.histc(v)",
        "torch.histc(v, min=0, max=1)",
        "torch.repeat_interleave(x, n, dim=0)",
        "torch.repeat_interleave(x, n, dim=0, output_size=7)",
        "torch.repeat_interleave(x, 2, dim=0)",
        "F.one_hot(n)",
        "F.one_hot(n, num_classes=3)",
        "torch.isin(n, rows)",
        "torch.isin(v, v)",
        "torch.combinations(v)",
        "torch.multinomial(v, 4)",
    ),
    "mathematics": (
        "x @ x",
        "v.cumsum(0)",
        "v.sort()",
        "v.topk(3)",
        "v.median()",
        "v.nanmedian()",
        "v.quantile(0.5)",
        "x.std()",
        "torch.cov(x)",
        "torch.searchsorted(v, v)",
        "torch.normal(v, v)",
        "torch.linalg.inv(square)",
        "torch.linalg.inv_ex(square)",
        "torch.linalg.solve(square, x)",
        "torch.linalg.cholesky(square)",
        "torch.linalg.det(square)",
        "torch.linalg.svd(square)",
        "torch.linalg.eigh(square)",
        "torch.linalg.qr(square)",
        "torch.linalg.matrix_rank(square)",
        "torch.linalg.norm(x)",
    ),
    "training": (
        ("loss.backward()", "net(x).square().mean().backward()"),
        ("clip_grad_norm_", "clip(trained.parameters(), 1.0)"),
        (
            "clip_grad_norm_(error_if_nonfinite=True)",
            "clip(trained.parameters(), 1.0, error_if_nonfinite=True)",
        ),
        ("SGD.step()", "sgd.step()"),
        ("Adam.step()", "adam.step()"),
        ("Adam(capturable=True).step()", "capturable.step()"),
        ("Adam(fused=True).step()", "fused.step()"),
        ("LBFGS.step()", "lbfgs.step(lambda: trained(x).square().mean())"),
        (
            "GradScaler.step(SGD)",
            "scaler.scale(trained(x).sum()).backward()\nscaler.step(sgd)\nscaler.update()",
        ),
        (
            "GradScaler.step(Adam(fused=True))",
            "scaler.scale(trained(x).sum()).backward()\nscaler.step(fused)\nscaler.update()",
        ),
        ("GradScaler.get_scale()", "scaler.scale(t)\nscaler.get_scale()"),
        ("ReduceLROnPlateau.step(loss)", "plateau.step(t)"),
        ("F.cross_entropy", "F.cross_entropy(net(x), n)"),
        ("F.dropout", "F.dropout(x)"),
        ("BatchNorm1d", "norm(x)"),
        ("Embedding, backward", "table(n).sum().backward()"),
        ("EmbeddingBag", "bag(n[None])"),
        ("LSTM", "lstm(x[None])"),
        ("scaled_dot_product_attention", "F.scaled_dot_product_attention(q, q, q)"),
        (
            "pack_padded_sequence, lengths of the CPU",
            "pack(x[:, :, None], host_many, batch_first=True)",
        ),
        (
            "pack_padded_sequence, lengths.cpu()",
            "pack(x[:, :, None], cuda_many.cpu(), batch_first=True)",
        ),
        ("ctc_loss, lengths of the GPU", "F.ctc_loss(scores, labels, many, few)"),
        "Normal(0.0, t)",
        "Normal(0.0, t, validate_args=False)",
        "normal.sample()",
        "normal.log_prob(t)",
        "Categorical(v)",
        (
            "backward, detect_anomaly",
            "with torch.autograd.detect_anomaly():\n    net(x).sum().backward()",
        ),
    ),
    "streams and memory": (
        "torch.cuda.synchronize()",
        "stream.synchronize()",
        "event.synchronize()",
        "event.wait()",
        "event.query()",
        "event.record()",
        "start.elapsed_time(end)",
        "stream.wait_stream(torch.cuda.current_stream())",
        "x.record_stream(stream)",
        "torch.cuda.mem_get_info()",
        "torch.cuda.memory_allocated()",
        "torch.cuda.reset_peak_memory_stats()",
        "torch.cuda.manual_seed(0)",
        ("CUDAGraph.replay()", "graph.replay()"),
    ),
}


def programs() -> Iterator[Program]:
    for topic, rows in TOPICS.items():
        for row in rows:
            operation, code = (row, row) if isinstance(row, str) else row
            yield Program(topic, operation, code)


# What NVIDIA says of them.

CATALOGUE: Final = (
    "https://github.com/NVIDIA/TensorRT-LLM/blob/de6776e454ae4b8285193f54059c6171e7c02889/"
    ".claude/skills/perf-torch-sync-free/references/sync-patterns.md"
)
"""Operations of torch that wait, in nine chapters; 1 to 7 have 28 rows in tables."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A row of the catalogue as operations of ours: whether it waits, what to do instead."""

    chapter: int
    operation: str
    waits: bool = True
    instead: str = ""


PATTERNS: Final = (
    Pattern(1, "event.wait()", waits=False),
    Pattern(1, "event.synchronize()", instead="event.wait()"),
    Pattern(1, "stream.synchronize()"),
    Pattern(1, "torch.cuda.synchronize()"),
    Pattern(2, "x.cpu()", instead='x.to("cpu", non_blocking=True)'),
    Pattern(2, "host.cuda()", instead="host.cuda(non_blocking=True)"),
    Pattern(2, 'host.to("cuda")', instead='host.to("cuda", non_blocking=True)'),
    Pattern(2, "x.type(torch.LongTensor)", instead="x.type(torch.long)"),
    Pattern(
        3,
        'torch.tensor([1, 2], device="cuda")',
        instead='torch.tensor([1, 2]).to("cuda", non_blocking=True)',
    ),
    Pattern(
        3,
        'torch.as_tensor(array, device="cuda")',
        instead='torch.as_tensor(array).to("cuda", non_blocking=True)',
    ),
    Pattern(
        3,
        "torch.cuda.BoolTensor([False])",
        instead='torch.tensor([False]).to("cuda", non_blocking=True)',
    ),
    Pattern(3, 'torch.zeros(3, 4, device="cuda")', waits=False),
    Pattern(4, "x.sum().item()"),
    Pattern(4, "if t:", instead="torch.where(mask, x, 0)"),
    Pattern(4, "torch.is_nonzero(t)"),
    Pattern(4, "max(x[0, 0], x[0, 1])", instead="torch.max(x[0, 0], x[0, 1])"),
    Pattern(5, "x[host_rows]", instead="x[rows]"),
    Pattern(5, "x[[2, 0, 1]]", instead="x[rows]"),
    Pattern(5, "x[rows] = 0", instead="x[rows] = zero"),
    Pattern(5, "x[0]", waits=False),
    Pattern(6, "x[i:j]", instead="x[:, rows]"),
    Pattern(7, "torch.nonzero(mask)", instead="torch.where(mask, x, 0)"),
    Pattern(7, "x[mask]", instead="torch.where(mask, x, 0)"),
    Pattern(7, "torch.masked_select(x, mask)", instead="torch.where(mask, x, 0)"),
    Pattern(7, "x[mask] = zero", instead="x.masked_fill_(mask, -1)"),
    Pattern(7, "x[mask] = -1", waits=False),
    Pattern(
        7,
        "torch.repeat_interleave(x, n, dim=0)",
        instead="torch.repeat_interleave(x, n, dim=0, output_size=7)",
    ),
    Pattern(7, "torch.unique(n)"),
)

MAY_WAIT: Final = (
    "from pageable memory: NVIDIA's catalogue calls it free of waits, its runtime's manual says "
    "that the copy might be synchronous and that the driver may wait for the stream to stage it "
    "(https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html)"
)

REASONS: Final[Mapping[str, str]] = {
    pattern.instead: MAY_WAIT
    for pattern in PATTERNS
    if pattern.instead.endswith('("cuda", non_blocking=True)')
    or pattern.instead == "host.cuda(non_blocking=True)"
}
"""Why what we say of an operation is not what the catalogue says."""

CHANGED: Final[Mapping[str, tuple[tuple[int, ...], str]]] = {
    "x[rows] = 0": ((2, 15), "since torch 2.15 a number is set with a fill"),
}
"""The same, from a release of torch on."""

# Where the simulated GPU says otherwise than CUDA does.

DIFFERENCES: Final[Mapping[str, str]] = {
    "clip_grad_norm_": "from torch 2.15 on it copies addresses from pinned memory: not counted",
    "CUDAGraph.replay()": "a graph replays work that no operation shows: not judged",
}
"""Why, by operation."""

MISCOUNTED: Final[Mapping[str, str]] = {
    "print(t)": "counted once: what torch reads to format it has no lines of its own",
    "ctc_loss, lengths of the GPU": "counted 8 times, also before torch 2.11",
}
"""Where it waits as CUDA does and not as often, and why."""
