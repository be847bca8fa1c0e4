"""Names that are no more, and what does their job: each answers for one release.

The table goes with the next release, and each row with it.
"""

from __future__ import annotations

import re
from typing import Final, TypeVar

from ..errors import ErrorId, UsageError


T = TypeVar("T")

RETIRED: Final = {
    "gpuperf accept --json": "`gpuperf accept --dry-run` prints it; baseline files are JSON",
    "gpuperf ab --clear-cache": "packages go with the command that installed them; `uv cache clean` and `pip cache purge` remove downloads",
    "gpuperf ab --python": "`gpuperf refresh` with one Python and `pytest --gpuperf` with the other compare them",
    "gpuperf audit --sarif": "on GitHub `pytest --gpuperf` and `--gpuperf-watch` mark the lines",
    "gpuperf bisect": "`git bisect run gpuperf ab GOOD -- TEST` finds the commit",
    "gpuperf diff": "`gpuperf accept --dry-run .gpuperf` says what would be accepted",
    "gpuperf doctor --baselines": "`gpuperf_baselines` in the ini file names their folder",
    "gpuperf doctor --cost": "`pytest --gpuperf` says how far it is, and for how long",
    "gpuperf doctor --json": "`gpuperf doctor` prints it, and exits with 1 where something is wrong",
    "gpuperf doctor --runs": "the command runs nothing; a refresh says which slowdowns can be detected",
    "gpuperf doctor --seconds": "the command runs nothing and is over in seconds",
    "gpuperf doctor --verbose": "`gpuperf doctor` prints everything",
    "gpuperf doctor -v": "`gpuperf doctor` prints everything",
    "gpuperf help": "`gpuperf COMMAND --help`; `pytest --help` lists all options",
    "gpuperf history": "`gpuperf export` writes a run for pytest-benchmark, github-action-benchmark and Bencher",
    "gpuperf merge": "each shard fails by itself: require all of its jobs",
    "gpuperf merge-baselines": "`git checkout --ours baselines` takes one side, and `pytest --gpuperf --gpuperf-update=missing` adds what it lacks",
    "gpuperf refresh --json": "results.json has what was measured, baseline files what is stored",
    "gpuperf refresh --occasions": "`gpuperf refresh --sessions=3` adds the runs of three",
    "gpuperf refresh --since": "`gpuperf ab --lock=LOCK` says which tests changed, `gpuperf refresh TEST` stores one",
    "gpuperf report --history": "the page shows one run; `gpuperf export` feeds what keeps runs",
    "gpuperf show": "the baseline file reads by itself, and each run prints the numbers",
    "--gpuperf-accept-drift": "`--gpuperf-update=drift` stores what got worse too",
    "--gpuperf-history": "`gpuperf export` writes a run for what keeps runs",
    "--gpuperf-inline": "plain `pytest` runs the step in the process that a debugger sees",
    "--gpuperf-prune": "`--gpuperf-update=all` removes the baselines of tests that are gone",
    "--gpuperf-ref": "a red or inconclusive test prints the `gpuperf ab` that decides it",
    "gpuperf_accept_drift": "`--gpuperf-update=drift` stores what got worse too",
    "gpuperf_compile_times": "`TORCH_LOGS=dynamo` says at exit what compiling took",
    "gpuperf_consecutive": "`gpuperf_warn = true` makes failures warnings",
    "gpuperf_detect": "it is `gpuperf_tolerance` plus 2 %, and `gpuperf.tolerance(detect=)` for a test",
    "gpuperf_fail_on_improvement": "`gpuperf refresh --kind=improved` stores what became better",
    "gpuperf_history": "`gpuperf export` writes a run for what keeps runs",
    "gpuperf_inline": "plain `pytest` runs the step in the process that a debugger sees",
    "gpuperf_lock": "run ordinary tests that use the GPU in a run of their own",
    "gpuperf_lock_seconds": "a run waits up to an hour for its device",
    "gpuperf_peak_tflops": "`gpuperf.budget(ms=)` limits the time of a step",
    "gpuperf_precision": "a refresh says what can be detected",
    "gpuperf_pretend_gb": "`gpuperf_simulated_gb` sets the memory of the simulated GPU",
    "gpuperf_prune": "`--gpuperf-update=all` removes the baselines of tests that are gone",
    "gpuperf_ref": "a red or inconclusive test prints the `gpuperf ab` that decides it",
    "gpuperf_start": "`gpuperf_warn = until 2027-01-15` makes failures warnings up to that day",
    "gpuperf.Prospect": "`gpuperf.budget(mem_mb=)` limits the peak of a step",
    "gpuperf.fits()": "`gpuperf.budget(mem_mb=)` limits the peak of a step",
    "gpuperf.quarantine": "mark the test with `@pytest.mark.xfail(reason=...)`",
    '["blocking_copies"]': "`syncs` counts them with all others, each with its line",
    '["compile_s"]': "`TORCH_LOGS=dynamo` says at exit what compiling took",
    '["device_syncs"]': "`syncs` counts them with all others, each with its line",
    '["driver_bytes"]': "`nvidia-smi` shows the memory of the whole process",
    '["enqueue_ms"]': "`latency_ms` is the time of one isolated step",
    '["fragmented_bytes"]': "`peak_reserved_bytes` has the blocks that nothing uses",
    '["gpu_span_ms"]': "`step_ms` is the time of a step, its work on the GPU included",
    '["kernels"]': "`launches` counts what a step enqueues",
    '["live_peak_bytes"]': "`peak_allocated_bytes` of the simulated GPU",
    '["non_torch_bytes"]': "`nvidia-smi` shows the memory of the whole process",
    '["peak_requested_bytes"]': "`peak_allocated_bytes` has them, rounded as they are taken",
    '["process_ms"]': "`step_ms` is the time of a step",
    "alloc_retries=": "`gpuperf.budget(reserved_mb=)` limits what the allocator takes",
    "compile_s=": "`TORCH_LOGS=dynamo` says at exit what compiling took",
    "compile_warm_s=": "`TORCH_LOGS=dynamo` says in a second process what it took",
    "device_allocs=": "`gpuperf.budget(reserved_mb=)` limits what the allocator takes",
    "energy_mj=": "`gpuperf.budget(ms=)` limits the time of a step",
    "mfu_pct=": "`gpuperf.budget(ms=)` limits the time of a step",
    "period=": "100 further steps are looked at; `gpuperf.allow_sync(reason=...)` allows a rare sync",
    "period_copies=": "`gpuperf.budget(pageable_copies=)` limits those of some steps too",
    "period_syncs=": "`gpuperf.budget(syncs=)` limits those of some steps too",
    "samples_per_s=": "`samples=` shows the rate, `gpuperf.budget(ms=)` limits the time",
    "slope_pct=": "`gpuperf.budget(growth_mb=)` limits what each step keeps",
    "tokens_per_s=": "`tokens=` shows the rate, `gpuperf.budget(ms=)` limits the time",
}
"""What to do instead, by the name as it is typed: ``gpuperf COMMAND``, ``gpuperf COMMAND
--option``, ``--gpuperf-option``, ``gpuperf_key``, ``gpuperf.mark``, ``gpuperf.method()``,
``keyword=`` of a mark or a call, ``["metric"]`` of a measurement."""


