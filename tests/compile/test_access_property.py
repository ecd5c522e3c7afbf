"""Whatever a kernel does in the emulator, its code told before: random kernels, and every byte that they touch."""

from __future__ import annotations

import linecache
import sys
from collections import defaultdict
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numba import cuda

import graphdsl as gd
from graphdsl.compile.accesses import accesses
from graphdsl.compile.image import ArrayValue
from graphdsl.compile.signature import argument_types, pack
from graphdsl.drivers.emulator import arrays, kernels
from graphdsl.drivers.emulator.kernels import EmulatedKernel
from graphdsl.drivers.emulator.memory import Region
from graphdsl.drivers.emulator.problems import Problem
from graphdsl.drivers.emulator.scheduler import Place
from tests.drivers.emulator.conftest import image_of

POINT = np.dtype([("a", np.int32), ("b", np.float32), ("c", np.int32, (3,))])


@cuda.jit(device=True)
def put(array, place, value):
    array[place] = value


@cuda.jit(device=True)
def pick(first, second, which):
    if which > 1:
        return first[1:]
    return second


@cuda.jit(device=True)
def shift(array, place, value):
    if place < array.size - 1:
        array[place + 1] = value
        return array[place]
    return 0


@cuda.jit(device=True)
def twice(array, place):
    put(array, place, 2)
    return shift(array, place, 3), array


HELPERS = {"cuda": cuda, "put": put, "pick": pick, "shift": shift, "twice": twice, "np": np}


class Trace:
    """Bytes of each argument that are read, and that are written; and by what: "plain", or an atomic operation."""

    def __init__(self) -> None:
        self.read: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(512, bool))
        self.written: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(512, bool))
        self.kinds: dict[str, set[str]] = defaultdict(set)

    def note(self, kind: dict[str, np.ndarray], array: Any, key: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        view = array._values[key] if isinstance(key, str) else array._values
        if not isinstance(key, str):
            view = view[keys if Ellipsis in keys else (*keys, ...)]
        if view.size and array._region.kind == "argument":
            by = sys._getframe(2).f_code  # Numba's simulator does atomic operations in methods of their names
            plain = not by.co_filename.endswith("kernelapi.py")
            self.kinds[arrays.root_of(array._label)].add("plain" if plain else by.co_name)
            start = view.ctypes.data - array._region.data.ctypes.data
            shape, strides = (*view.shape, view.dtype.itemsize), (*view.strides, 1)
            np.ndarray(shape, bool, kind[arrays.root_of(array._label)], start, strides)[...] = True


@contextmanager
def traced(memory: dict[str, np.ndarray]):
    """While it is entered, kernels are given this memory by the names of their parameters, and are watched."""
    trace = Trace()

    class Traced(arrays.Array):
        __slots__ = ()

        def __getitem__(self, key):
            found = super().__getitem__(key)
            if not isinstance(found, (arrays.Record, Traced)):
                trace.note(trace.read, self, key)
            return found

        def __setitem__(self, key, value):
            if isinstance(value, Traced):
                trace.note(trace.read, value, ...)
            super().__setitem__(key, value)
            trace.note(trace.written, self, key)

    def array_at(space, address, shape, strides, dtype, label):
        values = memory[label]
        region = SimpleNamespace(kind="argument", base=0, nbytes=values.nbytes, data=values.view(np.uint8).reshape(-1))
        return Traced(values, None, region, label)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "Array", Traced)
        patch.setattr(kernels, "array_at", array_at)
        patch.setattr(Region, "kind", "other", raising=False)
        yield trace


def compiled(text: str, parameters: str):
    """The function of a kernel that is given as text."""
    source = f"def kernel({parameters}):\n" + text
    name = f"<kernel {hash(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    namespace = dict(HELPERS)
    exec(compile(source, name, "exec"), namespace)
    return namespace["kernel"]


PARAMETERS = "x, y, m, r, t, n, p, q"
VECTORS, MATRIX = {"x": np.float32, "y": np.int32, "t[0]": np.float32, "t[1]": np.int32}, "m"


