"""The files in ``docs/ci`` and ``.github`` are what GitHub, GitLab and Jenkins read."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from documents import DOCUMENTS, ROOT, blocks_of, rows_of

import pytest_gpuperf as gpuperf
from pytest_gpuperf.model.run import Head, Results
from pytest_gpuperf.plugin.options import OPTIONS
from pytest_gpuperf.plugin.outputs import COMMENT_FILE
from pytest_gpuperf.report.ci.github import outputs


yaml = pytest.importorskip("yaml")

FOLDER = ROOT / "docs" / "ci"
ACTION = ROOT / "action.yml"
GATES = ("gpu-runner.yml", "simulated.yml")
MEASURING = (*GATES, "nightly.yml")
COMPARING = ("dependencies.yml",)
OTHERS = ("comment.yml", "chart.yml")
WORKFLOWS = (*MEASURING, *COMPARING, *OTHERS)
PIPELINES = ("gitlab-simulated.yml", "gitlab.yml")
FILES = (*PIPELINES, *WORKFLOWS)
OWN_WORKFLOWS = tuple(sorted((ROOT / ".github" / "workflows").iterdir()))
JENKINS = "Jenkinsfile"

VERSION = re.search(  # no reader of TOML on Python 3.10
    r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
)[1]
OWN = "OWNER/pytest-gpuperf"
"""The repository, wherever it is: whoever copies a workflow writes its owner."""


def read(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text("utf-8"))
    return found


def action() -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load(ACTION.read_text("utf-8"))
    return found


def steps_of(name: str) -> list[dict[str, Any]]:
    return [step for job in read(name)["jobs"].values() for step in job["steps"]]


def test_there_is_no_file_that_nobody_looks_at() -> None:
    names = {path.name for path in FOLDER.iterdir() if path.suffix != ".md"}

    assert names == {*FILES, JENKINS}


@pytest.mark.parametrize("path", [ACTION, *(FOLDER / n for n in (*FILES, JENKINS))])
def test_every_option_that_is_given_exists(path: Path) -> None:
    given = set(re.findall(r"--gpuperf[a-z-]*", path.read_text("utf-8")))

    assert given <= {option.flag for option in OPTIONS}


# Versions: what is copied today is of this version.

PAGES = [page for page in DOCUMENTS if page.parent == FOLDER]


@pytest.mark.parametrize(
    "path", [ACTION, *(FOLDER / n for n in (*FILES, JENKINS)), *PAGES]
)
def test_the_version_is_the_packages_where_one_is_named(path: Path) -> None:
    text = path.read_text("utf-8")

    named = re.findall(r"pytest-gpuperf(?:==|@v)([\w.]+)", text)
    bare = re.findall(r"(?:install.*|uses: \S*)\bpytest-gpuperf(?![=@\w.-]).*", text)

    assert set(named) <= {VERSION}
    assert bare == []
    assert text.count("pytest-gpuperf@") == text.count(f"{OWN}@")


def test_the_package_and_its_project_have_one_version_and_one_address() -> None:
    project = (ROOT / "pyproject.toml").read_text("utf-8")

    assert gpuperf.__version__ == VERSION
    assert set(re.findall(r"github\.com/([\w-]+/pytest-gpuperf)", project)) == {OWN}


@pytest.mark.parametrize("name", [*MEASURING, *PIPELINES, JENKINS])
def test_a_gate_installs_the_version_that_it_was_written_for(name: str) -> None:
    assert f"pytest-gpuperf=={VERSION}\n" in (FOLDER / name).read_text("utf-8")


def test_the_action_hands_on_outputs_that_a_run_writes() -> None:
    head = Head(version="", strict=False, missing_baseline="warn")
    written = {line.split("=")[0] for line in outputs(Results(head=head), "").split()}

    asked = {
        re.fullmatch(r"\$\{\{ steps\.gate\.outputs\.(\w+) \}\}", output["value"])[1]
        for output in action()["outputs"].values()
    }

    assert asked <= written


def test_the_page_names_the_inputs_and_outputs_of_the_action() -> None:
    rows = rows_of("docs/ci/without-a-gpu.md", "| input | meaning |")
    page = (FOLDER / "without-a-gpu.md").read_text("utf-8")
    outputs = page.partition("Its outputs")[2].partition("```")[0]

    assert {row.split("`")[1] for row in rows} == set(action()["inputs"])
    assert set(action()["outputs"]) == set(re.findall(r"`([a-z-]+)`", outputs))


@pytest.mark.parametrize("name", MEASURING)
def test_a_workflow_may_only_read_and_ends(name: str) -> None:
    workflow = read(name)

    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] for job in workflow["jobs"].values())


@pytest.mark.parametrize("name", MEASURING)
def test_a_workflow_gives_the_action_inputs_that_it_has(name: str) -> None:
    (step,) = (
        step for step in steps_of(name) if step.get("uses", "").startswith(f"{OWN}@")
    )

    assert set(step["with"]) <= set(action()["inputs"])


@pytest.mark.parametrize("name", GATES)
def test_outputs_of_the_action_that_are_asked_for_exist(name: str) -> None:
    text = (FOLDER / name).read_text("utf-8")

    asked = set(re.findall(r"steps\.gpuperf\.outputs\.([\w-]+)", text))

    assert asked <= set(action()["outputs"])


@pytest.mark.parametrize("name", PIPELINES)
def test_gitlab_is_given_the_reports_that_are_written(name: str) -> None:
    (job,) = read(name).values()
    reports = job["artifacts"]["reports"]

    assert f"--junit-xml={reports['junit']}" in job["script"][-1]


PINNED = {
    "actions/checkout": "3d3c42e5aac5ba805825da76410c181273ba90b1 # v7.0.1",
    "actions/upload-artifact": "bbbca2ddaa5d8feaa63e36b76fdaad77386f024f # v7.0.0",
    "actions/download-artifact": "3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c # v8.0.1",
    "actions/setup-python": "ece7cb06caefa5fff74198d8649806c4678c61a1 # v6.3.0",
    "pypa/gh-action-pypi-publish": (
        "dc37677b2e1c63e2034f94d8a5b11f265b73ba33 # v1.14.2"
    ),
    "benchmark-action/github-action-benchmark": (
        "a60cea5bc7b49e15c1f58f411161f99e0df48372 # v1.22.0"
    ),
}
"""The commits that these tags had in the actions' own repositories."""

