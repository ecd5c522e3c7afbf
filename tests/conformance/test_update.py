"""Updates: by param, by node, enabled and disabled; atomic, and only what is touched."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import graphdsl as gd
from tests.conformance import kernels
from tests.conformance.test_run import demo_graph


def chain(length: int, size: int = 32) -> gd.Graph:
    g = gd.Graph("chain")
    value = g.param("value", np.float32, default=1.0)
    n = g.param("n", np.int32, default=size)
    x = g.host_array("x", size, np.float32)
    with g.sequence():
        for i in range(length):
            g.kernel(kernels.add_to, grid=gd.cdiv(n, 32), block=32, args=(x, value, n), name=f"add{i:03d}")
    return g


def result(exe) -> np.ndarray:
    exe["x"][:] = 0
    exe.launch()
    exe.synchronize()
    return exe["x"].copy()


def test_update_reaches_every_node_that_uses_the_param(device):
    with chain(10).instantiate(device) as exe:
        assert (result(exe) == 10).all()
        exe.update(value=0.5)
        assert (result(exe) == 5).all()
        exe.update({"value": 2}, n=4)
        np.testing.assert_array_equal(result(exe), np.where(np.arange(32) < 4, 20, 0))
        assert exe["value"] == 2.0


def test_one_node_by_name(device):
    with chain(3).instantiate(device) as exe:
        exe.node("add001").update(args={"value": 100.0})
        assert (result(exe) == 102).all()
        exe.update(value=2.0)
        assert (result(exe) == 104).all(), "a literal no longer follows the param"
        exe.node("add001").update(grid=1, block=16)
        np.testing.assert_array_equal(result(exe), np.where(np.arange(32) < 16, 104, 4))


def test_memory_nodes_by_name(device):
    g = demo_graph(64)
    with g.instantiate(device) as exe:
        exe["raw"][:] = np.arange(64)
        exe.node("clear").update(value=9)
        exe.node("load").update(destination=g.operands["x"][:32], source=g.operands["raw"][32:])
        exe.update(n=32)
        exe.launch()
        exe.synchronize()
        np.testing.assert_array_equal(exe["out"][:32], 2 * np.arange(32, 64))
        assert (exe["out"][32:] == 9).all()


def test_host_node_by_name(device):
    seen = []
    g = gd.Graph("host")
    g.host(seen.append, (1,), name="say")
    with g.instantiate(device) as exe:
        exe.launch()
        exe.synchronize()
        exe.node("say").update(args=(2,))
        exe.launch()
        exe.synchronize()
        exe.node("say").update(function=lambda value: seen.append(-value))
        exe.launch()
        exe.synchronize()
    assert seen == [1, 2, -2]


def test_disable_and_enable(device):
    with chain(3).instantiate(device) as exe:
        node = exe.node("add001")
        node.disable()
        assert not node.enabled
        assert (result(exe) == 2).all()
        exe.update(value=5.0)
        assert (result(exe) == 10).all(), "a node may be updated while it is disabled"
        node.enable()
        assert (result(exe) == 15).all()


def test_only_some_kinds_can_be_disabled(device):
    g = gd.Graph("empty")
    g.empty(name="barrier")
    with g.instantiate(device) as exe, pytest.raises(gd.UpdateError, match="barrier") as caught:
        exe.node("barrier").disable()
    assert caught.value.field == "enabled"


@pytest.mark.parametrize(
    ("changes", "node", "field"),
    [
        ({"n": 2**31}, None, "n"),
        ({"n": "many"}, None, "n"),
        ({"gain": 1j}, None, "gain"),
        ({"gian": 1.0}, None, "name"),
        ({"x": np.zeros(1024, np.float32)}, None, "x"),
        ({"n": 0}, "scale", "grid"),
        ({"n": -5}, "scale", "grid"),
    ],
)
def test_bad_updates_change_nothing(device, changes, node, field):
    with demo_graph().instantiate(device) as exe:
        exe["raw"][:] = 1
        with pytest.raises(gd.UpdateError) as caught:
            exe.update({"gain": 7.0, **changes})
        assert caught.value.node == node
        assert caught.value.field == field
        assert exe["gain"] == 2.0
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == 2).all()


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"block": 2048}, "block"),
        ({"block": 0}, "block"),
        ({"grid": (1, 70000)}, "grid"),
        ({"shared_bytes": 300_000}, "shared_bytes"),
        ({"color": 1}, "color"),
    ],
)
def test_bad_node_updates_change_nothing(device, fields, field):
    with demo_graph().instantiate(device) as exe:
        exe["raw"][:] = 1
        with pytest.raises(gd.UpdateError) as caught:
            exe.node("scale").update(**fields)
        assert caught.value.node == "scale"
        assert caught.value.field == field
        exe.launch()
        exe.synchronize()
        assert (exe["out"] == 2).all()


def test_arguments_that_need_another_kernel_are_refused(device):
    g = demo_graph()
    other = g.device_array("other", 1024, np.float64)
    with g.instantiate(device) as exe, pytest.raises(gd.UpdateError, match="compiled") as caught:
        exe.node("scale").update(args={"x": other})
    assert caught.value.node == "scale"


def test_later_changes_of_the_graph_change_no_exec(device):
    g = chain(2)
    with g.instantiate(device) as exe:
        args = (g.operands["x"], 50.0, 32)
        g.kernel(kernels.add_to, grid=1, block=32, args=args, name="later", after=g.node("add001"))
        assert (result(exe) == 2).all()
        with pytest.raises(gd.UpdateError, match="later"):
            exe.node("later")
    with g.instantiate(device) as exe:
        assert (result(exe) == 52).all()


def test_replaced_owners_live_until_the_last_launch_and_no_longer(device):
    g = gd.Graph("owners")
    first = gd.to_device(device, np.ones(8, np.float32))
    w = g.external("w", first)
    out = g.host_array("out", 8, np.float32)
    g.kernel(kernels.scale, grid=1, block=8, args=(w, out, 1.0, 8))
    with g.instantiate(device) as exe:
        exe.launch()
        second = gd.to_device(device, np.full(8, 2, np.float32))
        exe.update(w=second)
        exe.launch()
        gone = weakref.ref(second)
        third = gd.to_device(device, np.full(8, 3, np.float32))
        exe.update(w=third)
        del second
        exe.launch()
        exe.synchronize()
        gc.collect()
        assert gone() is None
        np.testing.assert_array_equal(exe["out"], np.full(8, 3))


def test_memory_stays_flat_over_many_updates(device):
    import tracemalloc

    g = gd.Graph("flat")
    owners = [gd.to_device(device, np.full(8, i, np.float32)) for i in range(2)]
    gain = g.param("gain", np.float32, default=1.0)
    out = g.host_array("out", 8, np.float32)
    run = g.kernel(kernels.scale, grid=1, block=8, args=(g.external("w", owners[0]), out, gain, 8))
    run >> g.host(lambda value: None, (gain,))
    with g.instantiate(device) as exe:

        def updates(count: int) -> None:
            for i in range(count):
                exe.update(gain=float(i), w=owners[i % 2])
                if i % 50 == 0:
                    exe.launch()
                if i % 100 == 99:  # what waits for launches is as much as waits at once
                    exe.synchronize()

        def held() -> int:
            gc.collect()
            ours = [tracemalloc.Filter(True, "*/graphdsl/*")]
            return sum(found.size for found in tracemalloc.take_snapshot().filter_traces(ours).statistics("filename"))

        updates(1500)  # what is bounded is full by then
        tracemalloc.start()
        before = held()
        updates(1000)
        grown = held() - before
        tracemalloc.stop()
        assert grown < 20_000, grown


def test_calls_are_the_same_on_every_driver(device):
    with demo_graph().instantiate(device) as exe, demo_graph().instantiate(gd.emulator()) as reference:
        built = [str(call) for call in exe.calls if call.function.startswith("cuGraph")]
        assert built == [str(call) for call in reference.calls if call.function.startswith("cuGraph")]
    kinds = [call.function for call in exe.calls if call.function.startswith("cuGraph")]
    assert kinds == [
        "cuGraphCreate",
        "cuGraphAddMemsetNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddKernelNode",
        "cuGraphAddMemcpyNode",
        "cuGraphAddDependencies",
        "cuGraphInstantiateWithParams",
        "cuGraphUpload",
    ]


def test_more_shared_memory_than_the_default_is_allowed_by_an_update(device):
    g = gd.Graph("shared")
    nbytes = g.param("nbytes", np.int64, default=128)
    args = (g.host_array("x", 32, np.float32), g.host_array("out", 1, np.float32))
    g.kernel(kernels.sum_dynamic_shared, grid=1, block=32, args=args, shared_bytes=nbytes, name="sum")
    with g.instantiate(device) as exe:
        exe["x"][:] = 1
        for count in (100_000, 128, 150_000):
            exe["out"][:] = 0
            exe.update(nbytes=count)
            exe.launch()
            exe.synchronize()
            assert exe["out"][0] == 32
        with pytest.raises(gd.UpdateError, match="sum") as caught:
            exe.update(nbytes=300_000)
        assert caught.value.field == "shared_bytes"
        assert exe["nbytes"] == 150_000


def test_numbers_of_one_node_are_converted_and_checked(device):
    with chain(2).instantiate(device) as exe:
        exe.node("add000").update(args={"value": 2, "n": 16})
        np.testing.assert_array_equal(result(exe), np.where(np.arange(32) < 16, 3, 1))
        for bad in ({"n": 2.5}, {"n": 2**40}, {"value": "much"}, {"colour": 1}):
            with pytest.raises(gd.UpdateError) as caught:
                exe.node("add000").update(args=bad)
            assert caught.value.node == "add000"
        np.testing.assert_array_equal(result(exe), np.where(np.arange(32) < 16, 3, 1))
        exe.node("add000").update(args={"value": exe_param(exe, "value")})
        exe.update(value=4.0)
        np.testing.assert_array_equal(result(exe), np.where(np.arange(32) < 16, 8, 4))


def exe_param(exe, name):
    """The param of that name, as the graph declared it."""
    return next(arg for arg in exe.node("add001").node.args if getattr(arg, "name", None) == name)


def test_operands_in_a_tuple_follow_updates(device):
    seen = []
    g = gd.Graph("tuples")
    n = g.param("n", np.int32, default=4)
    g.host(lambda pair: seen.append(pair[1]), ((g.host_array("h", 8, np.float32), n),))
    with g.instantiate(device) as exe:
        exe.update(n=7)
        exe.launch()
        exe.synchronize()
    assert seen == [7]


def test_host_nodes_see_memory_that_is_rebound(device):
    seen = []
    g = gd.Graph("hosts")
    n = g.param("n", np.int32, default=1)
    data = g.external("data", np.zeros(4))
    g.host(lambda array: seen.append(array.tolist()), (data[:n],), name="read")
    with g.instantiate(device) as exe:
        exe.update(data=np.full(4, 5.0), n=2)
        exe.launch()
        exe.synchronize()
        with pytest.raises(gd.UpdateError, match="read"):
            exe.update(data=np.full(4, 9.0), n=100)
        exe.update(n=3)
        exe.launch()
        exe.synchronize()
    assert seen == [[5.0, 5.0], [5.0, 5.0, 5.0]]


def test_a_view_of_two_dimensions_follows_a_param(device):
    g = gd.Graph("views")
    n = g.param("n", np.int64, default=2)
    x, y = g.host_array("x", (4, 3), np.float64), g.host_array("y", (3, 4), np.float64)
    g.kernel(kernels.transpose, grid=1, block=(4, 4), args=(x[:n, :], y))
    with g.instantiate(device) as exe:
        exe["x"][:] = 1
        for rows in (2, 3):
            exe["y"][:] = 0
            exe.update(n=rows)
            exe.launch()
            exe.synchronize()
            assert exe["y"].sum() == 3 * rows


def rows_graph(table: np.ndarray) -> gd.Graph:
    """Rows of ones are copied into a table of the host; ``rows``, ``columns`` and ``start`` say which."""
    g = gd.Graph("rows")
    rows, columns = g.param("rows", np.int32, default=2), g.param("columns", np.int32, default=3)
    start, value = g.param("start", np.int32, default=0), g.param("value", np.float32, default=1.0)
    x, whole = g.device_array("x", (4, 8), np.float32), g.external("table", table)
    with g.sequence():
        g.memset(x, value, name="fill")
        g.memcpy(whole[:rows, start : start + columns], x[:rows, start : start + columns], name="copy")
    return g


def corner(rows: int, columns: int, value: float = 1.0, start: int = 0) -> np.ndarray:
    expected = np.zeros((4, 8), np.float32)
    expected[:rows, start : start + columns] = value
    return expected


def copied(exe, table: np.ndarray) -> np.ndarray:
    table[:] = 0
    exe.launch()
    exe.synchronize()
    return table


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"rows": 3}, "destination"),
        ({"rows": 1}, "destination"),
        ({"columns": 4}, "destination"),
        ({"start": 2}, "destination"),
        ({"table": np.ones((4, 8), np.float32)}, "destination"),
    ],
    ids=str,
)
def test_copies_of_several_rows_cannot_be_updated(device, changes, field):
    table = np.zeros((4, 8), np.float32)
    with rows_graph(table).instantiate(device) as exe:
        said = exe.preflight({"value": 5.0, **changes})
        with pytest.raises(gd.UpdateError, match="several rows") as caught:
            exe.update({"value": 5.0, **changes})
        assert (caught.value.node, caught.value.field) == ("copy", field)
        assert "2 rows of 12 bytes" in caught.value.rule
        assert str(said.refusal) == str(caught.value)
        np.testing.assert_array_equal(copied(exe, table), corner(2, 3))
        exe.update(value=5.0)
        np.testing.assert_array_equal(copied(exe, table), corner(2, 3, 5.0))


def test_fields_of_copies_of_several_rows_cannot_be_updated(device):
    table = np.zeros((4, 8), np.float32)
    g = rows_graph(table)
    x, whole = g.operands["x"], g.operands["table"]
    with g.instantiate(device) as exe:
        for fields, field in (
            ({"source": x[2:, 5:]}, "source"),
            ({"destination": whole[2:, 5:]}, "destination"),
            ({"source": x[1, :3], "destination": whole[0, :3]}, "destination"),
            ({"source": x, "destination": whole}, "destination"),
            ({"source": x, "destination": whole, "nbytes": 4}, "destination"),
        ):
            with pytest.raises(gd.UpdateError) as caught:
                exe.node("copy").update(**fields)
            assert (caught.value.node, caught.value.field) == ("copy", field)
        np.testing.assert_array_equal(copied(exe, table), corner(2, 3))


def test_a_copy_that_happens_to_be_of_one_row_is_updated(device):
    table, other = np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32)
    with rows_graph(table).instantiate(device, values={"rows": 1}) as exe:
        exe.update(columns=5, start=1)
        np.testing.assert_array_equal(copied(exe, table), corner(1, 5, start=1))
        exe.update(table=other)
        np.testing.assert_array_equal(copied(exe, other), corner(1, 5, start=1))
        with pytest.raises(gd.UpdateError, match="one run of bytes"):
            exe.update(rows=2)


def ran(exe) -> np.ndarray:
    exe.launch()
    exe.synchronize()
    return exe["out"].copy()


def memset_graph() -> gd.Graph:
    g = gd.Graph("memset")
    rows, columns = g.param("rows", np.int32, default=2), g.param("columns", np.int32, default=3)
    start = g.param("start", np.int32, default=0)
    x, out = g.device_array("x", (4, 8), np.float32), g.host_array("out", (4, 8), np.float32)
    with g.sequence():
        g.memset(x, 0, name="clear")
        g.memset(x[:rows, start : start + columns], 1, name="fill")
        g.memcpy(out, x, name="read")
    return g


def test_memsets_of_several_rows_keep_them(device):
    g = memset_graph()
    x = g.operands["x"]
    with g.instantiate(device) as exe:
        for changes in ({"rows": 3}, {"columns": 2}, {"rows": 1}):
            with pytest.raises(gd.UpdateError, match="2 rows of 3 times 4 bytes, 32 bytes apart") as caught:
                exe.update(changes)
            assert (caught.value.node, caught.value.field) == ("fill", "destination")
        exe.update(start=5)
        np.testing.assert_array_equal(ran(exe), corner(2, 3, start=5))
        exe.node("fill").update(value=7)
        np.testing.assert_array_equal(ran(exe), corner(2, 3, 7, start=5))
        exe.node("fill").update(destination=x[2:, :3])
        np.testing.assert_array_equal(ran(exe)[2:, :3], np.full((2, 3), 7))
        for view in (x[::2, :3], x[:2, :4], x[:3, :3], x[0]):
            with pytest.raises(gd.UpdateError, match="2 rows"):
                exe.node("fill").update(destination=view)


def test_memsets_of_one_row_stay_so(device):
    g = memset_graph()
    x = g.operands["x"]
    with g.instantiate(device, values={"rows": 1}) as exe:
        exe.update(columns=6)
        np.testing.assert_array_equal(ran(exe), corner(1, 6))
        with pytest.raises(gd.UpdateError, match="one row"):
            exe.update(rows=2)
        exe.node("fill").update(destination=x[1:3])
        assert ran(exe).sum() == 16
        with pytest.raises(gd.UpdateError, match="one row"):
            exe.node("fill").update(destination=x[:, 3])
