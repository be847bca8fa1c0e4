"""Breaks of the CUDA path that `make cuda` must notice, for ``mutations.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


LAWS: Final = "laws"
TESTS_GPU: Final = "tests-gpu"

CUDA_DEVICE: Final = "tests/gpu/test_cuda_device_gpu.py"
RIG: Final = "tests/gpu/test_stub_rig.py"
WATCH: Final = "tests/gpu/test_watch_gpu.py"
SIDE_BY_SIDE: Final = "tests/gpu/test_side_by_side_gpu.py"
WHOLE_RUNS: Final = "tests/gpu/test_whole_runs_gpu.py"
STEPS: Final = "tests/laws/test_laws.py"
MACHINE: Final = "tests/laws/test_machine_laws.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One break: the *old* text of a file of the package, and what it becomes.

    ``part`` is the part of `make cuda` that is to turn red, ``tests`` are the arguments of
    pytest that choose what is run of it.
    """

    file: str
    old: str
    new: str
    broken: str
    part: str
    tests: tuple[str, ...]


def broken_text(mutation: Mutation, text: str) -> str:
    """Return *text*, the whole file, with the break; raise ``ValueError`` if it has changed."""
    count = text.count(mutation.old)
    if count != 1:
        msg = (
            f"{mutation.file}: expected once, found {count} times: {mutation.old!r}; "
            "write the text that is there now into benchmarks/mutation_cases.py"
        )
        raise ValueError(msg)
    return text.replace(mutation.old, mutation.new)


