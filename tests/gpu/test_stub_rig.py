"""What the stub libraries of CUDA do for torch: these tests run on them alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_gpuperf.devices.cuda.device import CudaDevice


pytestmark = [pytest.mark.gpu, pytest.mark.stub]


def printed(program: str, **settings: str) -> str:
    """What *program* prints in a process with these settings."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"import torch\n{program}"],
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_fills_comparisons_and_sums_read_back_right() -> None:
    x = torch.full((5,), 3.0, device="cuda")

    assert (x.sum().item(), x.mean().item()) == (15.0, 3.0)
    assert bool((x < 10).all())
    assert not bool((x == 4).any())
    assert torch.ones(3, device="cuda").tolist() == [1.0, 1.0, 1.0]


def test_small_copies_keep_their_values_on_the_way() -> None:
    there = torch.tensor([1, 2, 3]).to("cuda")

    assert there.clone().cpu().tolist() == [1, 2, 3]


def test_what_no_stub_computes_reads_as_zero_and_not_as_what_lay_there() -> None:
    x = torch.full((5,), 3.0, device="cuda")

    assert x.exp().tolist() == [0.0] * 5
    assert x.nonzero().shape == (0, 1)


MIRROR = {"GPUPERF_STUB_VALUES": "mirror"}


def test_the_mirror_trains_a_model_as_the_cpu_does() -> None:
    # A bias in front of a batch norm has a gradient of rounding errors, which Adam makes as
    # large as any other: its values differ between two CPUs.
    program = """
from copy import deepcopy
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                      nn.Flatten(), nn.Linear(4 * 6 * 6, 5))
images, labels = torch.rand(4, 3, 8, 8), torch.randint(5, (4,))

def train(model, device):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    return [loss.detach(), *model.state_dict().values()]

here, there = train(deepcopy(model), 'cpu'), train(model.cuda(), 'cuda')
torch.testing.assert_close([x.cpu() for x in there], here)
print(here[0] > 0)
"""

    assert printed(program, **MIRROR) == "tensor(True)\n"


def test_the_mirror_knows_sizes_that_torch_reads_from_the_device() -> None:
    program = """
x = torch.tensor([3, 1, 3, 2], device='cuda')
print(x[x > 1].tolist(), x.nonzero().shape, (x > 2).nonzero().tolist(), x.max().item())
print([part.tolist() for part in torch.unique(x, return_counts=True)])
print(torch.unique(x > 1).tolist(), torch.unique(x.view(4, 1), dim=0).tolist())
print(torch.ones(2, device='cuda').repeat_interleave(x[:2]).shape, torch.isin(x, x[:1]).tolist())
"""

    assert printed(program, **MIRROR).splitlines() == [
        "[3, 3, 2] torch.Size([4, 1]) [[0], [2]] 3",
        "[[1, 2, 3], [1, 1, 2]]",
        "[False, True] [[1], [2], [3]]",
        "torch.Size([4]) [True, False, True, False]",
    ]


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
def test_the_mirror_has_equivalents_of_kernels_that_cuda_alone_has(layer: str) -> None:
    program = f"""
from copy import deepcopy
torch.manual_seed(0)
here = torch.nn.{layer}(4, 6, num_layers=2, bidirectional=True)
there, rows = deepcopy(here).cuda(), torch.rand(3, 2, 4)

def results(layer, rows):
    output, _ = layer(rows)
    heads = output.reshape(3, 2, 2, 6).transpose(1, 2)
    attended = torch.nn.functional.scaled_dot_product_attention(heads, heads, heads)
    attended.square().sum().backward()
    return [attended.detach(), *(weight.grad for weight in layer.parameters())]

torch.testing.assert_close([x.cpu() for x in results(there, rows.cuda())], results(here, rows))
"""

    assert printed(program, **MIRROR) == ""


def test_the_mirror_computes_again_at_each_replay_of_a_graph() -> None:
    program = """
x, graph = torch.ones(2, device='cuda'), torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x.mul_(2)
    y = x.exp() * 0 + x
print(x.tolist())
for _ in range(3):
    graph.replay()
print(x.tolist(), y.tolist())
"""

    assert printed(program, **MIRROR) == "[1.0, 1.0]\n[8.0, 8.0] [8.0, 8.0]\n"