def judged(text: str, values: dict[str, int], grid: int, block: int, literal: bool) -> tuple[Any, Any]:
    """What is told of a kernel, and what it does."""
    function = compiled(text, PARAMETERS)
    g = gd.Graph("graph")
    vectors = {name: g.device_array(f"v{number}", 12, dtype) for number, (name, dtype) in enumerate(VECTORS.items())}
    matrix, records = g.device_array("m", (4, 5), np.float32), g.device_array("r", 6, POINT)
    kinds = {"n": np.int32, "p": np.int64, "q": np.uint8}
    params = {name: g.param(name, kinds[name], default=value) for name, value in values.items()}
    scalars = [values[name] if literal and name != "q" else params[name] for name in "npq"]
    args = (vectors["x"], vectors["y"], matrix, records, (vectors["t[0]"], vectors["t[1]"]), *scalars)
    node = g.kernel(function, grid=grid, block=block, args=args)
    told = [(each, each.span(values)) for each in accesses(node)]

    operands = {**vectors, "m": matrix, "r": records}
    memory = {name: np.zeros(operand.shape, operand.dtype) for name, operand in operands.items()}
    for number, name in enumerate(("x", "y", "t[0]", "t[1]")):
        memory[name][:] = np.arange(12)[::-1] % (3 + number)
    types = argument_types(node.kernel, args)
    image = image_of(function, *types)
    given = [values.get(name) for name in ("n", "p", "q")]
    arrays_given = {name: ArrayValue(4096, o.shape, o.strides) for name, o in operands.items()}
    packed = pack(
        image.layout,
        [*(arrays_given[name] for name in ("x", "y", "m", "r")), (arrays_given["t[0]"], arrays_given["t[1]"]), *given],
    )
    with traced(memory) as trace, suppress(Problem):  # an index outside of an array: what came before it counts
        EmulatedKernel(image).run(None, Place(grid, 1, 1), Place(block, 1, 1), 0, packed)
    return {name: (operand, told) for name, operand in operands.items()}, trace


def assert_covered(text: str, values: dict[str, int], grid: int, block: int, literal: bool) -> None:
    told, trace = judged(text, values, grid, block, literal)
    for name, (operand, found) in told.items():
        for what, happened in (("reads", trace.read[name]), ("writes", trace.written[name])):
            allowed = np.zeros(512, bool)
            for each, (start, stop) in found:
                if each.array is operand and getattr(each, what):
                    allowed[start:stop] = True
            strays = np.flatnonzero(happened & ~allowed)
            assert not len(strays), f"{name} {what} bytes {strays.tolist()}, told {found}, in\n{text}"
        claimed = {each.atomic for each, _ in found if each.array is operand and each.atomic is not None}
        assert not claimed or trace.kinds[name] <= claimed, f"{name} is {trace.kinds[name]}, told {found}, in\n{text}"