SAME_REPOSITORY = "github.event.pull_request.head.repo.full_name == github.repository"

DOCUMENTED = {
    **{f"docs/ci/{name}": (FOLDER / name).read_text("utf-8") for name in WORKFLOWS},
    **{str(path.relative_to(ROOT)): path.read_text("utf-8") for path in OWN_WORKFLOWS},
    **{
        f"{document.name} {block.name}": block.text
        for document in DOCUMENTS
        for block in blocks_of(document.read_text("utf-8"))
        if block.kind == "yaml" and ".github/" in block.name
    },
}
"""Texts of all workflows: those that somebody may copy, and the project's own."""

ON_A_RUN = {
    "comment": {"actions": "read", "pull-requests": "write"},
}
"""What a job may that a finished run starts: by its name."""


def risks(text: str) -> set[str]:
    """Return what could go wrong with a workflow when somebody means it to."""
    workflow = yaml.safe_load(text)
    found = set(map(unpinned, re.findall(r"uses: *(.+)", text))) - {None}
    # A workflow whose jobs say what they may gives nothing to all of them.
    if workflow.get("permissions") not in ({"contents": "read"}, {}):
        found.add("may write, or does not say what it may")
    on = workflow[True]  # YAML's reading of "on"
    if "pull_request_target" in on:
        found.add("gives a stranger's code a token")
    for name, job in workflow["jobs"].items():
        found.update(risks_of_job(job, on))
        if "workflow_run" in on:
            found.update(risks_of_a_later_job(name, job))
    return found


def risks_of_a_later_job(name: str, job: dict[str, Any]) -> set[str]:
    """Return those of a job that has a token although a stranger started it."""
    used = " ".join(step.get("uses", "") for step in job["steps"])
    ran = " ".join(step.get("run", "") for step in job["steps"])
    found = set()
    if job.get("permissions") != ON_A_RUN.get(name):
        found.add("may more than it needs")
    if "checkout@" in used or "./" in used or re.search(r"\bgit\b|\bpip\b", ran):
        found.add("runs a stranger's code")
    return found


