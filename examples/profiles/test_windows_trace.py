r"""Traces that were written on Windows hold backslashes that are no JSON: ``C:\Users``.

torch writes ``C:/Users`` today, so its own traces can be read as they are. Of a trace that
cannot, the backslashes that begin no escape are doubled; one that does begin one, as
``\n`` of ``C:\new`` does, stays what JSON takes it for.
"""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function


LONE = re.compile(r'\\(?:(u[0-9a-fA-F]{4}|["\\/bfnrt])|)')


def repaired(text):
    return LONE.sub(lambda found: found[0] if found[1] else r"\\", text)


def names_of(text):
    return [event["name"] for event in json.loads(text)["traceEvents"]]


@pytest.mark.claim("T3")
@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"D:\Programs\model.py", r"D:\Programs\model.py"),
        (r"C:\\Users\\me\\train.py", r"C:\Users\me\train.py"),
        (r"C:\Users\me", r"C:\Users\me"),
        (r"\u00e9\train", "\u00e9\train"),
    ],
)
def test_a_trace_with_backslashes_can_be_read_again(written, name):
    text = f'{{"traceEvents": [{{"name": "{written}"}}]}}'

    assert names_of(repaired(text)) == [name]


def test_a_trace_of_today_needs_no_repair(tmp_path):
    file = tmp_path / "trace.json"
    name = record_function(r"C:\Users\train.py")
    with profile(activities=[ProfilerActivity.CPU]) as profiler, name:
        torch.ones(3)
    profiler.export_chrome_trace(str(file))

    text = file.read_text(encoding="utf-8")
    assert [name for name in names_of(text) if "train.py" in name]
    assert names_of(repaired(text)) == names_of(text)
