"""Marks, options and ini keys that cannot be meant are refused by their own names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from scripted_project import ScriptedProject
from whole_run import Folder

import pytest_gpuperf as gpuperf
from pytest_gpuperf.errors import UsageError
from pytest_gpuperf.model.budget import Tolerance, refuse_blind
from pytest_gpuperf.plugin.mark_checks import unknown_kind
from pytest_gpuperf.plugin.parse_settings import PARSERS


STEP = "def test_step(gpuperf): gpuperf(lambda: None)\n"

HUGE, NAN, INF = 10**400, float("nan"), float("inf")


KNOWN = (
    "it knows ms, latency_ms, mem_mb, syncs, pageable_copies, launches and 15 more "
    "(docs/reference/marks.md) [GP201]"
)
ABOVE_0 = "expected a number above 0, or None to lift it [GP202]"
WHOLE = "expected a whole number of at least 0, or None to lift it [GP202]"
ON = (
    'expected a device kind or a pattern of the hardware\'s name, such as "cpu" or '
    '"*H200*", or a list of them [GP204]'
)
PERCENT = 'expected a percentage of at least 0 as text, such as "5%"'
RANKS = "expected a whole number of ranks, at least 1 [GP207]"
SECONDS = (
    "expected a number of seconds above 0, or None for three times --gpuperf-seconds "
    "and half a minute [GP207]"
)
BUDGETS = [
    ({}, "() says nothing: expected a limit, such as syncs=0 [GP203]"),
    ({"on": "cpu"}, "(on='cpu') limits nothing: expected a limit, such as syncs=0"),
    ({"mem_mb": HUGE}, "(mem_mb=1000"),
    ({"syncs": HUGE}, "(syncs=1000"),
    ({"flops": 10**5000}, "(flops="),
    *(({"ms": n}, f"(ms={n!r}): {ABOVE_0}") for n in (NAN, INF, -1, 0, "12", True)),
    *(({"syncs": n}, f"(syncs={n}): {WHOLE}") for n in (0.5, 1.5, False)),
    ({"busy_pct": 101}, "(busy_pct=101): expected a number above 0, at most 100, or"),
    ({"mss": 1, "foo": 2}, f"() does not know foo, mss (did you mean ms?); {KNOWN}"),
    *(
        ({typed: 1}, f"() does not know {typed} (did you mean {meant}?) [GP201]")
        for typed, meant in (
            *(("sync", "syncs"), ("waits", "syncs"), ("MS", "ms"), ("time", "ms")),
            *(("mem", "mem_mb"), ("memory", "mem_mb"), ("h2d", "h2d_mb")),
        )
    ),
    *(
        ({"ms": 5, "on": on}, f"(on={on!r}): {ON}")
        for on in ("", [], ["cpu", 3], {"cpu"}, 5)
    ),
]
TOLERANCES = [
    ({}, "() says nothing: expected a change"),
    ({"ms": "1e9%"}, "(ms='1e+09%'): expected at most 1000% [GP205]"),
    ({"mem_mb": "1001%"}, "(mem_mb='1001%'): expected at most"),
    ({"detect": "5000%"}, "(detect='5000%'): expected at most"),
    *(({"ms": p}, f"(ms={p!r}): {PERCENT}") for p in ("nan%", "inf%", "5", None, 0.05)),
    *(
        ({"ms": p}, f'(ms={p!r}): {PERCENT} or "5% and 1 ms" [GP205]')
        for p in ("-1%", "5% and", "5% and 0.1", "5% and 1 MiB", "5% and -1 ms", "1 ms")
    ),
    ({"mem_mb": "1% and nan MiB"}, f'{PERCENT} or "5% and 1 MiB" [GP205]'),
    ({"syncs": "0% and one"}, f'{PERCENT} or "5% and 1" [GP205]'),
    ({"detect": "5% and 1 ms"}, "(detect='5% and 1 ms'): expected"),
    ({"speedup": "5%"}, "() does not know speedup"),
    ({"detects": "5%"}, "() does not know detects (did you mean"),
]
OF_RANKS = [
    *(({"n": n}, f"({n}): {RANKS}") for n in (0, 2.0, True)),
    *(
        ({"n": 2, "timeout_s": s}, f"(timeout_s={s!r}): {SECONDS}")
        for s in (0, -1.5, NAN, INF, "3", True)
    ),
]


@pytest.mark.parametrize(
    ("mark", "keywords", "shown"),
    [
        *((gpuperf.budget, *row) for row in BUDGETS),
        *((gpuperf.tolerance, *row) for row in TOLERANCES),
        *((gpuperf.ranks, *row) for row in OF_RANKS),
    ],
)
def test_a_mark_that_cannot_be_meant_is_refused_in_one_sentence(
    mark: Callable[..., object], keywords: dict[str, object], shown: str
) -> None:
    with pytest.raises(UsageError) as caught:
        mark(**keywords)

    said = str(caught.value)
    assert said.startswith(f"gpuperf.{mark.__name__}(")
    assert shown in said
    assert len(said) < 400


@pytest.mark.parametrize(
    ("layers", "shown"),
    [
        (
            [Tolerance(ratios={"ms": 0.5}, detect=0.01)],
            "detect=1% is less than the ms=50% that is tolerated, and",
        ),
        (
            [Tolerance(ratios={"ms": 0.5}), Tolerance(detect=0.08)],
            "detect=8% is less than the ms=50%",
        ),
        (
            [Tolerance(detect=0.02), Tolerance(ratios={"ms": 0.05}, detect=0.5)],
            "detect=2% is less than the ms=5%",
        ),
        (
            [Tolerance(detect=0.005)],
            "detect=0.5% is less than the ms=1% that is tolerated by default",
        ),
    ],
    ids=["one mark", "mark above project", "function above class", "default tolerance"],
)
def test_a_slowdown_that_is_ignored_and_must_be_noticed_is_a_contradiction(
    layers: Sequence[Tolerance], shown: str
) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_blind(layers, "here")

    assert str(caught.value).startswith(f"here: {shown}")


@pytest.mark.parametrize(
    "layers",
    [
        [Tolerance(ratios={"ms": 0.5})],
        [Tolerance(ratios={"ms": 0.05}, detect=0.05)],
        [Tolerance(ratios={"mem_mb": 0.5}, detect=0.03)],
        [Tolerance(ratios={"ms": 0.01}), Tolerance(ratios={"ms": 0.5}, detect=0.1)],
    ],
)
def test_bounds_that_agree_are_taken(layers: Sequence[Tolerance]) -> None:
    refuse_blind(layers, "here")


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("cupa", "cuda"),
        ("gpu", "cpu"),
        ("simulate", "simulated"),
        ("CUDAA", "cuda"),
        ("cuda_", "cuda"),
        ("mps", ""),
    ],
)
def test_a_budget_for_a_kind_that_there_is_not_is_doubted(
    pattern: str, meant: str
) -> None:
    doubt = unknown_kind(pattern)

    assert doubt.startswith(f"gpuperf.budget(on={pattern!r}) binds nowhere")
    assert (f"did you mean {meant}?" in doubt) == bool(meant)


@pytest.mark.parametrize(
    "pattern",
    [
        "cpu",
        "CUDA",
        "simulated",
        "pretend",
        "*H200*",
        "NVIDIA H200",
        "cuda-nvidia-h200",
        "A100",
        "*",
    ],
)
def test_what_may_name_hardware_is_not_doubted(pattern: str) -> None:
    assert unknown_kind(pattern) == ""


NO_DAYS = (
    "|until|until 2027-13-01|until 20270115|until 2027-W02-5|till 2027-01-15|2027-01-15"
    "|until 2027-01-15 noon|UNTIL 2027-01-15|yes"
)
OPTIONS = [
    ("gpuperf_tolerance", "ms=5%,ms=7%", "ms occurs 2 times, expected it once"),
    ("gpuperf_tolerance", "speedup=5%", "does not know speedup"),
    ("gpuperf_tolerance", "MS=5%", "does not know MS"),
    ("gpuperf_tolerance", "mss=5%", "does not know mss (did you mean ms?)"),
    ("gpuperf_tolerance", "detect=5%", "does not know detect"),
    (
        *("gpuperf_tolerance", "5%"),
        "such as ms=5%, or ms=5% and 0.1 ms, mem_mb=1%: gpuperf.tolerance() does not kn",
    ),
    ("gpuperf_tolerance", "", "does not know"),
    ("gpuperf_tolerance", "ms", "gpuperf.tolerance(ms=''): expected a percentage"),
    ("gpuperf_tolerance", "ms=1e9%", "expected at most 1000%"),
    ("gpuperf_tolerance", "ms=5%;mem_mb=1%", "gpuperf.tolerance(ms='5%;mem_mb=1%')"),
    ("gpuperf_baselines", "", "expected a folder, such as baselines"),
    ("gpuperf_baselines", "   ", "expected a folder, such as baselines"),
    ("gpuperf_baselines", "x" * 5000, "expected a shorter name of a folder"),
    ("gpuperf_baselines", "x/" * 2100, "expected a shorter name of a folder"),
    ("gpuperf_baselines", "a\0b", "null"),
    *(
        ("gpuperf_seconds", seconds, "expected a positive number of seconds")
        for seconds in ("0", "nan", "1m", "soon", "inf")
    ),
    *(
        ("gpuperf_seed", seed, "expected a whole number from 0 up, such as 7")
        for seed in ("soon", "-1", "0.5", "1e3", "")
    ),
    ("gpuperf_simulated_gb", "inf", "expected a positive number of GiB"),
    *(
        ("gpuperf_device", kind, "expected one of cuda, simulated, cpu")
        for kind in ("gpu", "CUDA", "")
    ),
    (
        "gpuperf_update",
        "none",
        "expected one of missing, improved, all, evidence, drift",
    ),
    ("gpuperf_missing_baseline", "error", "expected one of warn, fail, every-metric"),
    ("gpuperf_isolation", "class", "expected one of test, module"),
    *(("gpuperf_warn", day, "such as until 2027-01-15") for day in NO_DAYS.split("|")),
]


@pytest.mark.parametrize(("name", "text", "shown"), OPTIONS)
def test_an_option_s_value_that_is_none_is_refused_by_what_is_wrong_with_it(
    name: str, text: str, shown: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at
        PARSERS[name](text)

    assert shown in str(caught.value)


@pytest.mark.parametrize("name", ["gpuperf", "gpuperf_strict"])
def test_an_ini_key_that_is_neither_true_nor_false_is_named_with_its_file(
    project: ScriptedProject, name: str
) -> None:
    project.file(STEP)
    project.pytester.makeini(f"[pytest]\n{name} = 2\n")
    on = () if name == "gpuperf" else ("--gpuperf", "--gpuperf-device=scripted")

    result = project.pytester.runpytest_inprocess(*on)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shown = result.stderr.str()
    file = Path(project.path) / "tox.ini"
    assert f"ini key {name} in {file}: invalid truth value '2'" in shown


@pytest.mark.parametrize(
    ("arguments", "mark"),
    [
        (["--gpuperf-tolerance=ms=50%"], '@gpuperf.tolerance(detect="1%")\n'),
        ([], '@pytest.mark.gpuperf_tolerance(ms="50%", detect="1%")\n'),
    ],
    ids=["command line and mark", "a mark that pytest made"],
)
def test_a_contradiction_of_layers_is_a_usage_error(
    project: ScriptedProject, arguments: list[str], mark: str
) -> None:
    project.file(mark + STEP)

    result = project.run(*arguments)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    shown = " ".join((result.stdout.str() + result.stderr.str()).split())
    assert (
        "that is tolerated, and a slowdown between them would pass in silence" in shown
    )


def test_a_budget_that_binds_nowhere_is_warned_of_by_its_test(
    project: ScriptedProject,
) -> None:
    project.file('@gpuperf.budget(ms=5, on="cupa")\n' + STEP)

    result = project.run()

    shown = " ".join(result.stdout.str().split())
    assert (
        "PytestCollectionWarning: gpuperf.budget(on='cupa') binds nowhere: expected a "
        "device kind (cuda, simulated, cpu) or a pattern of a hardware's name, such as "
        '"*H200*"; did you mean cuda?'
    ) in shown
    assert result.ret == pytest.ExitCode.OK


ITSELF = "pass the function itself, without calling it [GP215]"
GENERATOR = (
    "gpuperf(step): the step returned a generator, so its work has not been done when it "
    "returns; pass a function that runs the step to its end [GP301]"
)
NAME = "expected a text that tells this call"
TENSOR = "type('Tensor', (), {'data_ptr': 0, '__repr__': lambda _: '1\\n2'})()"

CALLS = {
    "gpuperf(3)": f"gpuperf(step): expected a function, found 3 of type int; {ITSELF}",
    f"gpuperf({TENSOR})": f"gpuperf(step): expected a function, found a tensor; {ITSELF}",
    "gpuperf(int, setup='batch')": (
        f"gpuperf(setup): expected a function, found 'batch' of type str; {ITSELF}"
    ),
    "gpuperf(int, mss=3)": "gpuperf.budget() does not know mss (did you mean ms?) [GP201]",
    "gpuperf(int, mem_mb=10**400)": "gpuperf.budget(mem_mb=1000",
    "gpuperf(int, on='cpu')": "gpuperf.budget(on='cpu') limits nothing",
    "gpuperf(work)": GENERATOR.replace("generator", "coroutine"),
    "gpuperf(lambda: (i for i in []))": GENERATOR,
    **{
        f"gpuperf(int, samples={value})": "expected how many samples one step trains"
        for value in ("0", "-1", "'64'", "True", "float('nan')", "10**400")
    },
    **{f"gpuperf(int, name={name})": NAME for name in ("5", "''", "'  '", "b'warm'")},
    "gpuperf.loader([1], print, name='')": NAME,
    "gpuperf.loader([], print)": (
        "gpuperf.loader(loader, step): the list gave no batch at all [GP302]"
    ),
    "gpuperf.compare(int, 3)": ITSELF,
    "gpuperf.compare(int, int, name='')": NAME,
    "gpuperf.compare(int, int, same_training=2)": (
        "gpuperf.compare(same_training=2): expected True, or the relative difference that "
        "is tolerated, above 0 and below 1, such as 0.02 [GP212]"
    ),
    "gpuperf.compare(int, int, speedup=0)": (
        "gpuperf.budget(speedup=0): expected a number above 0, or None to lift it [GP202]"
    ),
    "gpuperf.compare(int, lambda: (i for i in []))": GENERATOR,
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return what each call ends with in one plain run of them all."""
    folder = Folder(tmp_path_factory.mktemp("calls"))
    tests = [f"def test_{n}(gpuperf): {call}\n" for n, call in enumerate(CALLS)]
    folder.file("async def work(): pass\n" + "".join(tests))
    run = folder.run(on=())
    return {call: run.cases[f"test_{n}"].text for n, call in enumerate(CALLS)}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_cannot_be_meant_fails_its_test_also_in_a_plain_run(
    call: str, refused: dict[str, str]
) -> None:
    assert CALLS[call] in refused[call]


def test_a_limit_that_is_only_lifted_is_a_budget() -> None:
    gpuperf.budget(ms=None)
