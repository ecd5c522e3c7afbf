"""Definitions that the tests of this folder draw."""

import numpy as np

from graphdsl.declare.definition import Definition
from graphdsl.declare.expressions import cdiv


def scale(x, y, gain, n):
    y[0] = gain * x[0]


def log(x):
    print(x)


def demo():
    """One node of each kind, in a chain but for the memset."""
    g = Definition("demo")
    n = g.param("n", np.int32, default=1024)
    gain = g.param("gain", np.float32, default=1.0)
    raw, out = g.host_array("raw", 1024, np.float32), g.host_array("out", 1024, np.float32)
    x, y = g.device_array("x", 1024, np.float32), g.device_array("y", 1024, np.float32)
    load, clear = g.memcpy(x, raw, name="load"), g.memset(y, 0, name="clear")
    run = g.kernel(scale, grid=cdiv(n, 256), block=256, args=(x, y, gain, n), name="run")
    store, report = g.memcpy(out, y, nbytes=n * 4, name="store"), g.host(log, args=(out,))
    [load, clear] >> run >> store >> report >> g.empty(name="end")
    return g


def chain(*names):
    """Empty nodes, each after the one before."""
    g = Definition("chain")
    with g.sequence():
        for name in names:
            g.empty(name=name)
    return g
