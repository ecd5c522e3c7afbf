"""What the code of kernels tells of their arguments: one test for each thing that code may do with memory."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype

from graphdsl import device, kernels
from graphdsl.compile import access
from graphdsl.compile.access import infer
from graphdsl.declare.kernel import as_kernel

VECTOR = types.float32[::1]
WHOLE = types.int32[::1]
MATRIX = types.float32[:, ::1]
COUNT = types.int32
POINT = np.dtype([("a", np.float32), ("b", np.int32), ("c", np.float32, (4,))])
POINTS = from_dtype(POINT)[::1]


def told(kernel, *kinds):
    """One word for each array: r, w, rw, -, add and so on, or ? for unknown."""
    words = []
    for each in infer(as_kernel(kernel), kinds):
        word = ("r" if each.reads else "") + ("w" if each.writes else "") or "-"
        words.append("?" if each.why else each.atomic or word)
    return " ".join(words)


@cuda.jit(device=True)
def put(array, place, value):
    array[place] = value


@cuda.jit(device=True)
def put_deep(array, place, value):
    put(array, place, value)


@cuda.jit(device=True)
def pick(first, second, which):
    return first if which else second


@cuda.jit(device=True)
def pair_of(first, second):
    return second, first


@cuda.jit(device=True)
def total(*numbers):
    found = 0
    for each in numbers:
        found += each[0]
    return found


@cuda.jit(device=True)
def down(array, count):
    if count > 0:
        array[count] = 0
        down(array, count - 1)


@cuda.jit(device=True)
def ping(array, count):
    if count > 0:
        pong(array, count - 1)


@cuda.jit(device=True)
def pong(array, count):
    array[count] = 0
    ping(array, count)


@cuda.jit(device=True)
def apply(function, array, value):
    function(array, 0, value)


@cuda.jit(device=True)
def put_vector(array, vector):
    a, b, c, d = vector
    device.store4(array, 0, a, b, c, d)


outside = cuda.declare_device("outside", "int32(float32[::1])")
TABLE = np.arange(4, dtype=np.float32)


# Kernels: each with the types of its arguments, and what is told of its arrays.


def by_vectors(x, y):
    a, b, c, d = device.load4(x, 4 * cuda.threadIdx.x)
    device.store4(y, 4 * cuda.threadIdx.x, a, b, c, d)


def by_words(x, y):
    y[0] = device.as_float32(device.load_word(x, 0)) + device.load4_cg(x, 4)[0]


def by_atomic_vectors(x, y):
    device.atomic_add4(y, 4, x[0], x[1], x[2], x[3])
    device.atomic_add(y, 0, x[0])


def vector_of_view(x, y):
    device.store4(y[4:], 4, x[0], x[0], x[0], x[0])


def vector_by_name(x, y):
    device.load4(array=x, index=y[0])


def vector_in_device_function(x, y):
    put_vector(y, device.load4(x, 0))


def load_and_store(x, y):
    y[0] = x[0]


def nothing(x, y):
    pass


def sizes_only(x, y):
    y[0] = x.size + x.shape[0] + len(x) + x.ndim + x.itemsize + x.nbytes + x.strides[0]


def dtype_only(x, y):
    y[0] = y.dtype.type(x.dtype.type(1))


def augmented(x, y):
    y[0] += x[0]


def matrix_augmented(x, y):
    y[0, 1] -= x[0, 1]


def assigned(x, y):
    z = y
    z[0] = x[0]


def swapped(x, y):
    x, y = y, x
    y[0] = x[0]


def chosen(x, y, n):
    z = x if n else y
    z[0] = 1


def chosen_in_branches(x, y, n):
    z = x
    if n > 3:
        z = y
    z[0] = 1


def chosen_in_loop(x, y, n):
    z = x
    for _ in range(n):
        z[0] = 1
        z = y


def sliced(x, y):
    y[1:3][0] = x[::2][1]


def sliced_deep(x, y):
    z = y[1:]
    z = z[1:]
    z[0] = x[2:][3:][0]


def row(x, y):
    z = y[1]
    z[0] = x[0][1]


def column(x, y):
    z = y[:, 1]
    z[0] = x[..., 1][0]


def transposed(x, y):
    y.T[0, 1] = x.T[1, 0]


def transposed_by_method(x, y):
    y.transpose()[0, 1] = x.transpose((1, 0))[1, 0]


def reshaped(x, y):
    y.reshape(2, 2)[0, 1] = x.reshape((2, 2))[1, 0]


def raveled(x, y):
    y.ravel()[1] = x.ravel()[0]


def viewed(x, y):
    y.view(np.int32)[0] = x.view(types.int32)[0]


def flat(x, y):
    y.flat[0] = x.flat[1]


def filled(x, y):
    y.fill(x[0])


def stored_slice(x, y):
    y[1:3] = x[1:3]


def stored_all(x, y):
    y[...] = x


def element_of_nothing(x, y):
    y[()] = x[()]


def tupled(x, y):
    pair = (x, y)
    pair[1][0] = pair[0][0]


def unpacked(x, y):
    first, (second, third) = y, (x, x)
    first[0] = second[0] + third[1]


def tuple_by_loop(x, y):
    for each in (x, y):
        each[0] = 1


def tuple_joined(x, y):
    three = (x, x) + (y,)  # noqa: RUF005
    three[2][0] = three[0][0]


def given_tuple(pair, y):
    y[0] = pair[0][0]
    pair[1][0] = 1


def given_nested(nest, y):
    (first, second), third = nest
    first[0] = second[0]
    y[0] = third[0]


def iterated(x, y):
    for value in x:
        y[0] = value


def rows_iterated(x, y):
    for each in y:
        each[0] = x[0, 0]


def enumerated(x, y):
    for place, value in enumerate(x):
        y[place] = value


def zipped(x, y, z):
    for one, other in zip(x, y):
        z[0] = one + other


def while_loop(x, y, n):
    i = 0
    while i < n:
        y[i] = x[i]
        i += 1


def early_return(x, y, n):
    i = cuda.grid(1)
    if i >= n:
        return
    y[i] = x[i]


def raised(x, y, n):
    if n < 0:
        raise ValueError("negative")
    y[0] = x[0]


def added(x, y):
    cuda.atomic.add(y, 0, x[0])


def added_with_result(x, y):
    x[0] = cuda.atomic.add(y, 0, 1)


def added_and_read(x, y):
    cuda.atomic.add(y, 0, x[0])
    x[0] = y[1]


def added_and_stored(x, y):
    cuda.atomic.add(y, 0, x[0])
    y[1] = 0


def added_and_subtracted(x, y):
    cuda.atomic.add(y, 0, x[0])
    cuda.atomic.sub(y, 0, x[0])


def added_twice_in_view(x, y):
    cuda.atomic.add(y[1:], 0, x[0])
    cuda.atomic.add(y, (0,), x[1])


def largest(x, y):
    cuda.atomic.max(y, 0, x[0])


def smallest(x, y):
    cuda.atomic.min(y, 0, x[0])


def bits(x, y):
    cuda.atomic.or_(y, 0, x[0])


def bits_and(x, y):
    cuda.atomic.and_(y, 0, x[0])


def bits_xor(x, y):
    cuda.atomic.xor(y, 0, x[0])


def exchanged(x, y):
    cuda.atomic.exch(y, 0, x[0])


def compared(x, y):
    cuda.atomic.cas(y, 0, x[0], x[1])


def compared_first(x, y):
    cuda.atomic.compare_and_swap(y, x[0], x[1])


def counted_up(x, y):
    cuda.atomic.inc(y, 0, x[0])


def counted_down(x, y):
    cuda.atomic.dec(y, 0, x[0])


def added_in_device_function(x, y):
    count(y, x[0])


@cuda.jit(device=True)
def count(array, value):
    cuda.atomic.add(array, 0, value)


def added_and_returned(x, y):
    x[0] = counted(y)


@cuda.jit(device=True)
def counted(array):
    return cuda.atomic.add(array, 0, 1)


def called(x, y):
    put(y, 0, x[0])


def called_deep(x, y):
    put_deep(y, 0, x[0])


def called_by_name(x, y):
    put(value=x[0], array=y, place=0)


def called_with_view(x, y):
    put(y[1:], 0, x[0])


def returned(x, y, n):
    pick(x, y, n)[0] = 1


def returned_pair(x, y):
    first, second = pair_of(x, y)
    first[0] = second[0]


def variadic(x, y):
    y[0] = total(x, x)


def spread(x, y):
    rest = (0, x[0])
    put(y, *rest)


def function_given(x, y):
    apply(put, y, x[0])


def recursive(x, y):
    down(y, x[0])


def mutually_recursive(x, y):
    ping(y, x[0])


def called_outside(x, y):
    y[0] = outside(x)


def addressed(x, y):
    y[0] = x.ctypes.data


def printed(x, y):
    print(x[0], y[0])


def own_arrays(x, y):
    shared = cuda.shared.array(4, types.float32)
    local = cuda.local.array((2, 2), types.float32)
    shared[0] = x[0]
    local[0, 0] = shared[0]
    shared[1] += local[0, 0]
    y[0] = shared[1]


def global_array(x, y):
    y[0] = x[0] + TABLE[0]


def maths(x, y):
    y[0] = min(abs(x[0]), max(x[1], 3.0)) ** 2 + float(x[2]) + np.float32(x[3])


def whole_arithmetic(x, y):
    np.add(x, x, y)


def field(x, y):
    y[0].a = x[0].b


def field_by_name(x, y):
    y[0]["a"] = x[0]["b"]


def field_of_all(x, y):
    y.a[0] = x.b[0]


def field_of_all_by_name(x, y):
    y["a"][0] = x["b"][0]


def nested_field(x, y):
    y[0].c[1] = x[0].c[2]


def record_kept(x, y):
    record = y[0]
    record.a = 1
    record.b += 1


def record_stored(x, y):
    y[0] = x[0]


def record_only_named(x, y):
    record = x[0]  # noqa: F841
    y[0].a = 1


def single_record(x, y):
    y.a = x.b


def cached(x, y):
    cuda.stcg(y, 0, cuda.ldca(x, 0))


def conditional_store(x, y, n):
    if x[0] > n and x[1] > n:
        y[0] = n


def loop_with_break(x, y):
    for i in range(4):
        if x[i] > 0:
            break
    else:
        y[0] = 1


def in_comprehension(x, y):
    y[0] = [value for value in x][0]  # noqa: C416, RUF015


def index_from_memory(x, y):
    y[x[0]] = 1


CASES = [
    (load_and_store, (VECTOR, VECTOR), "r w"),
    (nothing, (VECTOR, VECTOR), "- -"),
    (sizes_only, (VECTOR, VECTOR), "- w"),
    (dtype_only, (VECTOR, VECTOR), "- w"),
    (augmented, (VECTOR, VECTOR), "r rw"),
    (matrix_augmented, (MATRIX, MATRIX), "r rw"),
    (assigned, (VECTOR, VECTOR), "r w"),
    (swapped, (VECTOR, VECTOR), "w r"),
    (chosen, (VECTOR, VECTOR, COUNT), "w w"),
    (chosen_in_branches, (VECTOR, VECTOR, COUNT), "w w"),
    (chosen_in_loop, (VECTOR, VECTOR, COUNT), "w w"),
    (sliced, (VECTOR, VECTOR), "r w"),
    (sliced_deep, (VECTOR, VECTOR), "r w"),
    (row, (MATRIX, MATRIX), "r w"),
    (column, (MATRIX, MATRIX), "r w"),
    (transposed, (MATRIX, MATRIX), "r w"),
    (transposed_by_method, (MATRIX, MATRIX), "r w"),
    (reshaped, (VECTOR, VECTOR), "r w"),
    (raveled, (MATRIX, MATRIX), "r w"),
    (viewed, (VECTOR, VECTOR), "r w"),
    (flat, (MATRIX, MATRIX), "r w"),
    (filled, (VECTOR, VECTOR), "r w"),
    (stored_slice, (VECTOR, VECTOR), "r w"),
    (stored_all, (VECTOR, VECTOR), "r w"),
    (element_of_nothing, (types.Array(types.float32, 0, "C"),) * 2, "r w"),
    (tupled, (VECTOR, VECTOR), "r w"),
    (unpacked, (VECTOR, VECTOR), "r w"),
    (tuple_by_loop, (VECTOR, VECTOR), "w w"),
    (tuple_joined, (VECTOR, VECTOR), "r w"),
    (given_tuple, (types.UniTuple(VECTOR, 2), VECTOR), "r w w"),
    (given_nested, (types.Tuple([types.UniTuple(VECTOR, 2), WHOLE]), VECTOR), "w r r w"),
    (iterated, (VECTOR, VECTOR), "r w"),
    (rows_iterated, (MATRIX, MATRIX), "r w"),
    (enumerated, (VECTOR, VECTOR), "r w"),
    (zipped, (VECTOR, VECTOR, VECTOR), "r r w"),
    (while_loop, (VECTOR, VECTOR, COUNT), "r w"),
    (early_return, (VECTOR, VECTOR, COUNT), "r w"),
    (raised, (VECTOR, VECTOR, COUNT), "r w"),
    (added, (VECTOR, VECTOR), "r add"),
    (added_with_result, (VECTOR, VECTOR), "w rw"),
    (added_and_read, (VECTOR, VECTOR), "rw rw"),
    (added_and_stored, (VECTOR, VECTOR), "r rw"),
    (added_and_subtracted, (WHOLE, WHOLE), "r rw"),
    (added_twice_in_view, (VECTOR, VECTOR), "r add"),
    (largest, (VECTOR, VECTOR), "r max"),
    (smallest, (VECTOR, VECTOR), "r min"),
    (bits, (WHOLE, WHOLE), "r or"),
    (bits_and, (WHOLE, WHOLE), "r and"),
    (bits_xor, (WHOLE, WHOLE), "r xor"),
    (exchanged, (WHOLE, WHOLE), "r rw"),
    (compared, (WHOLE, WHOLE), "r rw"),
    (compared_first, (WHOLE, WHOLE), "r rw"),
    (counted_up, (WHOLE, WHOLE), "r rw"),
    (counted_down, (WHOLE, WHOLE), "r rw"),
    (added_in_device_function, (VECTOR, VECTOR), "r add"),
    (added_and_returned, (VECTOR, VECTOR), "w rw"),
    (called, (VECTOR, VECTOR), "r w"),
    (called_deep, (VECTOR, VECTOR), "r w"),
    (called_by_name, (VECTOR, VECTOR), "r w"),
    (called_with_view, (VECTOR, VECTOR), "r w"),
    (returned, (VECTOR, VECTOR, COUNT), "w w"),
    (returned_pair, (VECTOR, VECTOR), "r w"),
    (variadic, (VECTOR, VECTOR), "r w"),
    (spread, (VECTOR, VECTOR), "r w"),
    (function_given, (VECTOR, VECTOR), "r w"),
    (recursive, (WHOLE, VECTOR), "r ?"),
    (mutually_recursive, (WHOLE, VECTOR), "r ?"),
    (called_outside, (VECTOR, VECTOR), "? w"),
    (addressed, (VECTOR, VECTOR), "? w"),
    (printed, (VECTOR, VECTOR), "r r"),
    (own_arrays, (VECTOR, VECTOR), "r w"),
    (global_array, (VECTOR, VECTOR), "r w"),
    (maths, (VECTOR, VECTOR), "r w"),
    (whole_arithmetic, (VECTOR, VECTOR), "r rw"),
    (field, (POINTS, POINTS), "r w"),
    (field_by_name, (POINTS, POINTS), "r w"),
    (field_of_all, (POINTS, POINTS), "r w"),
    (field_of_all_by_name, (POINTS, POINTS), "r w"),
    (nested_field, (POINTS, POINTS), "r w"),
    (record_kept, (POINTS, POINTS), "- rw"),
    (record_stored, (POINTS, POINTS), "r w"),
    (record_only_named, (POINTS, POINTS), "- w"),
    (single_record, (from_dtype(POINT), from_dtype(POINT)), "r w"),
    (cached, (VECTOR, VECTOR), "r w"),
    (conditional_store, (VECTOR, VECTOR, COUNT), "r w"),
    (loop_with_break, (VECTOR, VECTOR), "r w"),
    (in_comprehension, (VECTOR, VECTOR), "? w"),
    (index_from_memory, (WHOLE, VECTOR), "r w"),
    (by_vectors, (VECTOR, VECTOR), "r w"),
    (by_words, (VECTOR, VECTOR), "r w"),
    (by_atomic_vectors, (VECTOR, VECTOR), "r add"),
    (vector_of_view, (VECTOR, VECTOR), "r w"),
    (vector_by_name, (VECTOR, WHOLE), "? r"),
    (vector_in_device_function, (VECTOR, VECTOR), "r w"),
]


@pytest.mark.parametrize(("kernel", "kinds", "expected"), CASES, ids=[case[0].__name__ for case in CASES])
def test_what_is_told(kernel, kinds, expected):
    assert told(kernel, *kinds) == expected


def test_what_cannot_be_followed_is_said_with_the_line():
    (x, _) = infer(as_kernel(called_outside), (VECTOR, VECTOR))
    line = called_outside.__code__.co_firstlineno + 1
    assert x.why == f"test_access.py:{line}: given to outside(), which cannot be read"
    assert (x.reads, x.writes, x.known, x.scattered, x.atomic) == (True, True, False, True, None)
    (_, y) = infer(as_kernel(recursive), (WHOLE, VECTOR))
    assert y.why == f"test_access.py:{down.py_func.__code__.co_firstlineno + 4}: given to down(), which calls itself"


def test_leaves_of_tuples_have_paths_and_names():
    found = infer(as_kernel(given_nested), (types.Tuple([types.UniTuple(VECTOR, 2), WHOLE]), VECTOR))
    assert [each.path for each in found] == [(0, 0, 0), (0, 0, 1), (0, 1), (1,)]
    assert [each.name for each in found] == ["nest[0][0]", "nest[0][1]", "nest[1]", "y"]


# Where arrays are touched, and whether that follows from anything but the launch


def at_place(x, y, n):
    y[n] = x[0]


def at_place_on(x, y, n):
    i = cuda.grid(1)
    y[n + i] = x[i]


def below_bound(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = x[i]


def in_rows(x, y, n):
    i, j = cuda.grid(2)
    if i < 3 and j < n:
        y[i * n + j] = x[i * n + j]


def in_rows_from(x, y, n):
    i = cuda.grid(1)
    y[n * 4 + i] = x[i]


def where_loaded(x, y, n):
    y[x[0]] = 1


def only_the_one(x, y, n):
    i = cuda.grid(1)
    if i == n:
        y[i] = 1


def in_slice_from(x, y, n):
    y[n:][0] = 1


def in_slice_to(x, y, n):
    y[:n][0] = 1


def called_at_place(x, y, n):
    put_deep(y, n, 1)


def counted_where_loaded(x, y, n):
    cuda.atomic.add(y, x[0], 1)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (at_place, True),
        (at_place_on, True),
        (below_bound, False),
        (in_rows, False),
        (in_rows_from, True),
        (where_loaded, True),
        (only_the_one, True),
        (in_slice_from, True),
        (in_slice_to, False),
        (called_at_place, True),
        (counted_where_loaded, True),
        (load_and_store, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_scattered(kernel, expected):
    kinds = (WHOLE, VECTOR, COUNT)[: kernel.__code__.co_argcount]
    assert [each.scattered for each in infer(as_kernel(kernel), kinds)] == [False, expected]


READY = {
    "add": "r r w",
    "axpy": "r rw",
    "block_max": "r w",
    "block_sum": "r w",
    "cast": "r w",
    "fill": "w",
    "fir": "r r w",
    "moving_mean": "r w",
    "multiply": "r r w",
    "rms_norm": "r r w",
    "rotary_embedding": "r r r w",
    "scale": "r w",
    "silu_multiply": "r r w",
    "softmax": "r rw",
    "square": "r w",
    "subtract": "r r w",
    "argmax": "r w",
}
BLOCKS = types.float32[:, :, ::1]
OF_MATRICES = {
    "rms_norm": (MATRIX, VECTOR, MATRIX, types.float32),
    "rotary_embedding": (BLOCKS, BLOCKS, WHOLE, BLOCKS),
    "softmax": (MATRIX, MATRIX, types.float32),
    "argmax": (MATRIX, WHOLE),
}


@pytest.mark.parametrize("name", kernels.__all__)
def test_ready_made_kernels(name):
    kernel = as_kernel(getattr(kernels, name))
    expected = READY[name]
    arrays = len(expected.split())
    kinds = OF_MATRICES.get(name, (VECTOR,) * arrays + (types.int32,) * (len(kernel.parameters) - arrays))
    assert told(kernel, *kinds) == expected
    assert not any(each.scattered for each in infer(kernel, kinds))


def test_code_that_branches_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(access, "_MOST_STEPS", 3)
    (x, _, _) = infer(as_kernel(zipped), (VECTOR, VECTOR, VECTOR))
    assert x.why.endswith("_TooLong: it branches too much to be followed")


def made(store):
    """Two functions of one code, each with a closure of its own."""

    @cuda.jit(device=True)
    def function(x, y):
        store(x, y)

    return function


def first_of(x, y):
    x[0] = 1


def second_of(x, y):
    y[0] = 1


one, other = made(cuda.jit(device=True)(first_of)), made(cuda.jit(device=True)(second_of))


def by_closures(x, y):
    one(x, y)
    other(x, y)


def test_closures_of_one_code_are_told_apart():
    assert told(by_closures, VECTOR, VECTOR) == "w w"


UNSIGNED = ["y[n - m] = 1", "y[-n] = 1", "y[min(n - m, 5)] = 1", "y[(n + m) - 1] = 1"]


@pytest.mark.parametrize("line", UNSIGNED)
def test_unsigned_numbers_wrap_or_become_floats_and_tell_no_place(line):
    namespace = {}
    exec(f"def kernel(y, n, m):\n    {line}\n", namespace)
    (y,) = infer(as_kernel(namespace["kernel"]), (VECTOR, types.uint32, types.uint32))
    assert (y.writes, y.write_ranges) == (True, None)


def test_nothing_is_learned_from_a_comparison_with_what_may_wrap():
    def kernel(y, n, m, i):
        if n - m > i:
            y[i] = 1

    (y,) = infer(as_kernel(kernel), (VECTOR, types.uint32, types.uint32, COUNT))
    ((range_,),) = [y.write_ranges]
    assert range_.low == range_.high, "the argument itself, and nothing else"
