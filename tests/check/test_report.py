"""Reports: a list in code, a table in print, an exception where one is wanted."""

from __future__ import annotations

import dataclasses
import io
import json

import numpy as np
import pytest

from graphdsl.check import Finding, Report
from graphdsl.errors import CheckError
from tests.check.conftest import scale


def finding(code="GD211", severity="error", node="scale", **fields):
    details = {
        "nodes": (node,),
        "field": "grid",
        "value": (0, 1, 1),
        "rule": "a grid has blocks",
        "remedy": "Add some.",
    }
    details.update(fields)
    return Finding(code, severity, node, location=("/home/me/demo.py", 12), **details)


ADVICE = finding("GD701", "advice", "load", field="source", value=None, rule="pinned is faster", remedy=None)
WARNING = finding("GD702", "warning", None, nodes=(), field="buffer 'z'", value=None, rule="no node uses it")
ERROR = finding()
OTHER = finding("GD101", node="a", nodes=("a", "b", "c"), field="edges", value="a -> b -> c -> a", rule="no cycles")


@pytest.fixture
def report():
    return Report([ADVICE, WARNING, ERROR, OTHER], graph="demo", target="sm_90")


def test_it_is_a_sequence_with_errors_first_and_then_by_code(report):
    assert list(report) == [OTHER, ERROR, WARNING, ADVICE]
    assert len(report) == 4
    assert report[0] is OTHER
    assert report[1:3] == [ERROR, WARNING]
    assert ERROR in report


def test_findings_keep_their_order_within_a_code():
    first, second = finding(node="z"), finding(node="a")
    assert list(Report([first, second], graph="demo", target="sm_90")) == [first, second]


def test_severities(report):
    assert report.errors == [OTHER, ERROR]
    assert report.warnings == [WARNING]
    assert report.advice == [ADVICE]
    assert not report.ok
    assert Report([WARNING, ADVICE], graph="demo", target="sm_90").ok


def test_summary(report):
    assert report.summary == "graph 'demo' on sm_90: 2 errors, 1 warning, 1 advice"
    assert repr(report) == f"<Report: {report.summary}>"
    assert Report([], graph="demo", target="sm_80").summary == "graph 'demo' on sm_80: nothing found"


def test_a_message_names_node_field_value_rule_remedy_and_place():
    assert ERROR.message == (
        "node 'scale', grid = (0, 1, 1): a grid has blocks. Add some. (declared at /home/me/demo.py:12)"
    )
    assert str(ERROR) == f"GD211 {ERROR.message}"


def test_findings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ERROR.code = "GD999"


def test_raise_for_errors_lists_every_error_and_no_more(report):
    with pytest.raises(CheckError) as caught:
        report.raise_for_errors()
    message = str(caught.value)
    assert message.startswith("graph 'demo' has 2 errors:\n")
    assert OTHER.message in message
    assert ERROR.message in message
    assert "GD702" not in message
    assert caught.value.report is report
    assert (caught.value.node, caught.value.field, caught.value.rule) == ("a", "edges", "no cycles")


def test_raise_for_errors_gives_a_report_without_errors_back():
    report = Report([WARNING], graph="demo", target="sm_90")
    assert report.raise_for_errors() is report


def test_str_is_a_table_without_colour_codes(report):
    text = str(report)
    assert "\x1b" not in text
    for part in ("GD101", "error", "a and 2 more", "demo.py:12", "Add some.", report.summary):
        assert part in text
    assert max(map(len, text.splitlines())) <= 120


def test_square_brackets_in_findings_are_text_and_not_markup():
    text = str(Report([finding(value="x[:n]", remedy="[red]Slice[/red] it.")], graph="[demo]", target="sm_90"))
    assert "x[:n]" in text
    assert "[red]Slice[/red] it." in text
    assert "[demo]" in text


def test_str_of_an_empty_report_says_so():
    assert str(Report([], graph="[demo]", target="sm_90")) == "graph '[demo]' on sm_90: nothing found"


def test_print_has_colours_on_a_terminal(report):
    stream = io.StringIO()
    report.print(file=stream, force_terminal=True, color_system="standard", width=100)
    assert "\x1b[31m" in stream.getvalue()


def test_html_is_escaped():
    html = Report([finding(value="<b>", node="a&b")], graph="<demo>", target="sm_90")._repr_html_()
    assert "&lt;b&gt;" in html
    assert "a&amp;b" in html
    assert "<b>" not in html
    assert "&lt;demo&gt;" in html


def test_html_of_an_empty_report_has_no_table():
    assert "<table" not in Report([], graph="demo", target="sm_90")._repr_html_()


def test_json(report):
    loaded = json.loads(json.dumps(report.to_json()))
    assert [each["code"] for each in loaded] == ["GD101", "GD211", "GD702", "GD701"]
    assert loaded[1] == {
        "code": "GD211",
        "severity": "error",
        "node": "scale",
        "nodes": ["scale"],
        "field": "grid",
        "value": [0, 1, 1],
        "rule": "a grid has blocks",
        "remedy": "Add some.",
        "location": ["/home/me/demo.py", 12],
        "message": ERROR.message,
    }


def test_json_of_a_value_that_json_does_not_know_is_its_text():
    assert finding(value=np.dtype(np.float32)).to_json()["value"] == "float32"
    assert finding(value=1 + 2j).to_json()["value"] == "(1+2j)"


def test_a_number_that_would_fill_pages_is_told_by_its_size(demo):
    demo.g.kernel(scale, grid=10**5000, block=1, args=(demo.x, demo.y, demo.gain, demo.n), name="wide")
    demo.g.memcpy(demo.x, demo.raw, nbytes=-(10**5000), name="copy")
    demo.g.kernel(scale, grid=1, block=demo.n * 10**5000, args=(demo.x, demo.y, demo.gain, 10**5000), name="deep")
    report = demo.g.check(compile=False)
    assert {found.node for found in report.errors} == {"wide", "copy", "deep"}
    for text in (str(report), report._repr_html_(), json.dumps(report.to_json())):
        assert "an integer of" in " ".join(text.split())
        assert len(text) < 20_000