FORMER_NAMES: Final = {
    "kept_graphs": "retained_graphs",
    "occasion": "session",
    "between occasions": "between sessions",
    "maybe": "inconclusive",
    "not judged": "not checked",
    "unjudged_budget": "unchecked_budget",
    "ops": "launches",
    "predicted_garbage_bytes": "garbage_bytes",
    "predicted_growth_bytes": "growth_bytes",
    "predicted_peak_allocated_bytes": "peak_allocated_bytes",
    "predicted_peak_reserved_bytes": "peak_reserved_bytes",
    "predicted_workspace_bytes": "workspace_bytes",
}
"""The names of today by those that 0.2.0 wrote into baselines and results."""

# A line of code has an object of its operations, of that name.
_FORMER: Final = re.compile(f'"({"|".join(FORMER_NAMES)})"(?!: {{)')


def with_names_of_today(text: str) -> str:
    """Return a JSON *text* with each key and value of 0.2.0 by its name of today."""
    return _FORMER.sub(lambda found: f'"{FORMER_NAMES[found[1]]}"', text)


def refuse_retired(name: str) -> None:
    """Raise ``UsageError`` with what to do instead, if *name* is no more."""
    if name in RETIRED:
        msg = f"{name} was removed: {RETIRED[name]}"
        raise UsageError(msg, ErrorId.GP118)


class Numbers(dict[str, T]):
    """Numbers by metric, for a test: a retired metric says what does its job."""

    def __missing__(self, metric: str) -> T:
        """Raise ``UsageError`` for a retired *metric*, ``KeyError`` for another."""
        if metric in FORMER_NAMES:
            msg = f"{metric} was renamed: it is {FORMER_NAMES[metric]}"
            raise UsageError(msg, ErrorId.GP118)
        refuse_retired(f'["{metric}"]')
        refuse_retired(f"{metric}=")
        raise KeyError(metric)
