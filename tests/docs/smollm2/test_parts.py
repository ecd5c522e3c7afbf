"""The parts of benchmarks, and that each script is one."""

import json
import runpy
import sys
from pathlib import Path

import pytest
from smollm2.parts import measure, parser

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "examples" / "smollm2"


def test_a_part_that_fails_leaves_the_others(tmp_path, capsys):
    out = tmp_path / "found.json"
    parts = {"one": lambda: 1, "two": lambda: 1 / 0, "three": lambda: [3], "else": lambda: pytest.fail("not asked for")}
    given = parser(None).parse_args(["--out", str(out), "--only", "one", "t"])
    assert measure(given, parts, format=1) == 1
    found = json.loads(out.read_text())
    assert found.pop("machine")
    assert found == {"format": 1, "one": 1, "three": [3]}
    assert "two: ZeroDivisionError: division by zero" in capsys.readouterr().err
    assert measure(parser(None).parse_args(["--out", str(out), "--only", "three"]), parts) == 0


@pytest.mark.parametrize("script", ["bench.py", "serve_bench.py", "soak.py"])
def test_a_script_says_what_it_takes(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / script), run_name="__main__")
    assert ended.value.code == 0
    assert "--out" in capsys.readouterr().out
