"""What is measured of lanes: graphs that are no wider than said, of which every node runs."""

import networkx as nx
import pytest

import graphdsl as gd
from graphdsl.bench.lane_costs import Load, build, fan_in, fan_out, groups, independent, require_all_run, rooted


@pytest.mark.parametrize(("shape", "nodes", "widths"), [(shape, nodes, widths) for shape, nodes, _, widths in groups()])
def test_graphs_are_acyclic_and_no_wider_than_they_say(shape, nodes, widths):
    for lanes, edges in widths.items():
        dag = nx.DiGraph(edges)
        dag.add_nodes_from(range(nodes))
        assert nx.is_directed_acyclic_graph(dag)
        assert len(dag) == nodes
        assert dag.number_of_edges() == len(edges)
        assert max(map(len, nx.topological_generations(dag))) <= int(lanes)


def test_every_kernel_is_seen_to_run():
    with build(5, independent(5, 2), Load("short", 2), 3).instantiate(gd.emulator()) as graph_exec:
        require_all_run(graph_exec, 5)
        graph_exec.disable("node00003")
        with pytest.raises(RuntimeError, match="4 of 5"):
            require_all_run(graph_exec, 5)


def test_ends_may_be_empty_nodes():
    load = Load("short", 2)
    assert kinds(build(6, rooted(6, 2), load, 3, empty_ends=True)) == "ekkkke"
    assert kinds(build(6, fan_out(6, 2), load, 3, empty_ends=True)) == "ekkkkk"
    assert kinds(build(6, fan_in(6, 2), load, 3, empty_ends=True)) == "kkkkke"
    assert kinds(build(6, rooted(6, 2), load, 3)) == "kkkkkk"
    graph = build(6, rooted(6, 2), load, 3, empty_ends=True)
    with graph.instantiate(gd.emulator()) as graph_exec:
        require_all_run(graph_exec, 4)


def kinds(graph):
    return "".join(node.kind[0] for node in graph.nodes)
