"""Memory of recurrent layers, of cuDNN and of torch's own, to the byte.

The figures are of torch 2.13 for CUDA over stub libraries (``tests/stub_cuda``): what its
allocator said of the third of three steps. What cuDNN keeps for itself is a model, the same
one there and here.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest


torch = pytest.importorskip("torch")

from torch import nn
from torch.nn.utils import rnn

from pytest_gpuperf.devices.simulated import simulated_gpu
from pytest_gpuperf.devices.simulated.memory import LiveMemory, StepMemory
from pytest_gpuperf.devices.simulated.memory_watch import watching_memory


INPUT, HIDDEN, STEPS, ROWS = 24, 40, 7, 3


def first_states(layer: Any) -> list[Any]:
    """Return two, of which an LSTM alone needs the second; both count."""
    ways = layer.num_layers * (2 if layer.bidirectional else 1)
    return [
        torch.zeros(ways, ROWS, size, device="cuda", requires_grad=True)
        for size in (layer.proj_size or HIDDEN, HIDDEN)
    ]


def training(
    kind: Callable[..., Any],
    *,
    is_packed: bool = False,
    with_state: bool = False,
    wants_input: bool = False,
    is_copied: bool = False,
    halves: Any = None,
    **options: Any,
) -> Callable[[], None]:
    """Return a step that trains a layer, as the script did that was run over stub CUDA."""
    layer = kind(INPUT, HIDDEN, **options).cuda()
    layer = copy.deepcopy(layer) if is_copied else layer
    shape = (ROWS, STEPS) if layer.batch_first else (STEPS, ROWS)
    batch = torch.ones(*shape, INPUT, device="cuda", requires_grad=wants_input)
    states = first_states(layer)
    state = (
        (tuple(states) if layer.mode == "LSTM" else states[0]) if with_state else None
    )

    def run() -> Any:
        if not is_packed:
            return layer(batch, state)
        lengths, first = [7, 5, 2], layer.batch_first
        given = rnn.pack_padded_sequence(batch, lengths, batch_first=first)
        output, last = layer(given, state)
        return rnn.pad_packed_sequence(output, batch_first=first)[0], last

    def step() -> None:
        with torch.autocast("cuda", dtype=halves, enabled=halves is not None):
            output, last = run()
            loss = output.float().sum()
            if with_state:
                last = last[0] if isinstance(last, tuple) else last
                loss = loss + last.float().sum()
            del output, last
            loss.backward()
        layer.zero_grad()
        for leaf in (batch, *states):
            leaf.grad = None

    return step


def watched(
    prepare: Callable[[], Callable[[], None]], *, cudnn: bool
) -> tuple[StepMemory, list[int], LiveMemory]:
    """Return the third step's memory, the sizes of what it took, and all that was seen."""
    with simulated_gpu(values=False), watching_memory(from_now=True) as audit:
        step = prepare()
        for _ in range(3):
            with torch.backends.cudnn.flags(enabled=cudnn):
                audit.step(step)
            gc.collect()
        last = audit.memories()[-1]
        events = audit.events[last.first : last.last]
        return last, [e.nbytes for e in events if e.is_birth], audit.live


def peaks(memory: StepMemory) -> tuple[int, int, int]:
    return memory.allocated_bytes, memory.reserved_bytes, memory.requested_bytes


CASES: dict[str, dict[str, Any]] = {
    "one layer": {},
    "two layers": {"num_layers": 2, "batch_first": True},
    "no bias": {"bias": False, "with_state": True, "wants_input": True},
    "both ways": {"bidirectional": True, "num_layers": 2, "wants_input": True},
    "packed": {"is_packed": True, "bidirectional": True, "wants_input": True},
    "halves": {"halves": torch.bfloat16, "num_layers": 2},
}

OF_CUDNN = {
    ("LSTM", "one layer"): (118272, 2097152, 115880),
    ("LSTM", "two layers"): (249344, 2097152, 246856),
    ("LSTM", "no bias"): (157696, 2097152, 155400),
    ("LSTM", "both ways"): (591360, 2097152, 588040),
    ("LSTM", "packed"): (233472, 2097152, 230632),
    ("LSTM", "halves"): (243712, 2097152, 240744),
    ("GRU", "one layer"): (92160, 2097152, 89960),
    ("GRU", "no bias"): (122368, 2097152, 119720),
    ("GRU", "both ways"): (451584, 2097152, 448520),
    ("GRU", "packed"): (181760, 2097152, 178792),
    ("GRU", "halves"): (184320, 2097152, 181544),
    ("RNN", "two layers"): (84992, 2097152, 81736),
    ("RNN", "packed"): (84480, 2097152, 80872),
}