def test_the_mirror_draws_the_same_numbers_for_a_seed_and_leaves_the_cpu_s_alone() -> (
    None
):
    program = """
def drawn(device):
    torch.manual_seed(1)
    x = torch.rand(3, device=device), torch.nn.functional.dropout(torch.ones(99, device=device))
    return [part.tolist() for part in x]

first = drawn('cuda')
assert drawn('cuda') == first and 0 < sum(first[0]) < 3 and 0.0 in first[1] and 2.0 in first[1]
print(torch.rand(1).item())
torch.manual_seed(1)
print(torch.rand(1).item())
"""
    after, alone = printed(program, **MIRROR).splitlines()

    assert after == alone


COUNTED = """
import torch.nn.functional as F
layer = torch.nn.Linear(8, 8, device='cuda')
optimizer = torch.optim.Adam(layer.parameters())
for _ in range(3):
    rows = torch.rand(16, 8).cuda()
    loss = F.mse_loss(F.dropout(layer(rows)), rows)
    loss.backward()
    optimizer.step()
    loss.item(), layer.weight.cpu()
x = torch.cuda.memory_stats()
print(x['allocation.all.allocated'], x['allocated_bytes.all.peak'], x['segment.all.current'])
"""


def test_the_mirror_calls_nothing_of_cuda_s(tmp_path: Path) -> None:
    def seen(name: str, **settings: str) -> tuple[str, str]:
        counts = tmp_path / name
        said = printed(COUNTED, GPUPERF_STUB_COUNTS=str(counts), **settings)
        return said, counts.read_text()

    zeros, mirrored = seen("zeros"), seen("mirrored", **MIRROR)

    assert "cudaLaunchKernel" in zeros[1]
    assert mirrored == zeros


def test_what_the_mirror_cannot_compute_is_zero_and_listed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = """
seed = torch.zeros(2, dtype=torch.uint64, device='cuda')
print(torch.ops.aten._philox_key_split(seed, 3).tolist())
"""
    printed(program, GPUPERF_STUB_LOG=str(log), **MIRROR)

    assert "_philox_key_split in the mirror of values" in log.read_text()


def test_the_mirror_leaves_out_what_is_larger_than_is_asked_for() -> None:
    program = """
small, large = torch.ones(256, device='cuda'), torch.ones(512, device='cuda')
print((small + 1).sum().item(), (large + 1).sum().item())
"""

    assert printed(program, **MIRROR) == "512.0 1024.0\n"
    assert printed(program, GPUPERF_STUB_MIRROR_MOST="1K", **MIRROR) == "512.0 0.0\n"


RANKS = """
import os, torch.distributed as dist, torch.multiprocessing as mp

def rank_of_two(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group('nccl', init_method='file://' + os.environ['MEETING'],
                            rank=rank, world_size=2)
    own = torch.tensor([1.0, 10.0, 2.0, 3.0], device='cuda') + rank
    part, got = torch.zeros(2, device='cuda'), torch.zeros(4, device='cuda')
    dist.reduce_scatter_tensor(part, own)
    assert part.tolist() == [[3, 21], [5, 7]][rank], part
    pair = [dist.P2POp(dist.irecv, got, 1 - rank), dist.P2POp(dist.isend, own, 1 - rank)]
    for request in dist.batch_isend_irecv(pair):
        request.wait()
    assert (got - own).tolist() == [1 - 2 * rank] * 4, got
    dist.all_to_all_single(got, own)
    assert got.tolist() == [[1, 10, 2, 11], [2, 3, 3, 4]][rank], got
    wide = torch.full((100_000,), 1.5, dtype=torch.bfloat16, device='cuda')
    dist.all_reduce(wide)
    assert bool((wide == 3).all())
    dist.destroy_process_group()

if __name__ == '__main__':
    mp.spawn(rank_of_two, nprocs=2)
    print('both')
"""


def test_ranks_scatter_send_and_receive_values(tmp_path: Path) -> None:
    program = tmp_path / "ranks.py"  # spawned processes import it
    program.write_text(f"import torch\n{RANKS}")
    settings = {"GPUPERF_STUB_DEVICES": "2", "MEETING": str(tmp_path / "meeting")}

    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(program)],
        env={**os.environ, **settings, **MIRROR},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "both\n"


