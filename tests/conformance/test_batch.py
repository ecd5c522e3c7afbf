"""Nodes that write and wait for single words of memory."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver
from graphdsl.errors import CheckError, UpdateError


def run(exe) -> None:
    exe.launch()
    exe.synchronize()


@pytest.mark.parametrize("dtype", [np.uint32, np.int32, np.uint64, np.int64])
def test_words_are_written_waited_for_and_updated(device: Driver, dtype):
    graph = gd.Graph("demo")
    words, out = graph.device_array("words", 3, dtype), graph.host_array("out", 3, dtype)
    value, place = graph.param("value", np.int32, default=5), graph.param("place", np.int32, default=1)
    operations = [
        gd.write_value(words[0], value),
        gd.memory_barrier(),
        gd.write_value(words[place], value + 1),
        gd.wait_value(words[0], value, "eq"),
    ]
    meet = graph.batch_mem_ops(operations, may_deadlock=True, name="meet")
    graph.memset(words, 0) >> meet >> graph.memcpy(out, words)
    with graph.instantiate(device) as exe:
        run(exe)
        assert exe["out"].tolist() == [5, 6, 0]
        exe.update(value=-2 if np.dtype(dtype).kind == "i" else 7, place=2)
        run(exe)
        assert exe["out"].tolist() == ([-2, 0, -1] if np.dtype(dtype).kind == "i" else [7, 0, 8])
        exe.node("meet").update(operations=[gd.write_value(words[1], 9), *operations[1:3], gd.wait_value(words[1], 9)])
        run(exe)
        assert exe["out"].tolist()[1] == 9
        with pytest.raises(UpdateError, match="keeps number, order, kinds and widths") as caught:
            exe.node("meet").update(operations=operations[:2])
        assert (caught.value.node, caught.value.field) == ("meet", "operations")
        with pytest.raises(UpdateError, match="can be disabled"):
            exe.node("meet").disable()


@pytest.mark.parametrize(
    ("word", "value", "comparison"),
    [(5, 5, "geq"), (6, 5, "geq"), (0, 2**32 - 1, "geq"), (5, 5, "eq"), (6, 4, "and"), (0, 1, "nor")],
)
def test_waits_end(device: Driver, word, value, comparison):
    graph = gd.Graph("demo")
    words = graph.host_array("words", 1, np.uint32)
    graph.batch_mem_ops(gd.wait_value(words[0], value, comparison), may_deadlock=True)
    with graph.instantiate(device) as exe:
        exe["words"][0] = word
        run(exe)


def test_a_child_works_on_what_it_is_bound_to(device: Driver):
    inner = gd.Graph("inner")
    inner.batch_mem_ops(gd.write_value(inner.device_array("words", 2, np.uint32)[1], 3), may_deadlock=True)
    graph = gd.Graph("outer")
    words = graph.device_array("words", 2, np.uint32)
    graph.memset(words, 0) >> graph.child(inner, {"words": words})
    with graph.instantiate(device) as exe:
        run(exe)
        assert exe["words"].copy_to_host().tolist() == [0, 3]


def test_what_is_no_word_is_refused_before_the_driver(device: Driver):
    graph = gd.Graph("demo")
    x, bytes_ = graph.device_array("x", 4, np.float32), graph.device_array("bytes", 4, np.uint8)
    staged = graph.host_array("staged", 1, np.uint32, pinned=False)
    pair = graph.device_array("pair", 2, np.uint32)
    operations = [gd.write_value(array, 1) for array in (x[0], bytes_[0], pair, staged[0], pair[1])]
    graph.batch_mem_ops(operations, may_deadlock=True, name="meet")
    with pytest.raises(CheckError) as caught:
        graph.instantiate(device)
    found = [(each.code, each.node, each.field) for each in caught.value.report.errors]
    assert found == [("GD341", "meet", f"operations[{index}].array") for index in range(4)]