MUTATIONS: Final = (
    # Events, waits and clocks.
    Mutation(
        file="devices/cuda/device.py",
        old="        event.record()\n",
        new="        event.record(self.torch.cuda.Stream())\n",
        broken="events are recorded on another stream",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "events"),
    ),
    Mutation(
        file="devices/cuda/device.py",
        old="span = float(start.elapsed_time(end))",
        new="span = float(start.elapsed_time(end)) / 1e3",
        broken="milliseconds between two events are read as seconds",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "events"),
    ),
    Mutation(
        file="devices/torch_state.py",
        old="    cuda.synchronize()\n    for",
        new="    cuda.current_stream().synchronize()\n    for",
        broken="the current stream alone is waited for",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "streams"),
    ),
    Mutation(
        file="devices/torch_state.py",
        old="    for index in others:\n        cuda.synchronize(index)\n",
        new="",
        broken="other GPUs that are in use are not waited for",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and devices"),
    ),
    Mutation(
        file="measure/timing.py",
        old="    device.synchronize()\n    wall_ns = device.now_ns() - start_ns\n    process_ns = device.process_ns() - process_ns\n    span_ms",
        new="    wall_ns = device.now_ns() - start_ns\n    device.synchronize()\n    process_ns = device.process_ns() - process_ns\n    span_ms",
        broken="the clock is read before the round is waited for",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and gpu and bound and ms"),
    ),
    Mutation(
        file="measure/timing.py",
        old="    device.synchronize()\n    step_ms = (device.now_ns() - start_ns) / steps / 1e6\n",
        new="    step_ms = (device.now_ns() - start_ns) / steps / 1e6\n    device.synchronize()\n",
        broken="the clock is read before a block of a comparison is waited for",
        part=LAWS,
        tests=("tests/laws/test_compare_laws.py",),
    ),
    Mutation(
        file="measure/timing.py",
        old="LEAST_QUEUED_STEPS: Final = 10",
        new="LEAST_QUEUED_STEPS: Final = 1",
        broken="rounds of long steps have one step",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and long and step_ms"),
    ),
    Mutation(
        file="measure/warmup.py",
        old="    mhz = device.clock_mhz()\n    device.synchronize()\n",
        new="    device.synchronize()\n    mhz = device.clock_mhz()\n",
        broken="the clock of the SMs is read while the GPU idles",
        part=TESTS_GPU,
        tests=(RIG, "-k", "clock_that_counts"),
    ),
    Mutation(
        file="measure/warmup.py",
        old="    device.synchronize()\n    return (device.now_ns() - start_ns) / subject",
        new="    return (device.now_ns() - start_ns) / subject",
        broken="samples of the warm-up are not waited for",
        part=LAWS,
        tests=(STEPS, "-k", "three_tenths"),
    ),
    Mutation(
        file="measure/timing.py",
        old="    enqueued_ns = device.now_ns()\n    end_event = device.record_event()\n    device.synchronize()\n",
        new="    end_event = device.record_event()\n    device.synchronize()\n    enqueued_ns = device.now_ns()\n",
        broken="the time to enqueue a step contains its wait",
        part=LAWS,
        tests=(STEPS, "-k", "enqueued"),
    ),
    # Memory.
    Mutation(
        file="devices/cuda/memory.py",
        old="        cuda.reset_peak_memory_stats()\n",
        new="",
        broken="the peak is not reset before the step",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "peak"),
    ),
    Mutation(
        file="devices/cuda/memory.py",
        old='PEAK_ALLOCATED.name: "allocated_bytes.all.peak"',
        new='PEAK_ALLOCATED.name: "reserved_bytes.all.peak"',
        broken="reserved bytes are read as allocated ones",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "peak"),
    ),
    Mutation(
        file="devices/cuda/memory.py",
        old="        pools.add(tuple(self.pool()))\n",
        new="",
        broken="the memory of replayed graphs is not counted",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "peak"),
    ),
    Mutation(
        file="devices/cuda/memory.py",
        old="    beyond = max(0, used - int(stats[RESERVED_NOW]))\n",
        new="    beyond = used\n",
        broken="torch's own memory is counted as that of others",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "driver"),
    ),
    Mutation(
        file="worker/child.py",
        old='        item.add_report_section(when, "CUDA memory", summary)\n',
        new="        pass\n",
        broken="a step that runs out of memory fails without the summary",
        part=TESTS_GPU,
        tests=(WHOLE_RUNS, "-k", "out_of_memory"),
    ),
    Mutation(
        file="measure/memory.py",
        old="    return max(0, min(grown)) if grown else None\n",
        new="    return 0 if grown else None\n",
        broken="no step leaves memory behind",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "keeps"),
    ),
    Mutation(
        file="devices/cpu/live_memory.py",
        old="        super().__init__(scope.device)\n",
        new="        super().__init__()\n",
        broken="tensors of the CPU are followed in place of the GPU's",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "peak"),
    ),
    # Waits, copies and launches, with their lines.
    Mutation(
        file="devices/cuda/sync_markers.py",
        old="            torch.cuda.set_sync_debug_mode(mode)\n",
        new="            pass\n",
        broken="the sync debug mode is left on",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "profile"),
    ),
    Mutation(
        file="devices/cuda/sync_markers.py",
        old='warnings.filterwarnings("always", message=MESSAGE)',
        new='warnings.filterwarnings("default", message=MESSAGE)',
        broken="torch's warnings of waits are heard once a line",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "line"),
    ),
    Mutation(
        file="devices/cuda/sync_markers.py",
        old="    with asked_waits_marked(torch, marker.around), warned(torch, marker.mark):\n",
        new="    with warned(torch, marker.mark):\n",
        broken="waits that Python asks for have no lines",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "line"),
    ),
    Mutation(
        file="devices/cuda/suite_watch.py",
        old='            self._torch.cuda.set_sync_debug_mode("warn")\n',
        new="            pass\n",
        broken="torch warns of no wait in a suite that is watched",
        part=TESTS_GPU,
        tests=(WATCH,),
    ),
    Mutation(
        file="devices/cuda/suite_watch.py",
        old="return self._frees_more or self._in_use() > self._allocated",
        new="return self._frees_more",
        broken="what a test leaves is looked for after a failed one alone",
        part=TESTS_GPU,
        tests=(WATCH,),
    ),
    Mutation(
        file="measure/profile.py",
        old="    if location_in(marker) is not None:\n",
        new="    if location_in(marker) is None:\n",
        broken="the lines of the second profile are dropped",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "line or names"),
    ),
    Mutation(
        file="devices/profiler.py",
        old="        _wait(cuda=cuda)\n        with marked",
        new="        with marked",
        broken="the first profiled step waits for earlier work",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and arguments"),
    ),
    Mutation(
        file="devices/profiler.py",
        old="        _wait(cuda=cuda)\n    events",
        new="        pass\n    events",
        broken="the profiler ends before other GPUs are done",
        part=LAWS,
        tests=("tests/laws/test_virtual_clock.py", "-k", "trace"),
    ),
    Mutation(
        file="measure/trace.py",
        old="(?:cuda|hip|cu)(?:Stream|Device|Event|Ctx)Synchronize",
        new="(?:cuda|hip|cu)(?:Stream|Device|Ctx)Synchronize",
        broken="waits for an event are not counted",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "waits"),
    ),
    Mutation(
        file="measure/syncs.py",
        old="blocked_ms=blocked_us / steps / 1e3",
        new="blocked_ms=blocked_us / steps",
        broken="microseconds of a wait are read as milliseconds",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and end and blocked"),
    ),
    Mutation(
        file="measure/copies.py",
        old='IS_PINNED: Final = {"Pageable": False,',
        new='IS_PINNED: Final = {"Pageable": True,',
        broken="copies of pageable memory are not counted",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "copies"),
    ),
    Mutation(
        file="measure/gpu_activity.py",
        old=r"(?!\w*HostFunc)\w*Launch",
        new=r"(?!\w*(?:HostFunc|Graph))\w*Launch",
        broken="replays of graphs are not counted as launches",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and graph"),
    ),
    Mutation(
        file="measure/gpu_activity.py",
        old="call.correlation: step for call, step in launches if call.correlation\n",
        new="call.correlation: step\n        for call, step in launches\n        if call.correlation and not GRAPH_LAUNCH.fullmatch(call.name)\n",
        broken="kernels of a replayed graph are not counted",
        part=LAWS,
        tests=(STEPS, "-k", "all_its_kernels"),
    ),
    # The diagnosis.
    Mutation(
        file="measure/bottleneck.py",
        old="        self.left_us -= taken\n",
        new="",
        broken="a wait is blamed for more idle time than it took",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and short"),
    ),
    Mutation(
        file="measure/dataloader.py",
        old="        return replace(self, loop_ms=left_ms) if left_ms > 0 else self\n",
        new="        return self\n",
        broken="the end of a round counts as time of the loop",
        part=LAWS,
        tests=(STEPS, "-k", "plugin and iterable and loader"),
    ),
    Mutation(
        file="measure/phases.py",
        old="    if abs(wall_ms - span_ms) > MISMATCH * wall_ms:\n",
        new="    if abs(wall_ms - span_ms) > MISMATCH * wall_ms * 1e3:\n",
        broken="streams that outlast the current one are not remarked on",
        part=LAWS,
        tests=(STEPS, "-k", "outlasts_the"),
    ),
    Mutation(
        file="measure/phases.py",
        old="Distribution.of([100 * ms / _judged_ms(",
        new="Distribution.of([ms / _judged_ms(",
        broken="a share of the peak is a ratio and not a percentage",
        part=LAWS,
        tests=("tests/laws/test_peak_laws.py",),
    ),
    Mutation(
        file="devices/cuda/flops.py",
        old="count / (peaks[p] * 1e12)",
        new="count / (peaks[p] * 1e9)",
        broken="TFLOP/s are read as GFLOP/s",
        part=LAWS,
        tests=("tests/laws/test_peak_laws.py",),
    ),
    Mutation(
        file="devices/cuda/flops.py",
        old="            count = int(formula(*args, **(kwargs or {}), out_val=result))\n",
        new="            count = int(formula(*args, **(kwargs or {}), out_val=result)) // 2\n",
        broken="a multiplication and an addition count as one operation",
        part=LAWS,
        tests=("tests/laws/test_peak_laws.py",),
    ),
    # The machine.
    Mutation(
        file="devices/cuda/nvml.py",
        old="CLOCK_SM: Final = 1\n",
        new="CLOCK_SM: Final = 2\n",
        broken="the clock of the memory is read as that of the SMs",
        part=LAWS,
        tests=(MACHINE, "-k", "steady"),
    ),
    Mutation(
        file="devices/cuda/nvml.py",
        old="        return energy\n",
        new="        return energy and energy // 1000\n",
        broken="joules are counted as millijoules",
        part=LAWS,
        tests=("tests/laws/test_energy_laws.py",),
    ),
    Mutation(
        file="devices/cuda/nvml.py",
        old='f"{milliwatts // 1000} W"',
        new='f"{milliwatts} W"',
        broken="milliwatts of the power limit are read as watts",
        part=LAWS,
        tests=(MACHINE, "-k", "steady"),
    ),
    Mutation(
        file="devices/cuda/nvml.py",
        old="        return sorted(set(pids).difference(self._relatives()))\n",
        new="        return sorted(pids)\n",
        broken="our own process counts as a neighbour",
        part=TESTS_GPU,
        tests=(RIG, "-k", "disturbed"),
    ),
    Mutation(
        file="devices/cuda/nvml.py",
        old="int(one.value.ullVal)",
        new="int(one.value.ullVal) // 1000",
        broken="nanoseconds of throttling are read as microseconds",
        part=TESTS_GPU,
        tests=(RIG, MACHINE, "-k", "disturbed or throttling"),
    ),
    Mutation(
        file="devices/sentinels.py",
        old='copies=4, dtype="bfloat16")',
        new="copies=4)",
        broken="the sentinel of products follows the switch of TF32",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "sentinels"),
    ),
    Mutation(
        file="devices/sentinels.py",
        old="            pinned.callback(_hand_back, torch, stream)\n",
        new="",
        broken="the sentinels keep their memory",
        part=TESTS_GPU,
        tests=(CUDA_DEVICE, "-k", "sentinels"),
    ),
    # Ranks and slots.
    Mutation(
        file="distributed/group.py",
        old="        own = gpus_of(place.count)[place.rank]\n        variables.update(seeing(own, os.environ))\n    return variables\n\n\ndef _interface",
        new="        own = gpus_of(place.count)[0]\n        variables.update(seeing(own, os.environ))\n    return variables\n\n\ndef _interface",
        broken="all ranks see the first GPU",
        part=TESTS_GPU,
        tests=(SIDE_BY_SIDE, "-k", "ranks"),
    ),
    Mutation(
        file="devices/slots.py",
        old="visible=named[index] if named else str(index)",
        new="visible=named[0] if named else str(index)",
        broken="all slots are the first GPU that is visible",
        part=TESTS_GPU,
        tests=(SIDE_BY_SIDE, "-k", "slot"),
    ),
    # What the compiler did.
    Mutation(
        file="devices/compile.py",
        old="        return compilation.recompile_reason is not None\n",
        new="        return False\n",
        broken="recompilations are not counted",
        part=TESTS_GPU,
        tests=("tests/gpu/test_compiled_gpu.py",),
    ),
)