def unpinned(used: str) -> str | None:
    name, _, version = used.partition("@")
    pinned = f"v{VERSION}" if name == OWN else PINNED.get(name)
    return None if pinned == version else f"{name} is not pinned"


def risks_of_job(job: dict[str, Any], on: Any) -> set[str]:
    steps = job["steps"]
    ran = " ".join(str(step.get("run", "")) for step in steps)
    found = set()
    is_ours = "pull_request" in on and "self-hosted" in job["runs-on"]
    if is_ours and SAME_REPOSITORY not in str(job.get("if")):
        found.add("a fork's code runs here")
    if "timeout-minutes" not in job:
        found.add("may run for ever")
    if any(
        "checkout@" in step.get("uses", "")
        and (step.get("with") or {}).get("persist-credentials") is not False
        for step in steps
    ):
        found.add("leaves a token to the tests")
    if "write" in str(job.get("permissions")) and re.search(r"\bpytest\b|\bpip\b", ran):
        found.add("runs tests with a token that may write")
    if "${{ steps." in ran or "${{ github." in ran:
        found.add("puts what others wrote into a script")
    return found


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_workflow_that_is_copied_is_no_risk(name: str) -> None:
    assert risks(DOCUMENTED[name]) == set()


@pytest.mark.parametrize(
    ("old", "new", "risk"),
    [
        (f"@{PINNED['actions/checkout']}", "@v7", "actions/checkout is not pinned"),
        ("3d3c42e5", "0d3c42e5", "actions/checkout is not pinned"),
        ("# v7.0.1", "# v7.0.0", "actions/checkout is not pinned"),
        (f"if: {SAME_REPOSITORY}", "if: true", "a fork's code runs here"),
        ("contents: read", "contents: write", "may write, or does not say what it may"),
        (
            "permissions:\n  contents: read\n",
            "",
            "may write, or does not say what it may",
        ),
        ("persist-credentials: false", "lfs: true", "leaves a token to the tests"),
        (
            "on: pull_request",
            "on: pull_request_target",
            "gives a stranger's code a token",
        ),
        ("timeout-minutes: 60", "name: gate", "may run for ever"),
        (
            "    timeout-minutes: 60",
            "    timeout-minutes: 60\n    permissions: write-all",
            "runs tests with a token that may write",
        ),
        (
            "- run: pip",
            "- run: echo ${{ github.head_ref }}\n      - run: pip",
            "puts what others wrote into a script",
        ),
        ("actions: read", "contents: write", "may more than it needs"),
        (
            "uses: actions/download",
            "run: git clone\n        #",
            "runs a stranger's code",
        ),
        (
            '"$HEAD_SHA"',
            "${{ github.event.workflow_run.head_branch }}",
            "puts what others wrote into a script",
        ),
    ],
)
def test_a_planted_risk_is_seen(old: str, new: str, risk: str) -> None:
    name = "gate.md .github/workflows/gpuperf.yml"
    text = DOCUMENTED[name if old in DOCUMENTED[name] else "docs/ci/comment.yml"]
    assert old in text

    assert risk in risks(text.replace(old, new))


# The project's own.

TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
)


@pytest.mark.parametrize("path", OWN_WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_of_this_project_runs_what_a_contributor_types(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()

    typed = [step["run"] for job in jobs for step in job["steps"] if "run" in step]

    assert typed
    assert all(re.fullmatch(r"make ([\w-]+)", line)[1] in TARGETS for line in typed)


def test_the_tests_run_on_each_python_that_the_package_names() -> None:
    workflow = yaml.safe_load(DOCUMENTED[".github/workflows/tests.yml"])
    named = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"',
        (ROOT / "pyproject.toml").read_text("utf-8"),
    )

    assert workflow["jobs"]["check"]["strategy"]["matrix"]["python"] == named


def test_only_the_job_that_runs_no_code_of_ours_can_publish() -> None:
    workflow = yaml.safe_load(DOCUMENTED[".github/workflows/release.yml"])
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]

    assert workflow["permissions"] == {}
    assert build["permissions"] == {"contents": "read"}
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"]["name"] == "pypi"
    assert [step["uses"].partition("@")[0] for step in publish["steps"]] == [
        "actions/download-artifact",
        "pypa/gh-action-pypi-publish",
    ]
    assert "secrets." not in DOCUMENTED[".github/workflows/release.yml"]


