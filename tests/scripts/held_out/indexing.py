"""Tensors indexed, masked, scattered and cut."""

import torch


device = "cuda"


def boolean_masks_that_read():
    x = torch.randn(4, 6, device=device)
    m = x > 0
    picked = x[m]
    rows = x[m.any(1)]
    cols = x[:, m[0]]
    return picked.sum() + rows.sum() + cols.sum()


def boolean_masks_that_write():
    x = torch.randn(4, 6, device=device)
    m = x > 0
    x[m] = 0
    x[~m] = torch.tensor(1.0)
    x[m] *= 2
    x[x < -1] = float("-inf")
    return x


def masks_that_write_tensors():
    x = torch.zeros(4, 4, device=device)
    m = torch.eye(4, dtype=torch.bool, device=device)
    x[m] = torch.arange(4.0, device=device)
    x.masked_scatter_(m, torch.ones(16, device=device))
    return torch.where(m, x, torch.zeros_like(x))


def mask_of_the_cpu_on_the_gpu():
    x = torch.randn(5, device=device)
    keep = torch.tensor([True, False, True, True, False])
    y = x[keep]
    x[keep] = 0.0
    return y


def integer_indices():
    x = torch.randn(5, 7, device=device)
    rows = torch.tensor([0, 2, 4], device=device)
    a = x[rows]
    b = x[rows, 1]
    c = x[rows[:, None], rows]
    x[rows] = 0
    x[rows, rows] += 1
    return a, b, c


def lists_as_indices():
    x = torch.randn(5, 7, device=device)
    a = x[[0, 2]]
    b = x[:, [1, 3, 5]]
    x[[0, 1]] = 1.0
    x[[0, 1], [2, 3]] = 5.0
    return a, b


def scalars_as_indices():
    x = torch.randn(5, 7, device=device)
    i = torch.tensor(3, device=device)
    j = torch.tensor(2)
    a = x[i]
    b = x[j]
    c = x[i, j]
    x[i] = 0
    x[0, 1] = 2.5
    return a, b, c


def slices_bounded_by_tensors():
    x = torch.randn(10, device=device)
    n = torch.tensor(4, device=device)
    head = x[:n]
    tail = x[n:]
    part = x.narrow(0, 0, 3)
    return head, tail, part, x[-2:]


def assign_values_of_the_cpu():
    x = torch.zeros(3, 3, device=device)
    x[0] = torch.ones(3)
    x[1] = torch.tensor(2.0)
    x[2, 1] = torch.rand(1).item()
    x[:, 0] = torch.arange(3)
    return x


def nonzero_in_all_forms():
    x = torch.randint(0, 2, (4, 4), device=device)
    a = x.nonzero()
    b = torch.nonzero(x, as_tuple=True)
    c = torch.where(x > 0)
    d = torch.argwhere(x)
    e = torch.count_nonzero(x)
    return len(a), b, c, d.shape, e


def gather_and_scatter():
    x = torch.randn(4, 6, device=device)
    idx = torch.randint(6, (4, 2), device=device)
    g = x.gather(1, idx)
    s = torch.zeros_like(x).scatter_(1, idx, g)
    s.scatter_add_(1, idx, torch.ones_like(g))
    s.scatter_(1, idx, 1.5)
    r = torch.zeros(6, device=device).scatter_reduce(
        0, idx[:, 0], g[:, 0], reduce="amax"
    )
    return s, r, torch.take_along_dim(x, idx, 1), torch.take(x, idx)


def index_methods():
    x = torch.randn(4, 6, device=device)
    idx = torch.tensor([0, 3], device=device)
    a = x.index_select(0, idx)
    x.index_add_(0, idx, a, alpha=0.5)
    x.index_fill_(1, idx, 0.0)
    x.index_copy_(0, idx, a)
    return x.index_select(1, torch.tensor([1]).cuda())


