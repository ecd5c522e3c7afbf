"""Rules GD111 to GD115: values of params, and of expressions on them."""

from __future__ import annotations

import numpy as np
import pytest

import graphdsl as gd
from tests.check.conftest import scale
from tests.check.findings import cheap, errors_of, judged, only


def launch(demo, *, n=None, name=None, **options):
    args = (demo.x, demo.y, demo.gain, demo.n if n is None else n)
    return demo.g.kernel(scale, **{"grid": 4, "block": 256, "args": args, "name": name, **options})


def test_an_unset_param_is_found_once_with_the_nodes_that_use_it(demo):
    m = demo.g.param("m", np.int32)
    launch(demo, n=m, name="first")
    launch(demo, grid=gd.cdiv(m, 256), name="second")
    demo.g.memset(demo.x[:m], 0, name="third")
    launch(demo, name="not this one")
    found = only(cheap(demo.g))
    assert (found.code, found.node, found.field) == ("GD111", "first", "argument 'n'")
    assert found.nodes == ("first", "second", "third")
    assert "'m'" in found.rule
    assert found.rule.endswith("3 nodes use it")
    assert found.location == m.location


def test_an_unset_param_of_one_node(demo):
    launch(demo, n=demo.g.param("m", np.int32))
    assert only(cheap(demo.g)).rule == "param 'm' has no default and was given no value"


def test_each_unset_param_is_found(demo):
    a, b = demo.g.param("a", np.int32), demo.g.param("b", np.int32)
    launch(demo, n=a + b)
    assert [found.rule.split()[1] for found in cheap(demo.g).errors] == ["'a'", "'b'"]


def test_a_param_that_is_given_a_value_is_set(demo):
    launch(demo, n=demo.g.param("m", np.int32))
    assert judged(cheap(demo.g, values={"m": 100})) == []


def test_an_unset_param_that_no_node_uses_is_no_error(demo):
    demo.g.param("m", np.int32)
    launch(demo)
    assert cheap(demo.g).ok


def test_values_that_are_given_win_over_defaults(demo):
    launch(demo, grid=gd.cdiv(demo.n, 256))
    assert judged(cheap(demo.g)) == []
    assert judged(cheap(demo.g, values={"n": 0})) == [("GD211", "scale", "grid")]


def test_a_value_for_an_unknown_name_suggests_a_close_one(demo):
    launch(demo)
    found = only(cheap(demo.g, values={"gian": 2.0}))
    assert (found.code, found.node, found.field, found.value) == ("GD112", None, "values", "'gian'")
    assert "gain" in found.remedy


def test_a_value_for_a_buffer(demo):
    launch(demo)
    found = only(cheap(demo.g, values={"x": 1}))
    assert (found.code, found.field, found.value) == ("GD112", "values", "'x'")
    assert "buffer" in found.rule
    assert "exe['x']" in found.remedy


@pytest.mark.parametrize(("name", "value"), [("n", 2**31), ("n", 1.5), ("n", "many"), ("gain", 1e300), ("gain", 1j)])
def test_a_value_that_does_not_fit_its_dtype(demo, name, value):
    launch(demo)
    found = only(cheap(demo.g, values={name: value}))
    assert (found.code, found.node, found.field) == ("GD113", None, f"values[{name!r}]")


@pytest.mark.parametrize(
    ("name", "value"), [("n", 2**31 - 1), ("n", np.int64(5)), ("gain", 3), ("gain", np.float64(0))]
)
def test_a_value_that_fits(demo, name, value):
    launch(demo)
    assert judged(cheap(demo.g, values={name: value})) == []


def test_a_value_that_does_not_fit_is_not_also_unset(demo):
    launch(demo, n=demo.g.param("m", np.uint8))
    assert judged(cheap(demo.g, values={"m": 256})) == [("GD113", None, "values['m']")]


def test_values_are_a_dict(demo):
    launch(demo)
    with pytest.raises(gd.DeclarationError, match="values = 512"):
        cheap(demo.g, values=512)


def test_a_division_by_zero_is_found_wherever_it_stands(demo):
    zero = demo.g.param("zero", np.int32, default=0)
    launch(demo, grid=demo.n // zero, name="in_grid")
    launch(demo, n=demo.n % zero, name="in_args")
    demo.g.memset(demo.x[: gd.cdiv(demo.n, zero)], 0, name="in_view")
    demo.g.memcpy(demo.x, demo.raw, nbytes=demo.n // zero, name="in_nbytes")
    assert judged(cheap(demo.g)) == [
        ("GD114", "in_grid", "grid"),
        ("GD114", "in_args", "argument 'n'"),
        ("GD114", "in_view", "destination"),
        ("GD114", "in_nbytes", "nbytes"),
    ]


def test_a_division_by_zero_says_what_it_came_from(demo):
    launch(demo, grid=demo.n // demo.g.param("zero", np.int32, default=0))
    found = only(cheap(demo.g))
    assert found.rule.endswith("divides by zero")
    assert "n = 1024, zero = 0" in found.remedy


def test_a_number_too_large_for_floating_point(demo):
    huge = demo.g.param("huge", np.float64, default=1e300)
    launch(demo, args=(demo.x, demo.y, huge * 10**300 * 10**300, demo.n), name="infinite")
    launch(demo, args=(demo.x, demo.y, huge * 10**400, demo.n), name="too_large")
    assert ("GD114", "too_large", "argument 'gain'") in judged(cheap(demo.g))


def test_an_argument_out_of_range_of_its_expression(demo):
    m = demo.g.param("m", np.uint8, default=200)
    launch(demo, n=m + m, name="sum")
    launch(demo, n=m - 201, name="difference")
    launch(demo, args=(demo.x, (demo.y, m * 2), demo.gain, m), name="in_tuple")
    launch(demo, n=m + 55, name="right")
    found = cheap(demo.g)
    assert judged(found) == [
        ("GD115", "sum", "argument 'n'"),
        ("GD115", "difference", "argument 'n'"),
        ("GD115", "in_tuple", "argument 'y'"),
    ]
    assert [each.value for each in errors_of(found)] == [400, -1, 400]
    assert "m = 200" in found[0].remedy


def test_sizes_have_the_range_of_integers_whatever_the_dtype_of_the_param(demo):
    m = demo.g.param("m", np.uint8, default=200)
    demo.g.memset(demo.x[m * 2 : m * 4], 0)
    demo.g.memset(demo.table[m - 190], 0)
    launch(demo, grid=m * 100)
    assert judged(cheap(demo.g)) == []