# What others check files of these kinds with.

SCHEMAS = {
    "github-workflows": [*(FOLDER / name for name in WORKFLOWS), *OWN_WORKFLOWS],
    "github-actions": [ACTION],
    "gitlab-ci": [FOLDER / name for name in PIPELINES],
}
"""Schemas of SchemaStore, which the package brings along."""


def checked(schema: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("check_jsonschema")
    options = ["--builtin-schema", f"vendor.{schema}", "--output-format", "text"]
    return subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *options, *map(str, paths)],
        capture_output=True,
        check=False,
        text=True,
    )


@pytest.mark.parametrize("schema", SCHEMAS)
def test_files_are_what_their_schema_asks_for(schema: str) -> None:
    done = checked(schema, *SCHEMAS[schema])

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("block", [n for n in DOCUMENTED if " .github/" in n])
def test_workflows_of_the_pages_are_what_their_schema_asks_for(
    block: str, tmp_path: Path
) -> None:
    (tmp_path / "it.yml").write_text(DOCUMENTED[block], "utf-8")

    done = checked("github-workflows", tmp_path / "it.yml")

    assert done.returncode == 0, done.stdout


def repository(path: Path) -> Path:
    """A repository with the workflows where they belong, and the action next to them.

    actionlint knows the inputs of an action that is in the same repository.
    """
    workflows = path / ".github" / "workflows"
    workflows.mkdir(parents=True)
    (path / ".git").mkdir()
    for name in WORKFLOWS:
        text = (FOLDER / name).read_text("utf-8")
        (workflows / name).write_text(text.replace(f"{OWN}@v{VERSION}", "./"), "utf-8")
    for own in OWN_WORKFLOWS:
        shutil.copy(own, workflows)
    shutil.copy(ACTION, path / "action.yml")
    labels = "self-hosted-runner:\n  labels: [gpu]\n"
    (path / ".github" / "actionlint.yaml").write_text(labels, "utf-8")
    return path


def linted(path: Path) -> str:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    command = [program, "-no-color", "-shellcheck=", "-pyflakes="]
    return subprocess.run(
        command, cwd=path, capture_output=True, check=False, text=True
    ).stdout


def test_actionlint_finds_nothing_to_say(tmp_path: Path) -> None:
    assert linted(repository(tmp_path)) == ""


# Jenkins reads Groovy, and of that what its declarative syntax knows.

SECTIONS = {
    "": {"pipeline"},
    "pipeline": {"agent", "options", "environment", "stages"},
    "stages": {"stage"},
    "stage": {"agent", "when", "steps", "post"},
    "agent": {"docker", "label"},
    "docker": {"image"},
    "options": {"timeout"},
    "when": {"beforeAgent", "expression"},
    "post": {"always"},
    "steps": {"sh"},
    "always": {"junit", "archiveArtifacts"},
}
"""What each section of a declarative pipeline knows, of what the recipe uses."""


def groovy(text: str) -> Any:
    """The tree of *text* as a parser of Groovy reads it, and its first node."""
    language = pytest.importorskip("tree_sitter_groovy")
    tree_sitter = pytest.importorskip("tree_sitter")
    parser = tree_sitter.Parser(tree_sitter.Language(language.language()))
    return parser.parse(text.encode()).root_node


def calls(node: Any, section: str = "") -> Iterator[tuple[str, str]]:
    """Yield each section of a pipeline, and what is written in it."""
    for child in node.children:
        is_call = child.type in {"method_invocation", "juxt_function_call"}
        name = child.child_by_field_name("name").text.decode() if is_call else ""
        if is_call:
            yield section, name
        yield from calls(child, name or section)


def test_the_jenkinsfile_is_groovy_and_a_declarative_pipeline() -> None:
    tree = groovy((FOLDER / JENKINS).read_text("utf-8"))
    found = set(calls(tree))

    assert not tree.has_error
    assert found <= {(a, name) for a, names in SECTIONS.items() for name in names}
    assert {("", "pipeline"), ("stages", "stage"), ("steps", "sh")} <= found


