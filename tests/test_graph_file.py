import os
import sys
import textwrap

import pytest

from graphdsl.errors import DeclarationError, GraphdslError
from graphdsl.graph_file import load_graph


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Writes a Python file and gives its path; ``sys.path`` and modules are put back."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)

    def write(text, name="graphs.py"):
        (tmp_path / name).write_text(textwrap.dedent(text))
        return name

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


TWO = """
    import graphdsl as gd

    first, second = gd.Graph("1"), gd.Graph("2")
    again = first

    def build(name="made"):
        return gd.Graph(name)

    def copies(count):
        return gd.Graph("copies")

    def number():
        return 3
"""


def refused(spec):
    with pytest.raises(GraphdslError) as caught:
        load_graph(spec)
    return str(caught.value)


# Finding the graph


def test_the_only_graph_needs_no_name(file):
    assert load_graph(file("import graphdsl as gd\nnet = gd.Graph('net')\nalias = net\n")).name == "net"


def test_a_name_chooses_a_graph_or_a_function(file):
    path = file(TWO)
    assert [load_graph(f"{path}:{name}").name for name in ("first", "second", "again", "build")] == [
        "1",
        "2",
        "1",
        "made",
    ]


def test_several_graphs_are_named_once_each(file):
    assert "the file declares 2 graphs: first, second" in refused(file(TWO))
    assert "graphs.py:first" in refused("graphs.py")


def test_no_graph_names_a_function_that_may_make_one(file):
    message = refused(file("def needs(n): pass\ndef build(): pass\n"))
    assert "the file declares no graph" in message
    assert "graphs.py:build" in message


def test_a_wrong_name_suggests_those_that_are_there(file):
    assert "Names close to it: second." in refused(f"{file(TWO)}:secnd")


def test_a_function_with_required_parameters_is_not_called(file):
    assert "copies(count)" in refused(f"{file(TWO)}:copies")


def test_what_is_named_must_be_a_graph(file):
    assert "number = an object of type int" in refused(f"{file(TWO)}:number")
    assert "gd = an object of type module" in refused("graphs.py:gd")


@pytest.mark.parametrize("spec", ["nowhere.py", "nowhere.py:net", "", ":"])
def test_a_missing_file_is_said(spec):
    assert "there is no such file" in refused(spec)


@pytest.mark.parametrize("spec", [".", "graphs", "graphs:net"])
def test_a_folder_is_no_file(spec, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "graphs").mkdir()
    message = refused(spec)
    assert "it is a folder. Give the path of a Python file" in message
    assert "no such file" not in message


def test_a_file_may_have_a_colon_in_its_name(file):
    assert load_graph(file("import graphdsl as gd\nnet = gd.Graph('net')\n", "a:b.py")).name == "net"


def test_a_file_of_another_kind_is_refused(file):
    assert "notes.txt: a graph is declared in a Python file" in refused(file("hello", "notes.txt"))


# Importing the file


def test_modules_beside_the_file_can_be_imported(file):
    file("import graphdsl as gd\nnet = gd.Graph('beside')\n", "part.py")
    assert load_graph(file("from part import net\n")).name == "beside"


def test_a_file_may_be_called_like_a_package(file):
    import numpy

    assert load_graph(file("import graphdsl as gd\nnet = gd.Graph('net')\n", "numpy.py")).name == "net"
    assert sys.modules["numpy"] is numpy


def test_what_the_file_prints_goes_to_stderr(file, capsys):
    load_graph(file("import graphdsl as gd\nprint('hello')\nnet = gd.Graph('net')\n"))
    assert capsys.readouterr() == ("", "hello\n")


def test_code_under_main_does_not_run(file):
    load_graph(file("import graphdsl as gd\nnet = gd.Graph('net')\nif __name__ == '__main__':\n    1 / 0\n"))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError: invalid syntax"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
        ("import json\njson.loads('[')\n", 2, "JSONDecodeError: Expecting value"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("import nosuchmodule\n", 1, "Install nosuchmodule"),
    ],
)
def test_a_file_that_does_not_import_names_its_line(file, text, line, said):
    message = refused(file(text))
    assert f"FILE = graphs.py:{line}: importing the file failed" in message
    assert said in message
    assert ("__main__" in message) == ("Error: division" in message or "JSON" in message or "Exit" in message)


def test_a_wrong_declaration_keeps_its_message(file):
    path = file("import graphdsl as gd\nnet = gd.Graph('net')\nnet.empty(name='a')\nnet.empty(name='a')\n")
    with pytest.raises(GraphdslError, match=r"graphs\.py:4: .*already has a node of this name") as caught:
        load_graph(path)
    assert isinstance(caught.value.__cause__, DeclarationError)


def test_a_function_that_fails_names_its_line(file):
    path = file("import graphdsl as gd\ndef build():\n    return gd.Graph(5)\n")
    assert "FILE = graphs.py:3: calling build() failed" in refused(f"{path}:build")


@pytest.mark.parametrize("call", ["raise ValueError('oops')", "raise SystemExit('oops')", "open('oops')"])
def test_a_function_that_fails_is_not_told_what_belongs_at_the_end_of_a_file(file, call):
    path = file(f"def build():\n    {call}\n")
    message = refused(f"{path}:build")
    assert "FILE = graphs.py:2: calling build() failed: " in message
    assert "oops" in message
    assert "__main__" not in message


def test_a_failure_without_a_text_is_named(file):
    path = file("def build():\n    raise MemoryError\n")
    assert refused(f"{path}:build").endswith("failed: MemoryError.")


def test_a_name_that_cannot_be_looked_up_names_the_line(file):
    path = file("def __getattr__(name):\n    raise RuntimeError(name)\n")
    assert "FILE = graphs.py:2: looking up net failed: RuntimeError: net" in refused(f"{path}:net")


def test_an_eager_signature_without_a_gpu_is_explained(file):
    from graphdsl.drivers.cuda import unavailable

    if unavailable() is None:
        pytest.skip("there is a GPU, and Numba compiles for it at once")
    text = "from numba import cuda\n@cuda.jit('void(float32[:])')\ndef clear(x):\n    x[0] = 0\n"
    message = refused(file(text))
    line = 2 if sys.version_info >= (3, 11) else 3  # where Python says that a decorator runs
    assert f"graphs.py:{line}: importing the file failed: CudaSupportError" in message
    assert "Numba asked for a GPU" in message
    assert "bare @cuda.jit" in message
    assert "signature=" in message


def test_a_file_that_was_edited_within_a_second_is_read_as_it_is(file, tmp_path):
    for name in ("one", "two", "six"):
        path = file(f"import graphdsl as gd\ng = gd.Graph('{name}')\n")
        os.utime(tmp_path / path, (1, 1))  # of one size and one time, as far as Python can tell
        assert load_graph(path).name == name