def test_a_limit_of_memory_gives_torch_s_own_error() -> None:
    program = """
try:
    torch.empty(2**30, device='cuda')
except torch.OutOfMemoryError as error:
    print(error)
"""

    assert "GPU 0 has a total capacity of 2.00 GiB" in printed(
        program, GPUPERF_STUB_MEMORY="2G"
    )


def test_a_machine_has_as_many_gpus_of_a_model_as_are_asked_for() -> None:
    program = """
print(torch.cuda.device_count(), torch.cuda.get_device_name(2))
x = torch.zeros(2**20, device='cuda:2')
print(torch.cuda.memory_allocated(0), torch.cuda.memory_allocated(2))
"""
    settings = {"GPUPERF_STUB_DEVICES": "3", "GPUPERF_STUB_MODEL": "a100"}

    assert printed(program, **settings) == "3 NVIDIA A100-SXM4-40GB\n0 4194304\n"


def test_to_wait_for_all_gpus_makes_no_context_on_an_unused_one() -> None:
    program = """
from pytest_gpuperf.devices.cuda.device import CudaDevice
torch.cuda.set_device(1)
device = CudaDevice.open()
for index in (1, 2):
    torch.ones(1, device=f'cuda:{index}')
    device.synchronize()
    print([torch._C._cuda_hasPrimaryContext(i) for i in (1, 2, 3)])
"""

    assert printed(program, GPUPERF_STUB_DEVICES="4").splitlines() == [
        "[True, False, False]",
        "[True, True, False]",
    ]


def test_a_text_makes_other_uuids_in_torch_and_in_nvml() -> None:
    program = """
from pytest_gpuperf.devices.cuda.nvml import open_nvml
uuid = str(torch.cuda.get_device_properties(0).uuid)
assert open_nvml(uuid) is not None
print(uuid)
"""
    own = str(torch.cuda.get_device_properties(0).uuid)

    assert printed(program, GPUPERF_STUB_UUID="another").strip() != own


def test_a_replayed_graph_launches_what_was_captured() -> None:
    x = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.add_(1)
        x.mul_(2)

    trace = CudaDevice.open().profile(graph.replay, [()])

    assert len([event for event in trace if event.get("cat") == "kernel"]) == 2
    launches = [e for e in trace if e.get("name") == "cudaGraphLaunch"]
    assert len(launches) == 1


@pytest.mark.parametrize("layer", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_layers_of_cudnn_find_their_weights(
    layer: type[torch.nn.RNNBase],
) -> None:
    recurrent = layer(4, 8, num_layers=2, bidirectional=True, device="cuda")

    output, _ = recurrent(torch.rand(3, 2, 4, device="cuda"))
    output.sum().backward()

    assert output.shape == (3, 2, 16)
    assert all(p.grad is not None for p in recurrent.parameters())


@pytest.mark.parametrize(
    ("asked", "bytes_beside"),
    [
        ("0", 0),
        ("3M", 3 * 2**20),
        ("operands", 4 * (4 * 8 * 32**2 + 16 * 8 * 3**2 + 4 * 16 * 32**2)),
    ],
)
def test_a_convolution_of_cudnn_asks_for_the_workspace_that_is_set(
    asked: str, bytes_beside: int
) -> None:
    program = """
layer = torch.nn.Conv2d(8, 16, 3, padding=1, device='cuda')
images = torch.rand(4, 8, 32, 32, device='cuda')
layer(images)
torch.cuda.reset_peak_memory_stats()
result = layer(images)
counts = torch.cuda.memory_stats()
print(counts['requested_bytes.all.peak'] - counts['requested_bytes.all.current'])
"""

    assert printed(program, GPUPERF_STUB_CUDNN_WORKSPACE=asked) == f"{bytes_beside}\n"


def test_the_virtual_clock_gives_the_same_times_again() -> None:
    program = """
a = torch.rand(1024, 1024, device='cuda')
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
start.record()
for _ in range(10):
    a @ a
    a.sum().item()
end.record()
end.synchronize()
print(start.elapsed_time(end))
"""
    first, second = (printed(program, GPUPERF_STUB_CLOCK="virtual") for _ in range(2))

    assert float(first) > 0
    assert first == second


def test_the_host_s_clock_can_be_the_virtual_one() -> None:
    program = """
import time
a = torch.rand(1024, 1024, device='cuda')
torch.cuda.synchronize()
start = time.perf_counter_ns()
for _ in range(10):
    a @ a
torch.cuda.synchronize()
time.sleep(0.01)
print(time.perf_counter_ns() - start)
"""
    settings = {
        "GPUPERF_STUB_CLOCK": "virtual",
        "LD_PRELOAD": "libgpuperf_clock.so",
    }
    first, second = (printed(program, **settings) for _ in range(2))

    assert int(first) > 10_000_000
    assert first == second


def test_on_a_slower_machine_calls_and_kernels_take_so_many_times_as_long() -> None:
    program = """
x = torch.ones(1024, device='cuda')
start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
torch.cuda.synchronize()
start.record()
for _ in range(100):
    x.mul_(2)
end.record()
end.synchronize()
print(start.elapsed_time(end))
"""
    once, hundredfold = (
        float(printed(program, GPUPERF_STUB_CLOCK="virtual", GPUPERF_STUB_SLOWER=times))
        for times in ("1", "100")
    )

    assert once > 0
    assert hundredfold == pytest.approx(100 * once, rel=1e-3)


def test_expandable_segments_grow() -> None:
    program = """
x = [torch.empty(2**20, device='cuda') for _ in range(40)]
print(torch.cuda.memory_reserved() // 2**20)
"""
    settings = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}

    assert printed(program, **settings) == "160\n"


