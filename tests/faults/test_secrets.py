"""Secrets that an exception, a URL or a variable would carry into a report.

Each attempt plants one where people have planted theirs, and looks for it in the masked
text, or in everything that a run prints and leaves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from desk import Desk, typing_server

from pytest_gpuperf.model.metrics import METRICS
from pytest_gpuperf.report.secrets import MASK, masked, secrets_of, shown_headline


VALUE: Final = "kx7-Qp2-zz91"

NAMES: Final = (
    *("GITHUB_TOKEN", "CI_JOB_TOKEN", "HF_TOKEN", "WANDB_API_KEY"),
    *("apikey", "API_KEY_2"),
    *("DB_PASS", "DBPASS", "SSHPASS", "PGPASSWORD", "MYSQL_PWD", "SMTP_PASSWD"),
    *("DEPLOY_KEY", "AWS_SECRET_ACCESS_KEY", "AZURE_ACCESS_KEY", "SIGNING_KEY", "KEY"),
    *("GH_PAT", "PAT", "NPM_AUTH", "SESSION_COOKIE", "MY_CREDS", "SENTRY_DSN"),
    *("GOOGLE_CREDENTIALS", "DOCKER_CREDENTIAL", "GPG_PASSPHRASE", "client_secret"),
    *("SECRET_NUMBER_2", "TOKEN_OF_ANN"),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_that_is_called_so_is_masked_by_value(name: str) -> None:
    secrets = secrets_of({name: VALUE})

    assert masked(f"refused {VALUE}, and '{VALUE}x'", secrets) == (
        f"refused {MASK}, and '{MASK}x'"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PWD", "/home/ann/project"),
        ("OLDPWD", "/home/ann/project"),
        ("PATH", "/usr/local/bin:/usr/bin"),
        ("PYTHONPATH", "/home/ann/project"),
        ("SSH_AUTH_SOCK", "/run/user/7/agent"),
        ("XAUTHORITY", "/run/user/7/authority"),
        ("TOKENIZERS_PARALLELISM", "default-value"),
        ("MAX_TOKENS", "1000000"),
        ("COMPASS", "north-by-east"),
        ("PROXY_BYPASS", "internal.example"),
        ("KEYBOARD", "us-international"),
        ("AUTHOR", "Ann Example"),
        ("PATTERN", "test_*.py"),
        ("DB_PASS", "12345"),
        ("SORT_KEY", "step_ms"),
        ("CACHE_KEY", "default"),
        ("HOME", "/home/ann"),
        ("API_URL", "https://example.com/a"),
        ("REPOSITORY_URL", "ssh://git@example.com/a"),
    ],
)
def test_a_variable_that_is_no_secret_is_left_alone(name: str, value: str) -> None:
    text = f"found {value} there"

    assert masked(text, secrets_of({name: value})) == text


@pytest.mark.parametrize("metric", METRICS)
def test_no_metric_is_ever_masked(metric: str) -> None:
    assert masked(f"{metric}: 1", secrets_of({"SORT_KEY": metric})) == f"{metric}: 1"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        pytest.param("p@ss w/rd", "at ?p=p%40ss%20w%2Frd&x", id="in a URL"),
        pytest.param('quo"te\\d', json.dumps({"a": 'quo"te\\d'}), id="in JSON"),
        pytest.param("it's\ttabbed", repr("it's\ttabbed"), id="in a repr"),
        pytest.param("pässwörd", "pässwörd", id="beyond ASCII"),
        pytest.param("abc.+*(x)", "is abc.+*(x)!", id="with signs of patterns"),
        pytest.param("  spaced-out  ", "is spaced-out.", id="without its blanks"),
    ],
)
def test_a_secret_is_known_in_every_spelling(value: str, text: str) -> None:
    shown = masked(text, secrets_of({"DB_PASS": value}))

    assert MASK in shown
    assert value.strip() not in shown
    assert "%40ss" not in shown
    assert "te\\\\d" not in shown


def test_the_longest_secret_goes_first() -> None:
    secrets = secrets_of({"A_TOKEN": "abcdefgh", "B_TOKEN": "abcdefgh-ijklmnop"})

    assert masked("abcdefgh-ijklmnop", secrets) == MASK


def test_a_short_secret_is_not_looked_for_within_words() -> None:
    secrets = secrets_of({"DB_PASS": "metric"})

    assert masked("metrics of metric, asymmetric", secrets) == (
        f"metrics of {MASK}, asymmetric"
    )


URLS: Final = {
    "a database": "postgresql://ann:{}@db.example/train",
    "a cache without a user": "redis://:{}@cache.example:6379/0",
    "a package index": "https://ci:{}@pypi.example/simple",
    "a clone": "https://oauth2:{}@git.example/a/b.git",
    "a queue": "amqps://ann:{}@mq.example/%2F",
    "one in capitals": "HTTPS://ANN:{}@EXAMPLE.COM",
}


@pytest.mark.parametrize("url", URLS.values(), ids=URLS)
@pytest.mark.parametrize("value", [VALUE, "p%40ss%2Fword", "with@sign", "abc"])
def test_the_password_of_a_url_is_masked_in_every_text(url: str, value: str) -> None:
    shown = masked(f"cannot connect to {url.format(value)}: refused")

    assert shown == f"cannot connect to {url.format(MASK)}: refused"


@pytest.mark.parametrize(
    "name", ["DATABASE_URL", "REDIS_URI", "SENTRY_DSN", "PIP_INDEX"]
)
@pytest.mark.parametrize(
    "text", [VALUE, f"password {VALUE}", f"('ann', '{VALUE}')", "p@ss/word!"]
)
def test_the_password_of_a_variables_url_is_masked_wherever_it_stands(
    name: str, text: str
) -> None:
    environ = {
        name: f"postgresql://ann:{VALUE}@db/x",
        f"{name}_2": "x://ann:p%40ss%2Fword!@db",
    }

    shown = masked(f"wrong {text} for ann", secrets_of(environ))

    assert MASK in shown
    assert VALUE not in shown
    assert "p@ss" not in shown
    assert "for ann" in shown


A32: Final = "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY"

SHAPES: Final = {
    "a personal token of GitHub": f"ghp_{A32}0000",
    "a token of an action": f"ghs_{A32}0000",
    "a fine-grained token of GitHub": f"github_pat_{A32}_{A32}",
    "a token of GitLab": "glpat-xYz12345_AbCdEfGh-9",
    "a key of AWS": "AKIA" + "IOSFODNN7EXAMPLE",
    "a temporary key of AWS": "ASIA" + "IOSFODNN7EXAMPLE",
    "a bot of Slack": "xoxb-" + "123456789012-abcdefGHIJKL",
    "a token of Hugging Face": f"hf_{A32}aa",
    "a key of OpenAI": f"sk-proj-{A32}",
    "a live key of Stripe": "sk_live_" + A32,
    "a token of PyPI": f"pypi-AgEIcHlwaS5vcmc{A32}",
    "a token of npm": f"npm_{A32}aaaa",
    "a token of Docker": f"dckr_pat_{A32}",
    "a key of Google": f"AIza{A32}abc",
    "a JSON Web Token": "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJ-_adQ",
    "a private key": (
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nAAAA\n-----END RSA PRIVATE KEY-----"
    ),
    "a private key that is cut off": "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r",
}


@pytest.mark.parametrize("secret", SHAPES.values(), ids=SHAPES)
def test_what_looks_like_a_key_is_masked_without_a_variable(secret: str) -> None:
    assert masked(f"E  AuthError('{secret}") == f"E  AuthError('{MASK}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abcdefgh1", "Authorization: Bearer ***"),
        ("authorization: basic dXNlcjpwYXNz", "authorization: basic ***"),
        ("GET /a?x=1&token=abc&y=2", "GET /a?x=1&token=***&y=2"),
        ("GET /a?X-Amz-Signature=0af&y", "GET /a?X-Amz-Signature=***&y"),
        ("blob?sv=1&sig=abc%3D", "blob?sv=1&sig=***"),
        ("connect(user='ann', password='it is')", "connect(user='ann', password=***)"),
        ("host=db password=hunter2 port=1", "host=db password=*** port=1"),
        ("DB_PASSWORD=hunter2;x", "DB_PASSWORD=***;x"),
        ("Server=x;Pwd=hunter2;", "Server=x;Pwd=***;"),
    ],
)
def test_what_stands_behind_a_word_that_says_so_is_masked(
    text: str, shown: str
) -> None:
    assert masked(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "tests/test_a.py::test_step[8-a::b] SLOWER: 12.00 ms per step, was 10.00 ms",
        "1f2e3d4c5b6a79880123456789abcdef01234567",
        "assert password == 'expected'",
        "Unexpected token: 'x' at basic block 3",
        "basic functionality and bearer assignments",
        "https://example.com/a?b=c#d",
        "ssh://git@example.com/a.git",
        "time: 12:30, see http://[::1]:80/a",
        "mask-token-classifier, AKIA is short, ghp_ too, sk-learn",
        "peak_allocated_bytes 1073741824",
        "a.py:3: KeyError: 'hf_model'",
    ],
)
def test_an_ordinary_text_is_left_alone(text: str) -> None:
    assert masked(text) == text


def test_a_key_of_several_lines_is_masked_line_by_line() -> None:
    lines = [f"line-{number}-of-a-key-{A32}" for number in range(3)]
    secrets = secrets_of({"DEPLOY_KEY": "\n".join(lines)})

    assert masked(f"found {lines[1]}", secrets) == f"found {MASK}"


def test_paths_are_still_shortened() -> None:
    text = f"/home/ann/project/a.py and /home/ann/b, {VALUE}"

    shown = shown_headline(text, Path("/home/ann/project"), Path("/home/ann"), [VALUE])

    assert shown == "a.py and ~/b, ***"


PLANTED: Final = {
    "DB_PASS": "dbpass-4711-x",
    "DATABASE_URL": "postgresql://ann:urlpass-4712-x@db/x",
    "DEPLOY_KEY": "deploykey-4713-x",
    "GH_PAT": "ghpat-4714-x",
}
STRINGS: Final = (
    *("dbpass-4711-x", "urlpass-4712-x", "deploykey-4713-x", "ghpat-4714-x"),
    *("child-4715-x", f"ghp_{A32}0000"),
)

INNER: Final = """
import os
import pytest

