from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

import graphdsl as gd
from graphdsl.declare.event import event_handle
from graphdsl.errors import DeclarationError


@pytest.mark.parametrize(
    "owner",
    [
        4096,
        SimpleNamespace(handle=4096),
        SimpleNamespace(cuda_event=4096),
        SimpleNamespace(ptr=4096),
        SimpleNamespace(handle=ctypes.c_void_p(4096)),
    ],
    ids=["int", "cuda.core", "PyTorch", "CuPy", "Numba"],
)
def test_events_of_other_libraries_have_handles(owner):
    assert event_handle(owner, "done") == 4096


@pytest.mark.parametrize("owner", [0, -1, True, 2.5, "soon", None, SimpleNamespace(handle=None), object()])
def test_what_has_no_handle_is_refused(owner):
    with pytest.raises(DeclarationError, match="an event of somebody else") as caught:
        event_handle(owner, "done")
    assert caught.value.field == "done"


def test_only_events_are_recorded_and_waited_for():
    graph = gd.Graph("demo")
    for declare in (graph.record, graph.wait):
        with pytest.raises(DeclarationError, match="is an event of the graph") as caught:
            declare("done", name="mark")
        assert (caught.value.node, caught.value.field) == ("mark", "event")


def test_an_event_of_another_graph_is_found():
    graph = gd.Graph("demo")
    graph.record(gd.Graph("other").event("done"), name="mark")
    (found,) = graph.check().errors
    assert (found.code, found.node, found.field) == ("GD105", "mark", "event")


def test_an_event_of_somebody_else_is_not_given_timing():
    graph = gd.Graph("demo")
    with pytest.raises(DeclarationError, match="was decided when it was made") as caught:
        graph.event("stop", 4096, timing=True)
    assert caught.value.field == "timing of 'stop'"
    assert not graph.operands