OF_TORCH = {
    ("LSTM", "one layer"): (67289088, 69206016, 67284488),
    ("LSTM", "two layers"): (67407360, 69206016, 67399528),
    ("LSTM", "no bias"): (67286528, 69206016, 67282536),
    ("LSTM", "both ways"): (67770880, 69206016, 67758408),
    ("LSTM", "packed"): (67378176, 69206016, 67369576),
    ("LSTM", "halves"): (67579392, 69206016, 67563496),
    ("GRU", "one layer"): (67248640, 69206016, 67244328),
    ("GRU", "no bias"): (67247616, 69206016, 67243176),
    ("GRU", "both ways"): (67623424, 69206016, 67612968),
    ("GRU", "packed"): (67316224, 69206016, 67309416),
    ("GRU", "halves"): (67481600, 69206016, 67456296),
    ("RNN", "two layers"): (67185152, 69206016, 67180168),
    ("RNN", "packed"): (67184640, 69206016, 67178152),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "case"), OF_CUDNN)
def test_a_layer_of_cudnn_takes_what_torch_takes_around_it(
    kind: str, case: str
) -> None:
    step = partial(training, getattr(nn, kind), **CASES[case])

    memory, _, live = watched(step, cudnn=True)

    assert peaks(memory) == OF_CUDNN[kind, case]
    # What cuDNN itself takes is assumed, and the prediction says so.
    assert live.unchecked


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "case"), OF_TORCH)
def test_without_cudnn_a_layer_takes_what_its_steps_take(kind: str, case: str) -> None:
    step = partial(training, getattr(nn, kind), **CASES[case])

    memory, _, live = watched(step, cudnn=False)

    assert peaks(memory) == OF_TORCH[kind, case]
    assert not live.unchecked


def test_a_projected_layer_has_one_matrix_more() -> None:
    options = {"proj_size": 16, "bidirectional": True, "is_packed": True}
    step = partial(training, nn.LSTM, **options)

    of_cudnn, _, _ = watched(step, cudnn=True)
    of_torch, _, _ = watched(step, cudnn=False)

    assert peaks(of_cudnn) == (175104, 2097152, 171752)
    assert peaks(of_torch) == (67309568, 69206016, 67292936)


def test_what_is_taken_comes_in_torch_s_order() -> None:
    step = partial(training, nn.LSTM, num_layers=2, batch_first=True)

    _, sizes, _ = watched(step, cudnn=True)

    states, inputs, outputs, weights = 960, 2016, 3360, 94720
    kept, work = 33600, 6720
    forward = [states, states, inputs, outputs, states, states, work, kept]
    of_inputs = [states, states, inputs, outputs, inputs, states, states, work]
    assert sizes == [*forward, 4, 4, *of_inputs, inputs, weights, work]


def test_a_copy_of_a_layer_has_its_weights_in_pieces_and_joins_them_each_time() -> None:
    memory, sizes, _ = watched(
        partial(training, nn.LSTM, is_copied=True, wants_input=False), cudnn=True
    )

    assert peaks(memory) == (161280, 2097152, 158120)
    # The weights for the forward pass, and their gradients.
    assert sizes.count(42240) == 2


def test_on_the_device_weights_and_their_gradients_are_one_piece() -> None:
    with simulated_gpu():
        layer = nn.GRU(INPUT, HIDDEN, 2).cuda()
        layer(torch.ones(STEPS, ROWS, INPUT, device="cuda"))[0].sum().backward()

        tensors = [*layer.parameters()]
        grads = [each.grad for each in tensors]
        for parts in (tensors, grads):
            assert len({each.untyped_storage().data_ptr() for each in parts}) == 1
        places = {p.storage_offset(): p.numel() for p in tensors}

    ends = [place + places[place] for place in sorted(places)]
    assert sorted(places) == [0, *ends[:-1]]