class Writer:
    """Writes the body of a random kernel."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.lines: list[str] = []
        self.ints = ["i", "n", "p", "q"]
        self.vectors = ["x", "y", "t[0]", "t[1]"]
        self.counts = 0

    def pick(self, *choices: Any) -> Any:
        """One of them; what is callable is called when it is chosen, and only then."""
        chosen = self.draw(st.sampled_from(choices))
        return chosen() if callable(chosen) else chosen

    def fresh(self, letter: str) -> str:
        self.counts += 1
        return f"{letter}{self.counts}"

    def number(self, depth: int = 2) -> str:
        """An integer."""
        if depth == 0:
            return self.pick(*self.ints, "0", "1", "2", "3", "-1")

        def part() -> str:
            return self.number(depth - 1)

        return self.pick(
            part,
            lambda: f"({part()} + {part()})",
            lambda: f"({part()} - {part()})",
            lambda: f"({part()} * {self.pick('2', '3', '-1', 'n', part)})",
            lambda: f"({part()} // {self.pick('2', '3')})",
            lambda: f"({part()} % {self.pick('5', '12', 'x.size')})",
            lambda: f"({part()} & {self.pick('3', '7', part)})",
            lambda: f"({part()} >> 1)",
            lambda: f"({part()} << 1)",
            lambda: f"min({part()}, {part()})",
            lambda: f"max({part()}, {part()})",
            lambda: f"(-{part()})",
            lambda: f"(abs({part()}))",
            lambda: f"int({self.element()})",
            lambda: self.pick("x.size", "len(y)", "m.shape[0]", "m.shape[1]", "m.size"),
            lambda: self.pick("cuda.blockDim.x", "cuda.blockIdx.x"),
        )

    def index(self) -> str:
        return self.pick(
            lambda: self.pick(*self.ints),
            lambda: self.pick(*self.ints),
            self.number,
            lambda: f"({self.number()}) % 4",
            lambda: f"min(max({self.number()}, 0), 3)",
        )

    def vector(self) -> str:
        """A vector that is memory of an argument."""
        name = self.pick(*self.vectors)
        return self.pick(
            name,
            name,
            lambda: f"{name}[{self.index()}:]",
            lambda: f"{name}[:{self.index()}]",
            lambda: f"{name}[{self.number(1)}:{self.number(1)}]",
            lambda: f"{name}[::2]",
            lambda: f"m[{self.index()}]",
            lambda: f"m[:, {self.index()}]",
            lambda: f"m.T[{self.index()}]",
            "m.ravel()",
            "m.reshape(20)",
            lambda: f"m.reshape((2, 10))[{self.pick('0', '1')}]",
            lambda: f"pick({name}, {self.pick(*self.vectors)}, {self.number(1)})",
            "r['a']",
            lambda: f"r[{self.index()}].c",
            lambda: f"twice({name}, {self.index()})[1]",
        )

    def element(self) -> str:
        name = self.pick(*self.vectors)
        return self.pick(
            lambda: f"{name}[{self.pick(*self.ints)}]",
            lambda: f"m[{self.pick(*self.ints)}, 1]",
            "m[1][2]",
            lambda: f"r[{self.pick(*self.ints)}].a",
            "r['b'][2]",
        )

    def condition(self) -> str:
        one, other = self.number(1), self.pick(self.number(1), "n", "p", "x.size")
        sign = self.pick("<", "<", "<=", ">", ">=", "==", "!=")
        plain = f"{one} {sign} {other}"
        return self.pick(plain, plain, f"0 <= {one} < {other}", f"not ({plain})", f"{plain} and {self.number(0)} < n",
                         f"{plain} or {self.number(0)} < 2")  # fmt: skip

    def say(self, indent: int, line: str) -> None:
        self.lines.append("    " * indent + line)

    def block(self, indent: int, depth: int) -> None:
        ints, vectors = list(self.ints), list(self.vectors)
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(indent, depth)
        self.ints, self.vectors = ints, vectors  # what is set here may not be set elsewhere

    def statement(self, indent: int, depth: int) -> None:
        kinds = ["store", "store", "augment", "atomic", "call", "name", "vector", "again", "record", "slice", "matrix"]
        if depth:
            kinds += ["guarded", "guarded", "if", "else", "range", "while", "return", "iterate", "stride"]
        getattr(self, f"_{self.pick(*kinds)}")(indent, depth)

    def _store(self, indent: int, depth: int) -> None:
        self.say(indent, f"{self.vector()}[{self.index()}] = {self.number(1)}")

    def _augment(self, indent: int, depth: int) -> None:
        self.say(indent, f"{self.vector()}[{self.index()}] {self.pick('+=', '-=', '*=')} {self.element()}")

    def _atomic(self, indent: int, depth: int) -> None:
        kind, result = self.pick("add", "max", "exch", "sub"), self.pick("", self.fresh("u") + " = ")
        self.say(indent, f"{result}cuda.atomic.{kind}({self.vector()}, {self.index()}, 1)")

    def _call(self, indent: int, depth: int) -> None:
        kind = self.pick("put({}, {}, 5)", "shift({}, {}, 5)", "twice({}, {})")
        self.say(indent, kind.format(self.vector(), self.index()))

    def _name(self, indent: int, depth: int) -> None:
        value, name = self.pick(self.number, lambda: self.pick(*self.ints)), self.fresh("k")
        self.say(indent, f"{name} = {value}")
        self.ints.append(name)

    def _again(self, indent: int, depth: int) -> None:
        names = [name for name in self.ints if name[0] in "ik"]
        self.say(indent, f"{self.pick(*names)} {self.pick('=', '+=', '-=')} {self.number(1)}")

    def _vector(self, indent: int, depth: int) -> None:
        value = self.vector()
        name = self.pick(self.fresh("v"), *[name for name in self.vectors if name[0] == "v"])
        self.say(indent, f"{name} = {value}")
        if name not in self.vectors:
            self.vectors.append(name)

    def _record(self, indent: int, depth: int) -> None:
        place, value = self.index(), self.number(1)
        target = self.pick(f"r[{place}].a", f"r[{place}]['b']", f"r[{place}].c[1]", f"r['a'][{place}]")
        self.say(indent, self.pick(f"{target} = {value}", f"{target} = {value}", f"r[{place}] = r[1]"))

    def _slice(self, indent: int, depth: int) -> None:
        start = self.number(1)
        target = self.pick("x", "y", "t[0]")
        self.say(indent, self.pick(f"{target}[{start}:] = 1", f"{target}[2:4] = t[1][1:3]", f"{target}[...] = x",
                                   f"{target}[:{start}] = 2"))  # fmt: skip

    def _matrix(self, indent: int, depth: int) -> None:
        self.say(indent, f"m[{self.index()}, {self.index()}] = {self.number(1)}")

    def _if(self, indent: int, depth: int) -> None:
        self.say(indent, f"if {self.condition()}:")
        self.block(indent + 1, depth - 1)

    def _guarded(self, indent: int, depth: int) -> None:
        name, shift = self.pick(*self.ints), self.pick("", "", " + 1", " - 1")
        self.say(indent, f"if {name}{shift} {self.pick('<', '<=')} {self.pick('n', 'p', 'q', '7', 'x.size')}:")
        self.say(indent + 1, f"{self.vector()}[{name}{self.pick('', '', ' + 1', ' - 1')}] = 4")

    def _else(self, indent: int, depth: int) -> None:
        self._if(indent, depth)
        self.say(indent, "else:")
        self.block(indent + 1, depth - 1)

    def _return(self, indent: int, depth: int) -> None:
        self.say(indent, f"if {self.condition()}:")
        self.say(indent + 1, "return")

    def _range(self, indent: int, depth: int) -> None:
        stop = self.pick("3", "n", f"min({self.number(1)}, 9)")
        start = self.number(1)
        several = self.pick(stop, f"{start}, {stop}", f"{start}, {stop}, 2", f"5, {self.number(0)}, -1")
        self._loop(indent, depth, several)

    def _stride(self, indent: int, depth: int) -> None:
        self._loop(indent, depth, f"cuda.grid(1), {self.pick('x.size', 'n', 'q', 'len(m)')}, cuda.gridsize(1)")

    def _loop(self, indent: int, depth: int, limits: str) -> None:
        name = self.fresh("j")
        self.say(indent, f"for {name} in range({limits}):")
        self.ints.append(name)
        self.block(indent + 1, depth - 1)
        if self.draw(st.booleans()):
            self.say(indent + 1, f"if {self.condition()}:")
            self.say(indent + 2, self.pick("break", "continue"))
        self.ints.remove(name)

    def _while(self, indent: int, depth: int) -> None:
        name, step = self.fresh("w"), self.pick("1", "2", "cuda.gridsize(1)")
        self.say(indent, f"{name} = {self.pick('0', 'cuda.grid(1)', self.number(0))}")
        self.say(indent, f"while {name} < {self.pick('5', 'n', 'x.size')}:")
        self.ints.append(name)
        before = self.draw(st.booleans())
        if before:
            self.say(indent + 1, f"{name} += {step}")
        self.block(indent + 1, depth - 1)
        if not before:
            self.say(indent + 1, f"{name} += {step}")
        self.ints.remove(name)

    def _iterate(self, indent: int, depth: int) -> None:
        name = self.fresh("e")
        self.say(indent, self.pick(f"for {name} in {self.vector()}:", f"for z, {name} in enumerate({self.vector()}):"))
        self.say(indent + 1, f"y[1] += int({name})")


@st.composite
def texts(draw):
    """The body of a kernel."""
    writer = Writer(draw)
    writer.say(1, draw(st.sampled_from(["i = cuda.grid(1)", "i = cuda.threadIdx.x + cuda.blockIdx.x * cuda.blockDim.x",
                                        "i = cuda.threadIdx.x", "i = cuda.blockIdx.x"])))  # fmt: skip
    guard = draw(st.sampled_from(["", "if i >= n: return", "if i >= x.size: return"]))
    if guard:
        writer.say(1, guard)
    for _ in range(draw(st.integers(1, 5))):
        writer.statement(1, 2)
    return "\n".join(writer.lines) + "\n"


VALUES = st.fixed_dictionaries({"n": st.integers(-2, 13), "p": st.integers(-3, 9), "q": st.integers(0, 12)})

STALE = """
    if n > 99:
        old = 0
        return
    for j in range(5):
        w = 8 - j * 2
        if j > 0:
            if w < 5:
                x[old] = 1
        old = w
