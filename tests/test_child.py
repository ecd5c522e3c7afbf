"""Children that are watched: how they end, and what they were at."""

from __future__ import annotations

import os
import sys

import pytest

from graphdsl import child
from graphdsl.child import Ended, teller, watch

pytestmark = pytest.mark.skipif(not child.CAN_WATCH, reason="a child cannot be given a pipe here")


@pytest.fixture
def running(monkeypatch):
    """Watches a child that runs a text with ``tell`` in place of the command line."""

    def call(text, patience=None) -> Ended:
        code = "import os, sys, time; from graphdsl.child import teller; tell = teller(int(sys.argv[1])); "
        monkeypatch.setattr(child, "_code", lambda: code + text)
        return watch(lambda pipe: [str(pipe)], patience)

    return call


@pytest.mark.parametrize("status", [0, 1, 2])
def test_one_that_ends_by_itself(running, status):
    assert running(f"tell('a'); tell('b'); sys.exit({status})") == Ended(status, "b")


def test_one_that_tells_of_nothing(running):
    assert running("pass") == Ended(0, "")


def test_the_end_of_all_steps(running):
    assert running("tell('a'); tell('')") == Ended(0, "")


def test_one_that_dies(running):
    ended = running("tell('a'); os.abort()")
    assert ended == Ended(None, "a", "the process died of SIGABRT")


def test_a_step_that_never_ends(running):
    ended = running("tell('a'); tell('b'); time.sleep(600)", patience=1)
    assert ended == Ended(None, "b", "it took longer than 1 s")


def test_what_is_no_step_may_take_longer(running):
    assert running("time.sleep(0.5); tell('a'); tell(''); time.sleep(0.5)", patience=0.4).status == 0


def test_an_interrupt_ends_the_child(running, monkeypatch):
    def interrupted(descriptor, patience):
        yield "a"
        raise KeyboardInterrupt

    monkeypatch.setattr(child, "_steps", interrupted)
    assert running("time.sleep(600)") == Ended(None, "a", "it was interrupted")


def test_names_are_lines(running):
    assert running("tell('two' + chr(10) + 'lines')").step == "two lines"


def test_nobody_need_listen():
    teller(None)("a")


def test_it_finds_what_its_parent_finds(tmp_path, monkeypatch):
    (tmp_path / "numpy.py").write_text("raise RuntimeError('the wrong numpy')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [part for part in sys.path if part])
    assert watch(lambda pipe: ["--version"]) == Ended(0, "")


def test_its_pipe_is_closed():
    before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
    watch(lambda pipe: ["--version"])
    after = set(os.listdir("/proc/self/fd")) if before else set()
    assert len(after) == len(before)