def unique_in_all_forms():
    x = torch.randint(0, 5, (12,), device=device)
    a = torch.unique(x)
    b, inverse = torch.unique(x, return_inverse=True)
    c, inv, counts = x.unique(sorted=True, return_inverse=True, return_counts=True)
    d = torch.unique_consecutive(x)
    e, rows = torch.unique(x.view(6, 2), dim=0, return_inverse=True)
    return a.numel(), inverse, counts.max(), d, e, rows


def segments_by_repeats():
    x = torch.randn(3, 4, device=device)
    repeats = torch.tensor([1, 2, 3], device=device)
    a = torch.repeat_interleave(x, repeats, dim=0)
    b = torch.repeat_interleave(x, repeats, dim=0, output_size=6)
    c = x.repeat_interleave(2, dim=0)
    return a, b, c


def splits():
    x = torch.randn(10, 4, device=device)
    sizes = torch.tensor([2, 3, 5], device=device)
    a = x.split(sizes.tolist())
    b = x.chunk(2)
    c = torch.tensor_split(x, (2, 5))
    d = torch.split(x, 4)
    return [t.sum() for t in (*a, *b, *c, *d)]


def segment_reductions():
    x = torch.randn(6, 3, device=device)
    group = torch.tensor([0, 0, 1, 1, 2, 2], device=device)
    n = int(group.max()) + 1
    out = torch.zeros(n, 3, device=device).index_add(0, group, x)
    count = torch.bincount(group, minlength=n).clamp(min=1)
    return out / count[:, None]


def segment_reductions_of_known_size():
    x = torch.randn(6, 3, device=device)
    group = torch.tensor([0, 0, 1, 1, 2, 2], device=device)
    out = torch.zeros(3, 3, device=device).index_reduce_(
        0, group, x, "mean", include_self=False
    )
    lengths = torch.tensor([2, 2, 2], device=device)
    seg = torch.segment_reduce(x, "sum", lengths=lengths, axis=0, unsafe=True)
    return out + seg


def mesh_and_diagonals():
    i = torch.arange(4, device=device)
    gx, gy = torch.meshgrid(i, i, indexing="ij")
    grid = torch.stack([gx, gy], -1).view(-1, 2)
    tri = torch.triu_indices(4, 4, 1, device=device)
    a = (gx + gy).float()
    upper = a[tri[0], tri[1]]
    a.fill_diagonal_(0)
    a.diagonal().add_(1)
    return grid, upper, torch.tril(a), torch.combinations(i, 2)


def iterate_over_rows():
    x = torch.randn(3, 2, device=device)
    out = []
    for row in x:
        out.append(row * 2)
    for a, b in x:
        out.append(a - b)
    first, *rest = x.unbind(0)
    return out, first, rest


def iterate_over_values():
    lengths = torch.tensor([3, 1, 2], device=device)
    out = []
    for n in lengths:
        out.append(torch.zeros(n, device=device))
    for n in lengths.tolist():
        out.append(torch.ones(n, device=device))
    return out


def sizes_from_tensors():
    n = torch.tensor(3, device=device)
    a = torch.zeros(int(n), 2, device=device)
    b = torch.arange(n, device=device)
    c = a.expand(2, -1, -1)
    d = torch.full((2, 2), n, device=device)
    e = torch.linspace(0, n, 5, device=device)
    for _ in range(n):
        a = a + 1
    return a, b, c, d, e


def search_and_sort():
    edges = torch.linspace(0, 1, 11, device=device)
    x = torch.rand(20, device=device)
    i = torch.searchsorted(edges, x)
    v, order = x.sort(stable=True)
    k, at = x.kthvalue(5)
    top = x.topk(3).indices
    rank = torch.empty_like(order)
    rank[order] = torch.arange(20, device=device)
    lowest = torch.lobpcg if False else x.argmin()
    return i, v, k, at, top, rank, lowest, torch.msort(x), torch.isin(order, top)
