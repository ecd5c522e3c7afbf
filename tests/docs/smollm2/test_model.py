"""The graphs as they are declared: every edge is needed, and what they share has the shape that they expect."""

from functools import partial

import networkx as nx
import pytest
from smollm2.memory import Operands, batch_memory, contents
from smollm2.model import batch_graph, decode_graph, prompt_graph
from smollm2.weights import LLAMA2_7B, SMOLLM2_135M, Config, random_weights

import graphdsl as gd
from graphdsl.declare.operands import Buffer

from .models import TINY

LARGE = Config(hidden=128, layers=2, heads=2, kv_heads=1, head_size=64, mlp=128, vocabulary=64, large=True)
GRAPHS = {
    "decode": partial(decode_graph, TINY, 24),
    "sample": partial(decode_graph, TINY, 24, greedy=False),
    "prompt": partial(prompt_graph, TINY, 8, 24),
    "large": partial(decode_graph, LARGE, 24),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_an_edge_that_is_taken_away_is_missed(name):
    """The audit knows what the kernels read and write: nodes in conflict that no edge orders are found."""
    declare = GRAPHS[name]
    assert not list(declare().check(compile=False))
    for edge in list(declare().dag.edges):
        graph = declare()
        graph._dag.remove_edge(*edge)
        assert not nx.has_path(graph.dag, *edge)
        assert "GD601" in {found.code for found in graph.check(compile=False)}, edge


def test_the_graphs_of_a_large_model_have_no_findings_that_need_no_compiler():
    for graph in (decode_graph(LLAMA2_7B), decode_graph(LLAMA2_7B, greedy=False)):
        assert not list(graph.check(compile=False))
        assert len(graph.all_nodes) == 32 * 5 + 3


def test_the_graph_of_a_batch_has_no_findings():
    memory = batch_memory(gd.emulator(), LARGE, 8, 24)
    assert not list(batch_graph(LARGE, 8, 24, memory=memory).check())


@pytest.mark.parametrize("declare", [decode_graph, lambda config, context: prompt_graph(config, 8, context)])
def test_the_memory_has_what_the_graphs_adopt(declare):
    """By name, with the same shape and dtype: what a graph declares for itself is what it finds in memory."""
    held = contents(random_weights(TINY), 24)
    own = declare(TINY, 24)
    shared = {name: each for name, each in own.operands.items() if isinstance(each, Buffer) and name in held}
    assert {name: (each.shape, each.dtype) for name, each in shared.items()} == {
        name: (held[name].shape, held[name].dtype) for name in shared
    }
    g = gd.Graph("all")
    Operands(g, TINY, 24, None)
    assert g.operands.keys() <= shared.keys()


def test_a_step_of_the_real_model_is_a_chain_of_programmatic_edges():
    graph = decode_graph(SMOLLM2_135M)
    assert {edge["port"] for _, _, edge in graph.dag.edges.data()} == {"programmatic"}
    plain = decode_graph(SMOLLM2_135M, overlapping=False)
    assert {edge["port"] for _, _, edge in plain.dag.edges.data()} == {"default"}
    assert list(plain.dag.edges) == list(graph.dag.edges)
