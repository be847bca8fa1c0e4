"""Sparse tensors, transforms and linear algebra."""

import torch
import torch.nn.functional as F


dev = "cuda"


def sparse_graph_convolution():
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]], device=dev)
    w = torch.ones(4, device=dev)
    adj = torch.sparse_coo_tensor(edges, w, (4, 4))
    x = torch.randn(4, 8, device=dev)
    h = torch.sparse.mm(adj, x)
    h2 = adj @ h
    deg = torch.sparse.sum(adj, 1).to_dense()
    return h2 / deg.clamp(min=1)[:, None]


def sparse_coalesce_and_values():
    i = torch.tensor([[0, 0, 1], [2, 2, 0]], device=dev)
    s = torch.sparse_coo_tensor(
        i, torch.ones(3, device=dev), (2, 3), check_invariants=False
    )
    c = s.coalesce()
    return c.indices(), c.values(), s.to_dense(), c._nnz()


def sparse_from_dense():
    x = torch.eye(4, device=dev)
    a = x.to_sparse()
    b = x.to_sparse_csr()
    return a._nnz(), b.values(), b.crow_indices()


def message_passing():
    src = torch.randint(6, (20,), device=dev)
    dst = torch.randint(6, (20,), device=dev)
    x = torch.randn(6, 4, device=dev, requires_grad=True)
    msg = x[src]
    agg = torch.zeros(6, 4, device=dev).index_add(0, dst, msg)
    deg = torch.zeros(6, device=dev).scatter_add(0, dst, torch.ones(20, device=dev))
    out = agg / deg.clamp(min=1).unsqueeze(-1)
    alpha = torch.randn(20, device=dev)
    mx = torch.full((6,), float("-inf"), device=dev).scatter_reduce(
        0, dst, alpha, "amax"
    )
    e = (alpha - mx[dst]).exp()
    att = e / torch.zeros(6, device=dev).index_add(0, dst, e)[dst]
    (out.sum() + att.sum()).backward()


def graph_pooling_over_a_batch():
    batch = torch.tensor([0, 0, 1, 1, 1, 2], device=dev)
    x = torch.randn(6, 4, device=dev)
    size = int(batch[-1]) + 1
    pooled = x.new_zeros(size, 4).scatter_reduce_(
        0, batch[:, None].expand_as(x), x, "mean", include_self=False
    )
    loops = torch.arange(6, device=dev).repeat(2, 1)
    edge_index = torch.cat([torch.randint(6, (2, 8), device=dev), loops], 1)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]
    return pooled, edge_index.size(1)


def spectrogram():
    wave = torch.randn(2, 1024, device=dev)
    window = torch.hann_window(256, device=dev)
    spec = torch.stft(wave, 256, 64, window=window, return_complex=True)
    mag = spec.abs().pow(2)
    mel = torch.rand(40, 129).to(dev) @ mag
    log = torch.log10(mel.clamp(min=1e-10))
    log = torch.maximum(log, log.max() - 8.0)
    back = torch.istft(spec, 256, 64, window=window, length=1024)
    return (log + 4.0) / 4.0, back


def fourier_mixing():
    x = torch.randn(2, 16, 8, device=dev, requires_grad=True)
    y = torch.fft.fft2(x).real
    f = torch.fft.rfft(x, dim=1)
    low = f.clone()
    low[:, 4:] = 0
    z = torch.fft.irfft(low, n=16, dim=1)
    g = torch.fft.fftshift(torch.fft.fftfreq(16, device=dev))
    (y.sum() + z.sum() + g.sum()).backward()


def fft_convolution():
    u = torch.randn(2, 4, 32, device=dev)
    k = torch.randn(4, 32, device=dev)
    n = 64
    y = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(k, n=n), n=n)[..., :32]
    return y + u * torch.randn(4, 1, device=dev)


def whitening_by_cholesky():
    x = torch.randn(64, 6, device=dev)
    cov = torch.cov(x.T) + 1e-3 * torch.eye(6, device=dev)
    chol = torch.linalg.cholesky(cov)
    white = torch.linalg.solve_triangular(chol, (x - x.mean(0)).T, upper=False)
    logdet = 2 * chol.diagonal().log().sum()
    return white, logdet