def test_states_that_are_not_in_one_piece_are_refused_in_torch_s_words() -> None:
    with simulated_gpu():
        layer = nn.GRU(INPUT, HIDDEN, 2).cuda()
        batch = torch.ones(STEPS, ROWS, INPUT, device="cuda")
        state = torch.ones(ROWS, 2, HIDDEN, device="cuda").transpose(0, 1)

        with pytest.raises(RuntimeError, match="rnn: hx is not contiguous"):
            layer(batch, state)


@pytest.mark.parametrize("cudnn", [True, False])
def test_tensors_on_two_devices_are_refused_in_torch_s_words(*, cudnn: bool) -> None:
    words = "Input and parameter tensors are not at the same device, found input tensor"
    with simulated_gpu(), torch.backends.cudnn.flags(enabled=cudnn):
        layer = nn.LSTM(INPUT, HIDDEN)

        with pytest.raises(RuntimeError, match=words):
            layer(torch.ones(STEPS, ROWS, INPUT, device="cuda"))


def test_tensors_without_values_have_addresses_of_their_own() -> None:
    with simulated_gpu(values=False):
        first, second = (torch.empty(8, device="cuda") for _ in range(2))
        addresses = [first.data_ptr(), first[2:].data_ptr(), second.data_ptr()]

        assert addresses[1] - addresses[0] == 8
        assert len({*addresses, 0}) == 4
        assert torch.empty(0, device="cuda").data_ptr() == 0


# The states of cuDNN's dropout, which torch keeps for the device.


def steps_of(layer: Any, prepare: Callable[[], object] = lambda: None) -> Any:
    """Return waits, what the peak is above the start and what is left, of two steps."""
    batch = torch.randn(16, 40, 64, device="cuda")
    prepare()
    found = []
    for _ in range(2):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with simulated_gpu() as gpu:
            output = layer(batch)[0]
            output.sum().backward()
            del output
            layer.zero_grad()
            waits = gpu.end_step().totals.syncs
        peak = torch.cuda.max_memory_allocated() - before
        found.append((waits, peak, torch.cuda.memory_allocated() - before))
    return found


STATE = 4 * 2**20

DROPPING: dict[str, tuple[type, dict[str, Any]]] = {
    "LSTM": (nn.LSTM, {"num_layers": 2}),
    "GRU both ways": (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    "RNN of one layer, which drops nothing": (nn.RNN, {}),
}


@pytest.mark.filterwarnings("ignore:dropout option adds dropout")
@pytest.mark.parametrize("case", DROPPING)
def test_the_first_training_step_with_dropout_makes_its_states(case: str) -> None:
    kind, options = DROPPING[case]
    with simulated_gpu(), watching_memory(from_now=True):
        plain = kind(64, 128, batch_first=True, **options).cuda()
        (_, _, nothing), (_, peak, _) = steps_of(plain)
        layer = kind(64, 128, batch_first=True, dropout=0.1, **options).cuda()
        layer.eval()
        with torch.no_grad():
            layer(torch.randn(16, 40, 64, device="cuda"))

        first, second = steps_of(layer.train())

    assert nothing == 0
    assert first == (1, peak + STATE, STATE)
    assert second == (0, peak, 0)


SEEDS: dict[str, Callable[[], object]] = {
    "torch.manual_seed": lambda: torch.manual_seed(0),
    "torch.cuda.manual_seed": lambda: torch.cuda.manual_seed(0),
    "torch.cuda.manual_seed_all": lambda: torch.cuda.manual_seed_all(0),
    "set_rng_state": lambda: torch.cuda.set_rng_state(torch.cuda.get_rng_state()),
    "set_rng_state_all": lambda: torch.cuda.set_rng_state_all(
        torch.cuda.get_rng_state_all()
    ),
}


@pytest.mark.parametrize("case", SEEDS)
def test_a_seed_makes_them_anew_and_waits(case: str) -> None:
    with simulated_gpu(), watching_memory(from_now=True):
        layer = nn.LSTM(64, 128, 2, dropout=0.1).cuda()
        steps_of(layer)

        first, second = steps_of(layer, SEEDS[case])

    assert (first[0], second[0]) == (1, 0)
    assert (first[2], second[2]) == (0, 0)


def test_another_simulated_gpu_has_states_of_its_own() -> None:
    for _ in range(2):
        with simulated_gpu(), watching_memory(from_now=True):
            first, _ = steps_of(nn.LSTM(64, 128, 2, dropout=0.1).cuda())
            assert first[2] == STATE