def test_jenkins_keeps_what_a_run_leaves_and_no_forks_code_near_a_gpu() -> None:
    text = (FOLDER / JENKINS).read_text("utf-8")
    time = text.partition("stage('time')")[2]

    assert text.count("junit 'results.xml'") == text.count("--junit-xml=results.xml")
    assert text.count("'.gpuperf/**'") == text.count(".venv/bin/pytest")
    assert "env.CHANGE_FORK == null" in time.partition("agent {")[0]


# The scripts, run here.


def scripts() -> dict[str, str]:
    found = {f"action.yml {n}": s for n, s in enumerate(action()["runs"]["steps"])}
    for path in OWN_WORKFLOWS:
        jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
        steps = [step for job in jobs for step in job["steps"]]
        found.update({f"{path.name} {n}": s for n, s in enumerate(steps)})
    for name in WORKFLOWS:
        found.update({f"{name} {n}": s for n, s in enumerate(steps_of(name))})
    ran = {name: step["run"] for name, step in found.items() if "run" in step}
    for name in PIPELINES:
        (job,) = read(name).values()
        ran[name] = "\n".join(job["script"])
    jenkins = re.findall(
        r"'''(.*?)'''", (FOLDER / JENKINS).read_text("utf-8"), re.DOTALL
    )
    return ran | {f"{JENKINS} {n}": script for n, script in enumerate(jenkins)}


@pytest.mark.parametrize("name", scripts())
def test_a_script_is_one_that_bash_reads(name: str) -> None:
    done = subprocess.run(
        ["bash", "-n"],  # noqa: S607
        input=scripts()[name],
        capture_output=True,
        check=False,
        text=True,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", scripts())
def test_shellcheck_finds_nothing_to_say(name: str) -> None:
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip("shellcheck is not installed")
    # A virtual environment has its own `activate`, which cannot be followed here.
    command = [program, "--shell=bash", "--exclude=SC1091", "-"]
    done = subprocess.run(
        command, input=scripts()[name], capture_output=True, check=False, text=True
    )

    assert done.stdout == ""


def executed(
    script: str, folder: Path, environ: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run *script* as GitHub does, with the programs of *folder* before all others."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", *options, "-c", script],  # noqa: S607
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **environ},
        capture_output=True,
        check=False,
        text=True,
    )


def program(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("lines", "installed"),
    [
        ("--editable . pytest-gpuperf==1", ["--editable . pytest-gpuperf==1"]),
        ("torch --index-url  u\n\n  -e .\n", ["torch --index-url u", "-e ."]),
        ("$(touch x) *", ["$(touch x) *"]),
    ],
    ids=["one", "two", "no shell"],
)
def test_the_action_installs_line_by_line(
    lines: str, installed: list[str], tmp_path: Path
) -> None:
    program(tmp_path / "python", '#!/bin/sh\ncat\necho "$@"\n')
    script = action()["runs"]["steps"][0]["run"]

    ended = executed(script, tmp_path, {"GPUPERF_INSTALL": lines}, "-o", "pipefail")

    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [f"-m pip install {x}" for x in installed]
    assert not (tmp_path / "x").exists()


def test_the_action_ends_where_pip_fails(tmp_path: Path) -> None:
    program(tmp_path / "python", '#!/bin/sh\necho "$@"\nexit 3\n')
    script = action()["runs"]["steps"][0]["run"]

    ended = executed(script, tmp_path, {"GPUPERF_INSTALL": "a\nb"}, "-o", "pipefail")

    assert (ended.returncode, ended.stdout) == (3, "-m pip install a\n")


def test_the_action_installs_nothing_unless_it_is_asked() -> None:
    first = action()["runs"]["steps"][0]

    assert action()["inputs"]["install"]["default"] == ""
    assert first["if"] == "inputs.install != ''"


@pytest.mark.parametrize("arguments", ["", "-x  --gpuperf-device=cpu"])
def test_the_action_splits_its_arguments_and_keeps_the_exit_code(
    arguments: str, tmp_path: Path
) -> None:
    program(tmp_path / "python", '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 3\n')
    script = action()["runs"]["steps"][1]["run"]

    ended = executed(
        script, tmp_path, {"GPUPERF_ARGUMENTS": arguments}, "-o", "pipefail"
    )

    assert ended.returncode == 3
    assert ended.stdout.split() == ["-m", "pytest", "--gpuperf", *arguments.split()]