def whitening_unchecked():
    cov = torch.eye(6, device=dev) * 2
    chol, info = torch.linalg.cholesky_ex(cov)
    inv = torch.cholesky_inverse(chol)
    lu, _, _ = torch.linalg.lu_factor_ex(cov)
    x, _ = torch.linalg.solve_ex(cov, torch.ones(6, device=dev))
    return info, inv, lu, x


def principal_components():
    x = torch.randn(32, 8, device=dev)
    x = x - x.mean(0)
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    share = s.square() / s.square().sum()
    rank = int((share.cumsum(0) < 0.95).sum()) + 1
    evals, evecs = torch.linalg.eigh(x.T @ x)
    return u[:, :rank], evals.flip(0), evecs


def determinants_and_inverses():
    a = torch.eye(4, device=dev) * 3
    inv = torch.inverse(a)
    sign, logabs = torch.linalg.slogdet(a)
    det = torch.det(a)
    x = torch.linalg.solve(a, torch.ones(4, 2, device=dev))
    q, r = torch.linalg.qr(a)
    return inv, sign * logabs, det, x, q @ r


def least_squares():
    a = torch.randn(10, 3, device=dev)
    b = torch.randn(10, 1, device=dev)
    x = torch.linalg.lstsq(a, b).solution
    pinv = torch.linalg.pinv(a)
    norm = torch.linalg.matrix_norm(a)
    return x, pinv @ b, norm, torch.linalg.vector_norm(a, ord=1)


def orthogonal_updates():
    g = torch.randn(8, 8, device=dev)
    x = g.bfloat16()
    x = x / (x.norm() + 1e-7)
    for a, b, c in [(3.4445, -4.7750, 2.0315)] * 3:
        m = x @ x.T
        x = a * x + (b * m + c * m @ m) @ x
    w = torch.empty(8, 8, device=dev)
    torch.nn.init.orthogonal_(w)
    return x, w


def products_of_all_kinds():
    a = torch.randn(3, 4, 5, device=dev)
    b = torch.randn(3, 5, 2, device=dev)
    c = torch.bmm(a, b)
    d = torch.einsum("bij,bjk->bik", a, b)
    e = torch.baddbmm(c, a, b, alpha=0.5)
    f = torch.tensordot(a, b, dims=([2], [1]))
    g = torch.kron(torch.eye(2, device=dev), a[0])
    h = torch.matrix_exp(torch.zeros(3, 3, device=dev))
    return (
        d + e,
        f,
        g,
        h,
        torch.linalg.multi_dot([a[0], b[0], torch.ones(2, 2, device=dev)]),
    )


def iterative_solver():
    a = torch.eye(6, device=dev) * 4
    b = torch.randn(6, device=dev)
    x = torch.zeros(6, device=dev)
    r = b - a @ x
    p, rs = r.clone(), r @ r
    for _ in range(3):
        ap = a @ p
        alpha = rs / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        if torch.sqrt(new) < 1e-12:
            pass
        p, rs = r + (new / rs) * p, new
    return x


def sinkhorn():
    cost = torch.cdist(torch.rand(5, 2, device=dev), torch.rand(5, 2, device=dev))
    u = torch.zeros(5, device=dev)
    v = torch.zeros(5, device=dev)
    for _ in range(4):
        u = -torch.logsumexp(-cost / 0.1 + v[None], 1)
        v = -torch.logsumexp(-cost / 0.1 + u[:, None], 0)
    plan = torch.exp(u[:, None] + v[None] - cost / 0.1)
    err = (plan.sum(1) - 1).abs().sum()
    return (plan * cost).sum(), err.item() < 1e-2


def polynomials_and_special():
    x = torch.linspace(0.1, 2, 20, device=dev)
    y = torch.lgamma(x) + torch.digamma(x) + torch.special.i0(x) + torch.erf(x)
    z = torch.cumprod(x, 0) + torch.logcumsumexp(x, 0)
    k = F.conv1d(x.view(1, 1, -1), torch.ones(1, 1, 3, device=dev) / 3, padding=1)
    n = torch.nan_to_num(torch.log(x - 1), nan=0.0)
    d = torch.diff(x, prepend=x[:1])
    t = torch.nn.functional.avg_pool1d(k, 2)
    return (
        y,
        z,
        n,
        d,
        t,
        torch.gradient(x)[0],
        torch.nansum(n),
        torch.renorm(x.view(4, 5), 2, 0, 1.0),
    )
