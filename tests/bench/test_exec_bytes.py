"""What is measured of the bytes of execs: growth of what a device says, by node."""

import pytest

import graphdsl as gd
from graphdsl.bench.exec_bytes import KINDS, bytes_per_node, chain


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_has_nodes_of_its_kind(kind):
    assert {node.kind for node in chain(kind, 3).nodes} == {kind}


def test_the_first_exec_does_not_count(monkeypatch):
    device = gd.emulator()
    free = iter([10_000, 10_000 - 3 * 4 * 256])
    monkeypatch.setattr(device, "mem_get_info", lambda: (next(free), 20_000))
    assert bytes_per_node(device, "empty", nodes=4, execs=3)["device"] == 256
