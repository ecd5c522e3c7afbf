"""The command line: one message for what is wrong, and, without a GPU, all that can be said about the graphs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from smollm2 import cli, many

import graphdsl as gd

from .models import TINY

FOLDER = Path(cli.__file__).parent


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a prompt is missing"),
        (["hello", "--prompts", "a file"], "give one of them"),
        (["hello", "--temperature", "-1"], "--temperature: it is a number from 0 on, and not '-1'"),
        (["hello", "--temperature", "nan"], "--temperature: it is a number from 0 on, and not 'nan'"),
        (["hello", "--top-k", "0"], "--top-k: it is a positive number"),
        (["hello", "--max-tokens", "many"], "--max-tokens: it is a positive number, and not 'many'"),
        (["hello", "--seed", "-3"], "--seed: it is a whole number"),
        (["hello", "--context", "9000"], "--context: it is a number from 2 to 8192"),
        (["hello", "--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_arguments_are_one_message(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


def test_a_picture_of_no_known_format_is_refused(tmp_path, capsys):
    assert cli.main(["--show-graph", str(tmp_path / "graph.jpg")]) == 2
    assert "svg, png, pdf, dot" in capsys.readouterr().err


def test_the_picture_has_a_frame_for_each_layer_in_columns(tmp_path):
    path = tmp_path / "graph.dot"
    assert cli.main(["--show-graph", str(path)]) == 0
    text = path.read_text()
    assert text.count("subgraph") == 30
    assert text.count("constraint=false") == 5  # six columns


def test_as_a_script_it_finds_its_modules(tmp_path):
    """From another folder, as ``python docs/examples/smollm2``."""
    done = subprocess.run([sys.executable, FOLDER], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: a prompt is missing: say something, such as 'What is the capital of France?'\n"
    assert not os.listdir(tmp_path)


def test_without_a_gpu_the_graphs_are_checked_and_no_tokens_are_promised(monkeypatch, capsys):
    monkeypatch.setattr(cli, "unavailable", lambda: "there is no GPU")
    monkeypatch.setattr(cli, "BUCKETS", (8,))
    monkeypatch.setattr(cli, "SMOLLM2_135M", TINY)
    assert cli.main(["What is gravity?", "--context", "15"]) == cli.NO_GPU  # kernels of test_generate, compiled once
    said = capsys.readouterr()
    assert "there is no GPU" in said.err
    assert "generating needs an NVIDIA GPU" in said.err
    rows = {line.split()[1]: line.split("│") for line in said.out.splitlines() if line.startswith("│")}
    assert [int(cell) for cell in rows["decode"][2:5]] == [9, 8, 6]
    assert all(cells[-2].strip() == "none" for cells in rows.values())


def test_prompts_are_the_lines_of_a_file(tmp_path):
    path = tmp_path / "questions"
    for text, why in ((None, "cannot be read"), ("\n \n", "there is none")):
        if text is not None:
            path.write_text(text)
        with pytest.raises(gd.GraphdslError, match=why) as caught:
            many.lines_of(path)
        assert caught.value.field == "--prompts"
    path.write_text("What is gravity?\n\nAnd light?\n")
    assert many.lines_of(path) == ["What is gravity?", "And light?"]
