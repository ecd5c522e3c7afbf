"""Ranges: where they go, and that they go nowhere while no profiler listens."""

from __future__ import annotations

import logging
import sys

import pytest

from graphdsl import profiler
from tests.profiler import Deaf, listen


def test_ranges_nest_and_end_whatever_is_raised(monkeypatch):
    heard = listen(monkeypatch)
    with pytest.raises(KeyError), profiler.named("outer"), profiler.named("inner"):
        raise KeyError
    assert heard.ranges == [(0, "outer"), (1, "inner")]
    assert heard.open == []


def test_nobody_listens_without_a_tool(monkeypatch):
    listen(monkeypatch, Deaf())
    assert not profiler.listens()
    with profiler.named("nothing"):
        pass


def test_without_the_package_nothing_is_said_but_to_a_profiler(monkeypatch, caplog):
    listen(monkeypatch)
    monkeypatch.setitem(sys.modules, "nvtx", None)  # as if it were not installed
    monkeypatch.delenv("NVTX_INJECTION64_PATH", raising=False)
    with caplog.at_level(logging.WARNING, "graphdsl"):
        assert profiler.domain() is None
        assert not caplog.messages
        profiler.domain.cache_clear()
        monkeypatch.setenv("NVTX_INJECTION64_PATH", "/opt/nsight/libToolsInjection64.so")
        assert profiler.domain() is None
    assert "pip install 'cuda-graphdsl[serve]'" in caplog.text


def test_labels_stand_behind_names_while_they_last():
    with profiler.labelled("batch=4"):
        with profiler.labelled("batch=8"):
            assert profiler.label() == " [batch=8]"
        assert profiler.label() == " [batch=4]"
    assert profiler.label() == ""


def test_the_package_itself_tells_that_no_tool_listens():
    pytest.importorskip("nvtx")
    profiler.domain.cache_clear()
    assert profiler.domain() is None
