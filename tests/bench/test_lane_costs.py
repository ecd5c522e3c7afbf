"""What is measured of lanes: graphs that are no wider than said, of which every node runs."""

import networkx as nx
import numpy as np
import pytest

import graphdsl as gd
from graphdsl.bench.lane_costs import Load, build, groups, independent, require_all_run


@pytest.mark.parametrize(("shape", "nodes", "widths"), [(shape, nodes, widths) for shape, nodes, _, widths in groups()])
def test_graphs_are_acyclic_and_no_wider_than_they_say(shape, nodes, widths):
    for lanes, edges in widths.items():
        dag = nx.DiGraph(edges)
        dag.add_nodes_from(range(nodes))
        assert nx.is_directed_acyclic_graph(dag)
        assert len(dag) == nodes
        assert dag.number_of_edges() == len(edges)
        assert max(map(len, nx.topological_generations(dag))) <= int(lanes)


def test_every_node_is_seen_to_run():
    with build(5, independent(5, 2), Load("short", 2), 3).instantiate(gd.emulator()) as graph_exec:
        require_all_run(graph_exec)
        graph_exec.disable("node00003")
        with pytest.raises(RuntimeError, match="1 nodes"):
            require_all_run(graph_exec)
        assert np.count_nonzero(graph_exec["count"].copy_to_host()) == 4
