"""A small right graph to spoil, and a kernel to launch in it."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.compile import cache


def scale(x, y, gain, n):
    i = 0
    if i < n:
        y[i] = gain * x[i]


def small_graph(name: str = "demo") -> SimpleNamespace:
    """A graph with operands of each kind; its nodes are declared by the tests."""
    g = gd.Graph(name)
    return SimpleNamespace(
        g=g,
        n=g.param("n", np.int32, default=1024),
        gain=g.param("gain", np.float32, default=1.0),
        raw=g.host_array("raw", 1024, np.float32),
        staged=g.host_array("staged", 1024, np.float32, pinned=False),
        x=g.device_array("x", 1024, np.float32),
        y=g.device_array("y", 1024, np.float32),
        table=g.device_array("table", (32, 32), np.float32),
    )


@pytest.fixture
def demo() -> SimpleNamespace:
    return small_graph()


@pytest.fixture(autouse=True, scope="session")
def image_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        yield
