"""Random programs as graphs: elementwise nodes, copies and memsets on slices of a few arrays, ordered where needed.

What two nodes do to the same bytes is ordered as the program is, by an edge each, and some edges more. So results are
the same in every order that the edges leave. Slices overlap by shifts, and most nodes hand an array to a later one.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st

import graphdsl as gd
from graphdsl.declare.accesses import Access, accesses
from graphdsl.drivers.base import Driver

SHAPE = (4, 6)
NAMES = "abc"

PARTS = {
    "all": (SHAPE, [np.s_[:]]),
    "rows": ((3, 6), [np.s_[:3], np.s_[1:]]),
    "columns": ((4, 5), [np.s_[:, :5], np.s_[:, 1:]]),
}
"""What nodes work on: shapes, and the slices of an array that have them."""


@gd.elementwise
def times(x, gain):
    return x * gain


@gd.elementwise
def add(x, y):
    return x + y


@gd.elementwise
def spread(x, y):
    return x - y, y


class Program:
    """A graph that copies ``*_in`` to arrays, works on them, and copies them to ``*_out``."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.graph = gd.Graph("program")
        self.gain = self.graph.param("gain", np.float32, default=1.5)
        self.arrays = [self.graph.device_array(name, SHAPE, np.float32) for name in NAMES]
        self.handed: list[Any] = []  # arrays that one node has written, and others read
        self.nodes: list[gd.Node] = []

    def host(self, name: str) -> gd.Buffer:
        return self.graph.host_array(name, SHAPE, np.float32)

    def load(self) -> None:
        self.nodes += [self.graph.memcpy(array, self.host(f"{array.name}_in")) for array in self.arrays]

    def store(self) -> None:
        """Add up what nobody has read, so that all that was computed shows, and copy the arrays out."""
        read = {each.array.buffer for node in self.nodes for each in accesses(node) if each.reads}
        for array in self.handed:
            if array not in read:
                key = self.draw(st.sampled_from(next(keys for shape, keys in PARTS.values() if shape == array.shape)))
                into = self.arrays[0] if key == np.s_[:] else self.arrays[0][key]
                self.nodes.append(self.graph.elementwise(add, into, (into, array)))
        self.nodes += [self.graph.memcpy(self.host(f"{array.name}_out"), array) for array in self.arrays]

    def step(self) -> None:
        """One more node, if what was drawn makes one."""
        shape, keys = PARTS[self.draw(st.sampled_from(["all", "all", "all", "rows", "columns"]))]
        known = [array if key == np.s_[:] else array[key] for array in self.arrays for key in keys]
        handed = [array for array in self.handed if array.shape == shape]
        kind = self.draw(
            st.sampled_from(["times", "times", "times", "add", "add", "add", "spread", "spread", "copy", "set"])
        )
        if kind == "set":
            self.nodes.append(self.graph.memset(self.draw(st.sampled_from(known)), float(self.draw(st.integers(0, 3)))))
            return
        read = [self.draw(st.sampled_from(known + handed)) for _ in range(2)]
        if handed and self.draw(st.integers(0, 3)):
            read[0] = handed[-1]
        new = kind == "copy" or bool(self.draw(st.integers(0, 2)))
        out = self.graph.device_array(f"t{len(self.graph.operands)}", shape, np.float32) if new else None
        written = [self.draw(st.sampled_from(known)) if out is None else out]
        if kind == "spread":
            written.append(self.draw(st.sampled_from(known)))
        if kind == "times":
            one_number = self.draw(st.sampled_from(self.arrays))[0, 0]
            read[1] = self.draw(st.sampled_from([np.float32(0.7), self.gain, self.gain, one_number]))
        arrays = [each for each in read if isinstance(each, (gd.Buffer, gd.View))]
        if len(written) == 2 and meet(*written):
            written.pop()
            kind = "add"
        if any(meet(one, other) and not same(one, other) for one in written for other in arrays):
            return
        if kind == "copy":
            self.nodes.append(self.graph.memcpy(written[0], read[0]))
        else:
            self.nodes.append(self.graph.elementwise(FUNCTIONS[kind], tuple(written), tuple(read)))
        if out is not None:
            self.handed.append(out)

    def order(self) -> None:
        """An edge for each two nodes that touch the same bytes, one of them writing, and a few edges more."""
        for before, after in itertools.combinations(self.nodes, 2):
            pairs = itertools.product(accesses(before), accesses(after))
            if any((one.writes or other.writes) and meet(one.array, other.array) for one, other in pairs):
                self.graph.edge(before, after)
        places = st.lists(st.integers(0, len(self.nodes) - 1), min_size=2, max_size=2, unique=True).map(sorted)
        for first, second in self.draw(st.lists(places, max_size=3)):
            before, after = self.nodes[first], self.nodes[second]
            if not self.graph.dag.has_edge(before.name, after.name):
                self.graph.edge(before, after)


FUNCTIONS = {"times": times, "add": add, "spread": spread}


def meet(one: Any, other: Any) -> bool:
    """True if two slices may share bytes."""
    (first, last), (start, stop) = (Access(each, True, True).span({}) for each in (one, other))
    return one.buffer is other.buffer and first < stop and start < last


def same(one: Any, other: Any) -> bool:
    """True if two slices are the same elements."""
    return (one.offset, one.shape, one.strides) == (other.offset, other.shape, other.strides)


@st.composite
def programs(draw: st.DrawFn, most: int = 9) -> gd.Graph:
    """A graph whose results are the same in every order."""
    program = Program(draw)
    program.load()
    for _ in range(draw(st.integers(3, most))):
        program.step()
    program.store()
    program.order()
    return program.graph


def results(g: gd.Graph, device: Driver, **updates: float) -> dict[str, np.ndarray]:
    """What two launches, and one with other values of params, leave in the outputs."""
    random = np.random.default_rng(7)
    with g.instantiate(device) as exe:
        for name in NAMES:
            values = random.standard_normal(SHAPE).astype(np.float32)
            if f"{name}_in" in g.operands:
                exe[f"{name}_in"][:] = values
        for changes in ({}, {}, updates):
            exe.update(**{name: value for name, value in changes.items() if name in g.operands})
            exe.launch()
            exe.synchronize()
        return {name: exe[name].copy() for name in g.operands if name.endswith("_out")}
