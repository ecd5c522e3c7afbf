"""What is measured of lanes: graphs that are what they say, of which every kernel runs."""

import networkx as nx
import numpy as np
import pytest

import graphdsl as gd
from graphdsl.bench.lane_costs import Load, Spec, both, build, chains, groups, ladder, require_all_run

SHORT = Load(2)


@pytest.mark.parametrize(("group", "specs"), list(groups()))
def test_graphs_are_acyclic_and_no_wider_than_they_say(group, specs):
    for name, spec in specs.items():
        dag = nx.DiGraph(spec.edges)
        dag.add_nodes_from(range(spec.nodes))
        assert nx.is_directed_acyclic_graph(dag)
        assert len(dag) == spec.nodes
        assert dag.number_of_edges() == len(spec.edges)
        if name.endswith("lanes"):
            lanes = int(name.split()[-2])
            assert max(map(len, nx.topological_generations(dag))) <= lanes


def test_every_kernel_is_seen_to_run():
    with build(chains(5, 2, SHORT), 3).instantiate(gd.emulator(), lanes=None) as graph_exec:
        require_all_run(graph_exec)
        graph_exec.disable("node00003")
        with pytest.raises(RuntimeError, match="1 of 5"):
            require_all_run(graph_exec)


@pytest.mark.parametrize("kind", ["memset", "quick", "copy", "kernel", "empty"])
@pytest.mark.parametrize("inside", ["", "child", "if"])
def test_ends_are_before_and_behind_all_others(kind, inside):
    graph = build(Spec(6, tuple(ladder(6, 2, 4)), SHORT, inside=inside, **both(kind)), 3)
    order = list(nx.topological_sort(graph.dag))
    assert (order[0], order[-1]) == ("first", "last")
    assert nx.is_weakly_connected(graph.dag)
    with graph.instantiate(gd.emulator(), lanes=None) as graph_exec:
        graph_exec["ends"].copy_from_host(np.zeros(4, np.float32))
        require_all_run(graph_exec)