"""
STALE_LOOP = """
    if n > 99:
        old = 0
        return
    w = 0
    while w < 9:
        if w > 3:
            x[old] = 1
        old = w
        w += 2
"""
COUNTED_DOWN = """
    for j in range(5, 1, -1):
        x[j] = 1
"""
SOME = {"n": 3, "p": -3, "q": 0}


def shown(text):
    """An example that is run each time: what went wrong once, or in a bug that was planted."""
    return example(text, SOME, 2, 3, True)


@settings(suppress_health_check=list(HealthCheck), max_examples=60, deadline=None)
@given(texts(), VALUES, st.integers(1, 3), st.integers(1, 5), st.booleans())
@shown("    i = cuda.grid(1)\n    if i < n:\n        x[i] = y[i]\n")
@shown("    i = cuda.grid(1)\n    if i <= n:\n        x[i] = y[i]\n")
@shown("    x[p:][1] = 2\n")
@shown("    w = 0\n    while w < n:\n        x[w - 1] = 2\n        w += 1\n")
@shown(STALE)
@shown(STALE_LOOP)
@shown(COUNTED_DOWN)
def test_nothing_is_touched_that_was_not_told(text, values, grid, block, literal):
    assert_covered(text, values, grid, block, literal)


def test_the_watch_tells_atomic_operations_apart():
    lines = ("cuda.atomic.add(x, 1, 2)", "cuda.atomic.max(y, 1, 2)", "y[0] = 1", "cuda.atomic.add(m[1:], (0, 0), 2)")
    text = "".join(f"    {line}\n" for line in lines)
    told, trace = judged(text, SOME, 1, 1, True)
    assert {name: trace.kinds[name] for name in "xym"} == {"x": {"add"}, "y": {"max", "plain"}, "m": {"add"}}
    _, found = told["x"]
    atomic = {each.array: each.atomic for each, _ in found}
    assert [atomic[told[name][0]] for name in "xym"] == ["add", None, "add"]


def test_the_watch_sees_what_is_done():
    text = "    x[1] = y[2] + m[1, 2]\n    r[1].b = 3\n    t[0][2:4] = t[1][1:3]\n    m.T[4][0] += 1\n"
    told, trace = judged(text, SOME, 1, 1, True)

    def words(touched):
        return np.flatnonzero(touched[::4]).tolist()

    assert {name: (words(trace.read[name]), words(trace.written[name])) for name in told} == {
        "x": ([], [1]),
        "y": ([2], []),
        "m": ([4, 7], [4]),
        "r": ([], [6]),
        "t[0]": ([], [2, 3]),
        "t[1]": ([1, 2], []),
    }