def test_a_tensor_is_shared_with_another_process() -> None:
    program = """
import torch.multiprocessing as mp
if __name__ == '__main__':
    x = torch.ones(1000, device='cuda')
    child = mp.get_context('spawn').Process(target=torch.Tensor.numel, args=(x,))
    child.start()
    child.join()
    print(child.exitcode)
"""

    assert printed(program) == "0\n"


WATCHED = """
import sys
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.step import Subject
from pytest_gpuperf.measure.timing import time_round
device = CudaDevice.open()
x = torch.ones(8, device="cuda")
device.disturbance()
print(time_round(device, Subject(step=x.zero_), 100).disturbance)
print(*device.remarks())
"""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param({}, "None", id="alone"),
        pytest.param(
            {"GPUPERF_STUB_THROTTLE": "0x40"},
            "the GPU was throttled by hardware thermal slowdown",
            id="a counter runs",
        ),
        pytest.param(
            {"GPUPERF_STUB_THROTTLE": "0x80", "GPUPERF_STUB_NO_COUNTERS": "1"},
            "the GPU was throttled by power brake",
            id="no counters",
        ),
        pytest.param({"GPUPERF_STUB_NEIGHBOUR": "4000001"}, "None", id="a context"),
        pytest.param(
            {
                "GPUPERF_STUB_NEIGHBOUR": "4000001",
                "GPUPERF_STUB_NEIGHBOUR_PERCENT": "5",
            },
            "other processes computed on the GPU (pid 4000001)",
            id="a process that computes",
        ),
        pytest.param(
            {
                "GPUPERF_STUB_NEIGHBOUR": str(os.getpid()),
                "GPUPERF_STUB_NEIGHBOUR_PERCENT": "5",
            },
            "None",
            id="the process that this one comes from",
        ),
        pytest.param(
            {"GPUPERF_STUB_NEIGHBOUR": "4000001", "GPUPERF_STUB_NO_SAMPLES": "1"},
            "None\nother processes have the GPU open (pid 4000001); the driver does not "
            "say here whether they compute",
            id="a context where nobody says who computes",
        ),
    ],
)
def test_a_round_is_disturbed_by_what_happened_in_it(
    settings: dict[str, str], said: str
) -> None:
    assert printed(WATCHED, **settings).strip() == said


CLOCKED = """
from pytest_gpuperf.devices.cuda.device import CudaDevice
from pytest_gpuperf.measure.plan import Deadline, Subject
from pytest_gpuperf.measure.timing import clock_under_load
device = CudaDevice.open()
step = Subject(step=lambda: torch.cuda._sleep(40_000_000))
device.synchronize()
print(device.clock_mhz(), clock_under_load(device, step, 20.0, Deadline.after(60, device.now_ns)))
"""


def test_the_clock_that_counts_is_read_while_the_gpu_works() -> None:
    said = printed(CLOCKED, GPUPERF_STUB_MHZ="1500", GPUPERF_STUB_IDLE_MHZ="345")

    assert said.split() == ["345", "1500"]
