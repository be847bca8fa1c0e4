"""Batches on their way to the GPU, and results on theirs back."""

import random

import numpy as np
import torch
from torch.utils.data import DataLoader
from torch.utils.data import TensorDataset
from torch.utils.data import WeightedRandomSampler
from torch.utils.data import random_split


def set_of_pairs(n=12):
    return TensorDataset(torch.randn(n, 6), torch.arange(n) % 3)


def pinned_loader():
    for x, y in DataLoader(set_of_pairs(), batch_size=4, shuffle=True, pin_memory=True):
        x = x.to("cuda", non_blocking=True)
        y = y.to("cuda", non_blocking=True)
        x.mean() + y.sum()


def pageable_loader():
    for x, y in DataLoader(set_of_pairs(), batch_size=4):
        x, y = x.cuda(), y.cuda()
        (x.mean() + y.float().mean()).square()


def pageable_loader_non_blocking():
    for x, y in DataLoader(set_of_pairs(), batch_size=6):
        x = x.to(device="cuda", non_blocking=True)
        y = y.to(device="cuda", non_blocking=True)


def nested_batch():
    def to_device(batch, device):
        if isinstance(batch, torch.Tensor):
            return batch.to(device)
        if isinstance(batch, dict):
            return {k: to_device(v, device) for k, v in batch.items()}
        if isinstance(batch, (list, tuple)):
            return type(batch)(to_device(v, device) for v in batch)
        return batch

    batch = {
        "image": torch.rand(2, 3, 8, 8),
        "boxes": [torch.rand(3, 4), torch.rand(1, 4)],
        "id": ["a", "b"],
        "scale": torch.tensor(2.0),
    }
    return to_device(batch, torch.device("cuda"))


def labels_from_lists():
    labels = torch.tensor([1, 0, 2, 2], device="cuda")
    weights = torch.as_tensor([0.5, 0.25, 0.25]).to("cuda")
    ids = torch.LongTensor([3, 1]).cuda()
    empty = torch.tensor([], device="cuda")
    return weights[labels].sum(), ids, empty


def from_numpy_arrays():
    frame = np.random.randint(0, 255, (8, 8, 3), dtype=np.uint8)
    image = (
        torch.from_numpy(frame)
        .permute(2, 0, 1)
        .float()
        .div(255)
        .unsqueeze(0)
        .to("cuda")
    )
    mean = torch.tensor([0.485, 0.456, 0.406], device="cuda").view(1, 3, 1, 1)
    out = (image - mean).squeeze(0).permute(1, 2, 0)
    return (out.cpu().numpy() * 255).astype(np.uint8)


def to_numpy_in_every_way():
    x = torch.randn(4, device="cuda", requires_grad=True)
    a = x.detach().cpu().numpy()
    b = np.array(x.tolist())
    c = x.data.cpu().double().numpy()
    d = x.detach().to("cpu").numpy().mean()
    return a, b, c, d


def pinned_by_hand():
    host = torch.empty(4, 16, pin_memory=True)
    host.uniform_()
    dev = torch.empty(4, 16, device="cuda")
    dev.copy_(host, non_blocking=True)
    dev.mul_(2)
    host.copy_(dev, non_blocking=True)
    torch.cuda.current_stream().synchronize()
    return host.sum()


def pinned_and_blocking():
    host = torch.randn(8, 8).pin_memory()
    dev = host.to("cuda")
    back = torch.empty_like(host, pin_memory=True)
    back.copy_(dev)
    return back[0, 0].item()


def prefetch_on_a_side_stream():
    stream = torch.cuda.Stream()
    batches = [torch.randn(4, 4).pin_memory() for _ in range(3)]
    pending = None
    for host in [*batches, None]:
        ready = pending
        torch.cuda.current_stream().wait_stream(stream)
        if ready is not None:
            ready.record_stream(torch.cuda.current_stream())
        if host is not None:
            with torch.cuda.stream(stream):
                pending = host.cuda(non_blocking=True)
        if ready is not None:
            ready.sum()


def results_off_the_gpu_without_waiting():
    x = torch.randn(64, device="cuda")
    maybe = x.to("cpu", non_blocking=True)
    pinned = torch.empty(64, pin_memory=True)
    pinned.copy_(x.relu(), non_blocking=True)
    done = torch.cuda.Event()
    done.record()
    done.synchronize()
    return maybe, pinned.max()


def split_and_weighted_sampling():
    data = set_of_pairs(20)
    train, val = random_split(data, [15, 5], generator=torch.Generator().manual_seed(0))
    counts = torch.bincount(data.tensors[1])
    sampler = WeightedRandomSampler((1.0 / counts)[data.tensors[1]], 8)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        x.cuda().mean()
    for x, _ in DataLoader(val, batch_size=5):
        pred = x.to("cuda").argmax(-1)
    return pred.tolist(), len(train)


def tensors_that_live_on_the_gpu():
    images = torch.randn(32, 3, 8, 8, device="cuda")
    labels = torch.randint(5, (32,), device="cuda")
    perm = torch.randperm(32, device="cuda")
    for i in range(0, 32, 8):
        idx = perm[i : i + 8]
        x, y = images[idx], labels[idx]
        if random.random() < 2:
            x = x.flip(-1)
        x.mean() + y.float().mean()


def index_by_a_permutation_of_the_cpu():
    images = torch.randn(32, 8, device="cuda")
    order = torch.randperm(32)
    for chunk in order.split(8):
        images[chunk].sum()
    np_idx = np.arange(4)
    return images[np_idx], images[[1, 2, 3]]


def crops_and_noise():
    x = torch.rand(4, 3, 12, 12, device="cuda")
    top = torch.randint(0, 4, (4,))
    crops = torch.stack([x[i, :, t : t + 8, t : t + 8] for i, t in enumerate(top)])
    offset = int(torch.randint(0, 4, (1,)))
    return crops[..., offset:], crops + 0.1 * torch.randn(crops.shape, device="cuda")


def mixup():
    x = torch.rand(8, 3, 4, 4, device="cuda")
    y = torch.randint(3, (8,), device="cuda")
    lam = np.random.beta(0.2, 0.2)
    index = torch.randperm(x.size(0)).cuda()
    mixed = lam * x + (1 - lam) * x[index, :]
    a, b = y, y[index]
    lam_dev = torch.distributions.Beta(0.2, 0.2).sample().to(x.device)
    return mixed * lam_dev, a, b


def collate_with_padding():
    seqs = [torch.arange(n) for n in (3, 5, 2)]
    lengths = torch.tensor([len(s) for s in seqs])
    padded = torch.nn.utils.rnn.pad_sequence(
        seqs, batch_first=True, padding_value=-1
    ).cuda()
    mask = torch.arange(padded.size(1), device="cuda") < lengths.to("cuda").unsqueeze(1)
    return padded.masked_fill(~mask, 0)


def many_small_copies_in_a_loop():
    out = []
    for i in range(3):
        t = torch.tensor(float(i)).cuda()
        out.append(t * 2)
    return torch.stack(out).cpu()


def type_and_place_at_once():
    x = torch.arange(6)
    a = x.to("cuda", torch.float16)
    b = x.cuda().half()
    c = a.to("cpu", torch.float64)
    d = torch.zeros(3).type(torch.cuda.FloatTensor)
    e = a.to(b)
    return a, c, d, e, b.type_as(d)


def same_place_is_no_copy():
    x = torch.randn(3, device="cuda")
    y = x.cuda().to("cuda").to(x.device, non_blocking=True)
    z = torch.as_tensor(y, device="cuda")
    return z.contiguous().data_ptr() == x.data_ptr()
