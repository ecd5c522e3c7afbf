"""Params and arithmetic on them."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import Expr, cdiv, extent_expr, maximum, minimum, value_of
from graphdsl.errors import DeclarationError

GRAPH = Definition()
N, M = GRAPH.param("n", np.int32, default=3), GRAPH.param("m", np.int64)
GAIN = GRAPH.param("gain", np.float32)
PHASE = GRAPH.param("phase", np.complex64)
FLAG = GRAPH.param("flag", np.bool_)
BYTE = GRAPH.param("byte", np.uint8)
WHEN = GRAPH.param("when", "M8[s]")

FUNCTIONS = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "cdiv": lambda a, b: -(-a // b),
    "minimum": min,
    "maximum": max,
}
BUILD = {**FUNCTIONS, "cdiv": cdiv, "minimum": minimum, "maximum": maximum}

LEAVES = st.one_of(st.sampled_from([N, M]), st.integers(-1000, 1000))
TREES = st.recursive(LEAVES, lambda inner: st.tuples(st.sampled_from(sorted(FUNCTIONS)), inner, inner), max_leaves=12)


def build(tree):
    return tree if not isinstance(tree, tuple) else BUILD[tree[0]](build(tree[1]), build(tree[2]))


def compute(tree, values):
    if isinstance(tree, tuple):
        return FUNCTIONS[tree[0]](compute(tree[1], values), compute(tree[2], values))
    return values[tree.name] if isinstance(tree, Expr) else tree


@settings(max_examples=300, deadline=None)
@given(TREES, st.integers(-(2**31), 2**31 - 1), st.integers(-(2**40), 2**40))
def test_an_expression_has_the_value_of_the_same_arithmetic_on_numbers(tree, n, m):
    values = {"n": n, "m": m}
    try:
        expression = build(tree)
    except (ZeroDivisionError, DeclarationError):
        return  # numbers alone divide by zero
    try:
        wanted = compute(tree, values)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            value_of(expression, values)
    else:
        assert value_of(expression, values) == wanted


@settings(deadline=None)
@given(TREES)
def test_equal_expressions_are_equal_objects(tree):
    try:
        first, second = build(tree), build(tree)
    except (ZeroDivisionError, DeclarationError):
        return
    assert first == second
    assert hash(first) == hash(second)


def test_expressions_that_differ_are_not_equal():
    assert N + 1 != N + 2
    assert N + 1 != 1 + N
    assert N + 1 != N - 1
    assert N + 1 != M + 1
    assert N + 1 != N
    assert N * 1 != N * 1.0  # equal numbers, other dtypes
    assert Definition().param("n", np.int32) + 1 != N + 1


def test_a_memo_shares_sub_results():
    memo = {}
    shared = N * 7
    assert (shared + 1).evaluate({"n": 2}, memo) == 15
    assert memo[shared] == 14
    memo[shared] = 100  # what was evaluated is not evaluated again
    assert (shared + 2).evaluate({"n": 2}, memo) == 102


def test_a_missing_value_is_a_key_error():
    with pytest.raises(KeyError, match="m"):
        (N + M).evaluate({"n": 1})


def test_sums_that_grow_in_a_loop_are_evaluated_and_printed():
    total = N
    for _ in range(5000):
        total = total + N
    assert total.evaluate({"n": 2}) == 10002
    assert "..." in str(total)
    assert len(str(total)) < 200


def test_a_doubling_expression_is_evaluated_once_for_each_step():
    total = N
    for _ in range(60):
        total = total + total
    assert total.evaluate({"n": 1}) == 2**60


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (N, "n"),
        (N + 1, "(n + 1)"),
        (2 * N // 3, "((2 * n) // 3)"),
        (-N, "(0 - n)"),
        (1 - N % 4, "(1 - (n % 4))"),
        (cdiv(N, 256), "cdiv(n, 256)"),
        (minimum(N, 4) + maximum(1, M), "(minimum(n, 4) + maximum(1, m))"),
    ],
)
def test_an_expression_prints_as_it_was_written(expression, text):
    assert str(expression) == text


@pytest.mark.parametrize(
    ("expression", "dtype"),
    [
        (N + 1, np.int32),
        (N + M, np.int64),
        (N + 1.5, np.float64),
        (GAIN * 2, np.float32),
        (GAIN * N, np.float64),
        (PHASE * 2, np.complex64),
        (FLAG + FLAG, np.int64),
        (minimum(FLAG, FLAG), np.bool_),
        (BYTE + 255, np.uint8),
        (np.float64(1) * GAIN, np.float64),
        (np.int64(2) - N, np.int64),
        (N // 2, np.int32),
        (cdiv(N, 2), np.int32),
    ],
)
def test_dtypes_follow_numpy_promotion(expression, dtype):
    assert expression.dtype == dtype


def test_params_of_an_expression():
    assert (N * 2 + cdiv(M, N)).params == {N, M}
    assert N.params == {N}


def test_sizes_are_int64_whatever_the_dtype_of_the_param():
    size = extent_expr("*", BYTE, 4096)
    assert size.dtype == np.int64
    assert size.evaluate({"byte": 255}) == 255 * 4096


@pytest.mark.parametrize(
    "build",
    [
        lambda: PHASE // 2,
        lambda: PHASE % 2,
        lambda: cdiv(PHASE, 2),
        lambda: maximum(PHASE, 2),
        lambda: WHEN + 1,
        lambda: WHEN - WHEN,
        lambda: WHEN * GAIN,
        lambda: N + np.timedelta64(1, "s"),
        lambda: N * np.longdouble(2),
    ],
)
def test_arithmetic_that_has_no_meaning_is_refused_where_it_is_written(build):
    with pytest.raises(DeclarationError, match="not defined"):
        build()


@pytest.mark.parametrize("build", [lambda: N / 2, lambda: 2 / N, lambda: N / M])
def test_true_division_is_refused_with_a_remedy(build):
    with pytest.raises(DeclarationError, match="cdiv"):
        build()


NUMBERS = [3, 1.5, True, np.int32(3), np.float64(1.5)]
USES = [
    bool,
    int,
    float,
    complex,
    round,
    range,
    "{:.2f}".format,
    lambda n: [1, 2][n],
    lambda n: n and 1,
    lambda n: n < n,
]


@pytest.mark.parametrize("use", USES)
def test_a_param_has_no_value_while_the_graph_is_declared(use):
    with pytest.raises(DeclarationError, match="has no value while the graph is declared"):
        use(N)
    with pytest.raises(DeclarationError, match="has no value while the graph is declared"):
        use(N + 1)


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
@pytest.mark.parametrize(
    "compare", [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, min, max]
)
def test_a_comparison_with_a_number_has_no_answer(compare, number):
    for sides in ((N, number), (number, N + 1)):
        with pytest.raises(DeclarationError, match=r"cannot be compared.*minimum or maximum"):
            compare(*sides)


def test_expressions_may_be_looked_for_among_other_things():
    assert N == N
    assert (N == M, N != M, N == "n", N is None) == (False, True, False, False)
    assert {N: 1, 4: 2, "n": 3}[N] == 1
    assert [None, "n", N].index(N) == 2


@pytest.mark.parametrize(
    ("build", "remedy"),
    [
        (lambda: N**2, "n \\* n"),
        (lambda: 2**N, "n \\* n"),
        (lambda: abs(N), "maximum"),
        (lambda: divmod(N, 2), "// and %"),
        (lambda: N << 2, "power of two"),
        (lambda: 1 << N, "power of two"),
        (lambda: N & 3, "inside the kernel"),
        (lambda: ~N, "inside the kernel"),
        (lambda: np.minimum(N, 3), "minimum"),
        (lambda: np.sqrt(N), "inside the kernel"),
        (lambda: np.add.reduce(N), "inside the kernel"),
        (lambda: np.arange(3) * N, "inside the kernel"),
        (lambda: np.float32(1) / N, "inside the kernel"),
    ],
)
def test_what_expressions_lack_is_said_with_a_remedy(build, remedy):
    with pytest.raises(DeclarationError, match=remedy):
        build()


def test_a_sign_and_a_width():
    assert +N is N
    assert f"{N:>3}|{N + 1}" == "  n|(n + 1)"


@pytest.mark.parametrize("other", ["text", None, [1], object()])
def test_what_is_no_number_does_not_add(other):
    with pytest.raises(TypeError):
        N + other
    with pytest.raises(TypeError):
        other - N


# NumPy's numbers


SCALARS = st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]).flatmap(
    lambda code: st.integers(int(np.iinfo(code).min), int(np.iinfo(code).max)).map(np.dtype(code).type)
)


@settings(deadline=None)
@given(st.sampled_from(sorted(FUNCTIONS)), SCALARS, st.integers(-(2**31), 2**31 - 1), st.booleans())
def test_numbers_of_numpy_compute_as_those_of_python(function, scalar, n, on_the_left):
    sides, numbers = ([scalar, N], [int(scalar), n]) if on_the_left else ([N, scalar], [n, int(scalar)])
    expression = BUILD[function](*sides)
    types = [side if side is scalar else N.dtype for side in sides]
    assert expression.dtype == np.result_type(*types)
    try:
        wanted = FUNCTIONS[function](*numbers)
    except ZeroDivisionError:
        with pytest.raises(ZeroDivisionError):
            expression.evaluate({"n": n})
    else:
        found = expression.evaluate({"n": n})
        assert found == wanted
        assert type(found) is int


@settings(deadline=None)
@given(st.sampled_from(["cdiv", "minimum", "maximum"]), SCALARS, SCALARS)
def test_functions_of_numpys_numbers_are_those_of_pythons(function, left, right):
    try:
        wanted = FUNCTIONS[function](int(left), int(right))
    except ZeroDivisionError:
        with pytest.raises(DeclarationError, match="may not be 0"):
            BUILD[function](left, right)
    else:
        assert BUILD[function](left, right) == wanted


def test_a_float_of_numpy_divides_by_zero_as_one_of_python():
    with pytest.raises(ZeroDivisionError):
        (N // np.float32(0)).evaluate({"n": 4})


def test_a_view_bounded_by_a_number_of_numpy_does_not_wrap():
    view = Definition().device_array("x", 8, np.float32)[: N * np.uint8(65)]
    assert view.shape[0].evaluate({"n": 4}) == 260


@pytest.mark.parametrize("call", [cdiv, minimum, maximum])
def test_functions_refuse_what_is_no_number(call):
    with pytest.raises(DeclarationError, match="'text' of type str"):
        call(N, "text")
    for other in (1j, np.complex64(1), np.timedelta64(1)):
        with pytest.raises(DeclarationError, match="takes numbers and expressions"):
            call(2, other)


def test_functions_of_numbers_are_numbers():
    assert (cdiv(1000, 256), cdiv(-1, 2), minimum(3, 5), maximum(3, 5)) == (4, 0, 3, 5)
    with pytest.raises(DeclarationError, match="may not be 0"):
        cdiv(1, 0)
    with pytest.raises(DeclarationError, match="so large"):
        cdiv(10**400, 1.5)


def test_numbers_that_would_fill_pages_are_told_by_their_size():
    for build in (
        lambda: GRAPH.param("p", np.int8, default=10**5000),
        lambda: GRAPH.param("p", "f4", default=10**5000),
    ):
        with pytest.raises(DeclarationError, match="an integer of 16610 bits"):
            build()
    assert str(N * -(10**5000)) == "(n * a negative integer of 16610 bits)"


# Conversion


def test_the_default_of_a_param_is_converted():
    assert GRAPH.param("half", np.float32, default=1).default == 1.0
    assert GRAPH.param("none", np.float32).default is None
    with pytest.raises(DeclarationError, match="default of param 'small'"):
        GRAPH.param("small", np.uint8, default=256)
    assert "small" not in GRAPH.operands