SHAPED = "SHAPE"
TEXTS = [
    "{DB_PASS}", "{DATABASE_URL}", "{DEPLOY_KEY}", "{GH_PAT}", "{SECRET_OF_CHILD}",
    SHAPED,
]
each = pytest.mark.parametrize("n", range(len(TEXTS)))
os.environ["SECRET_OF_CHILD"] = "child-4715-x"  # as a file of variables would


def text(n):
    return "refused " + TEXTS[n].format(**os.environ)


@each
def test_raises(gpuperf, n):
    gpuperf(int)
    raise ValueError(text(n))


@each
def test_skips(gpuperf, n):
    pytest.skip(text(n))


@each
def test_expects(gpuperf, n):
    pytest.xfail(text(n))


@each
def test_prints(gpuperf, n, record_property):
    print(text(n))
    gpuperf(int)
    raise ValueError("it printed")
"""


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Everything that one run prints and leaves, by what it is."""
    folder = tmp_path_factory.mktemp("secrets")
    summary = folder.with_name("summary")
    planted = {**PLANTED, "GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    desk = Desk(folder, typing_server(), planted)
    desk.write("test_it.py", INNER.replace("SHAPE", STRINGS[-1]))
    desk.play({})
    ended = desk.gate("-rA", "--tb=short", "--junitxml=junit.xml")
    assert ended.status == 1, ended.text
    page = desk.type("gpuperf report --out=page.html")
    assert page.status == 0, page.text
    artefacts = folder / ".gpuperf"
    return {
        "the terminal": ended.text,
        "the annotations": "\n".join(
            line for line in ended.output.splitlines() if line.startswith("::")
        ),
        "results.json": (artefacts / "results.json").read_text("utf-8"),
        "comment.md": (artefacts / "comment.md").read_text("utf-8"),
        "the summary": summary.read_text("utf-8"),
        "the JUnit file": (folder / "junit.xml").read_text("utf-8"),
        "the page": (folder / "page.html").read_text("utf-8"),
    }


@pytest.mark.parametrize("secret", STRINGS)
@pytest.mark.parametrize(
    "place",
    [
        *("the terminal", "the annotations", "results.json", "comment.md"),
        *("the summary", "the JUnit file", "the page"),
    ],
)
def test_a_run_leaves_a_mask_and_no_secret(
    place: str, secret: str, left: dict[str, str]
) -> None:
    assert secret not in left[place]
    assert "refused" in left[place]
    assert MASK in left[place]