# The comment on a pull request.

GH = """\
#!{python}
import json, os, subprocess, sys
from pathlib import Path

asked = sys.argv[1:]
Path("asked.jsonl").open("a").write(json.dumps(asked) + "\\n")
place = next(a for a in asked if a.startswith("repos/"))
method = asked[asked.index("--method") + 1] if "--method" in asked else "GET"
if method == "GET":
    answer = json.loads(Path("answers.json").read_text())[place]
    query = asked[asked.index("--jq") + 1]
    found = subprocess.run(["jq", "--raw-output", query], input=json.dumps(answer),
                           text=True, check=True, capture_output=True)
    print(found.stdout, end="")
else:
    body = next(a for a in asked if a.startswith("body=@")).removeprefix("body=@")
    Path(f"{{method}} {{place.rpartition('/repos/')[2].replace('/', ' ')}}").write_bytes(
        Path(body).read_bytes()
    )
"""
"""Plays GitHub's program: answers from a file, and keeps what is sent."""

SHA, BOT = "4f2a" * 10, "github-actions[bot]"


class Comment:
    """The workflow that comments, after a run of ``o/r`` for a fork's pull request 7."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("jq") is None:
            pytest.skip("jq is not installed")
        self.folder = folder
        self.upload = folder / "gpuperf"
        self.upload.mkdir()
        self.text = self.upload / COMMENT_FILE
        self.text.write_text("### gpuperf: 1 test got worse\n", "utf-8")
        self.environ = {
            "RUNNER_TEMP": str(folder),
            "REPOSITORY": "o/r",
            "CONCLUSION": "failure",
            "WORKFLOW": "31",
            "HEAD_SHA": SHA,
            "HEAD_REPOSITORY": "fork/r",
            "HEAD_BRANCH": 'a"b$(x)',
        }
        self.pulls = [{"number": 7, "head": {"sha": SHA}}]
        self.comments: list[dict[str, Any]] = []
        program(folder / "gh", GH.format(python=sys.executable))

    def run(self) -> dict[str, str]:
        """Return what was sent, by method and place."""
        answers = {
            "repos/o/r/pulls": self.pulls,
            "repos/o/r/issues/7/comments": self.comments,
        }
        (self.folder / "answers.json").write_text(json.dumps(answers), "utf-8")
        script = steps_of("comment.yml")[-1]["run"]
        ended = executed(script, self.folder, self.environ)
        assert ended.returncode == 0, ended.stderr
        return {
            path.name: path.read_text("utf-8", errors="replace")
            for path in self.folder.iterdir()
            if path.name.startswith(("PATCH ", "POST "))
        }


@pytest.fixture
def comment(tmp_path: Path) -> Comment:
    return Comment(tmp_path)


def test_a_red_run_adds_a_comment_to_the_pull_request_of_its_commit(
    comment: Comment,
) -> None:
    assert comment.run() == {
        "POST repos o r issues 7 comments": (
            "<!-- gpuperf 31 -->\n"
            f"<sub>Written by tests of {SHA}, unchecked.</sub>\n\n"
            "### gpuperf: 1 test got worse\n"
        )
    }
    asked = json.loads((comment.folder / "asked.jsonl").read_text().splitlines()[0])
    assert 'head=fork:a"b$(x)' in asked


@pytest.mark.parametrize("conclusion", ["success", "failure"])
def test_the_comment_that_is_there_is_updated_and_no_other(
    conclusion: str, comment: Comment
) -> None:
    mark = "<!-- gpuperf 31 -->\nold"
    comment.environ["CONCLUSION"] = conclusion
    comment.comments = [
        {"id": 1, "user": {"login": "stranger"}, "body": mark},
        {"id": 2, "user": {"login": BOT}, "body": "<!-- gpuperf 30 -->"},
        {"id": 3, "user": {"login": BOT}, "body": mark},
        {"id": 4, "user": {"login": BOT}, "body": mark},
    ]

    assert list(comment.run()) == ["PATCH repos o r issues comments 3"]


def links_to_a_secret(comment: Comment) -> None:
    secret = comment.folder / "secret"
    secret.write_text("token", "utf-8")
    comment.text.unlink()
    comment.text.symlink_to(secret)


@pytest.mark.parametrize(
    "change",
    [
        lambda comment: comment.environ.update(CONCLUSION="success"),
        lambda comment: comment.pulls.clear(),
        lambda comment: comment.pulls[0].update(head={"sha": "0" * 40}),
        links_to_a_secret,
        lambda comment: comment.text.unlink(),
    ],
    ids=["green", "no pull request", "an older commit", "a link", "no artifact"],
)
def test_a_run_with_nothing_to_say_comments_nowhere(
    comment: Comment, change: Callable[[Comment], None]
) -> None:
    change(comment)

    assert comment.run() == {}


def test_what_strangers_wrote_notifies_nobody_and_fits(comment: Comment) -> None:
    comment.text.write_bytes(
        b"@octocat \xff $(touch x) `touch x` <!--" + b"@" * 200_000
    )

    (text,) = comment.run().values()

    assert "@" not in text
    assert "&#64;octocat" in text
    assert len(text) < 65_536
    assert text.index("unchecked") < text.index("<!--", 5)
    assert not (comment.folder / "x").exists()


def test_a_branch_of_the_repository_itself_needs_no_warning(comment: Comment) -> None:
    comment.environ["HEAD_REPOSITORY"] = "o/r"

    (text,) = comment.run().values()

    assert text == "<!-- gpuperf 31 -->\n### gpuperf: 1 test got worse\n"


# The pull request with the baselines of one night.


class Night:
    """The job that proposes them, in a clone of a repository with one baseline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.origin = folder / "origin.git"
        self.git("init", "--quiet", "--bare", str(self.origin), place=folder)
        self.git("clone", "--quiet", str(self.origin), "clone", place=folder)
        self.baseline = self.folder / "baselines" / "cuda.json"
        self.baseline.parent.mkdir()
        self.baseline.write_text("{}\n", "utf-8")
        self.git("add", "--all")
        author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
        self.git(*author, "commit", "--quiet", "--message=first")
        self.open = "0"

    def git(self, *arguments: str, place: Path | None = None) -> str:
        command = ["git", "-C", str(place or self.folder), *arguments]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout

    def run(self) -> list[str]:
        """Return what GitHub's program was asked."""
        bin_ = self.folder.parent
        program(
            bin_ / "gh", f'#!/bin/sh\necho "$*" >> {bin_}/asked\necho {self.open}\n'
        )
        script = next(s for s in steps_of("nightly.yml")[::-1] if "run" in s)["run"]
        path = f"{bin_}:{os.environ['PATH']}"
        ended = executed(script, self.folder, {"PATH": path, "HOME": str(bin_)})
        assert ended.returncode == 0, ended.stderr
        asked = bin_ / "asked"
        return asked.read_text("utf-8").splitlines() if asked.exists() else []


def test_baselines_that_changed_overnight_become_a_pull_request(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.baseline.write_text('{"more": 1}\n', "utf-8")

    asked = night.run()

    assert asked[-1] == "pr create --head gpuperf-nightly --fill"
    pushed = night.git(
        "show", "gpuperf-nightly:baselines/cuda.json", place=night.origin
    )
    assert pushed == '{"more": 1}\n'


def test_a_pull_request_that_is_open_is_updated(tmp_path: Path) -> None:
    night = Night(tmp_path)
    night.open = "1"
    night.baseline.write_text('{"more": 1}\n', "utf-8")

    asked = night.run()

    assert [line for line in asked if "create" in line] == []
    assert "gpuperf-nightly" in night.git("branch", place=night.origin)


def test_a_night_that_adds_nothing_proposes_nothing(tmp_path: Path) -> None:
    night = Night(tmp_path)

    assert night.run() == []
    assert night.git("branch", place=night.origin) == ""


def test_the_comment_waits_for_the_workflows_that_measure() -> None:
    waited = read("comment.yml")[True]["workflow_run"]["workflows"]

    assert sorted(waited) == sorted(read(name)["name"] for name in (*GATES, *COMPARING))
