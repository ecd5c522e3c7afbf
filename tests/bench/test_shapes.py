import networkx as nx
import numpy as np
import pytest

import graphdsl as gd
from graphdsl.bench import shapes
from graphdsl.errors import GraphdslError
from graphdsl.plan import plan

SIZES = (1, 2, 9, 10, 11, 40, 200)


def dag(name, nodes):
    made = nx.DiGraph()
    made.add_nodes_from(range(nodes))
    made.add_edges_from(shapes.edges(name, nodes))
    return made


@pytest.mark.parametrize("name", shapes.SHAPES)
@pytest.mark.parametrize("nodes", SIZES)
def test_every_shape_is_one_piece_and_in_order(name, nodes):
    edges = shapes.edges(name, nodes)
    assert all(0 <= before < after < nodes for before, after in edges)
    assert len(set(edges)) == len(edges)
    assert nx.is_weakly_connected(dag(name, nodes))
    assert [node for node, degree in dag(name, nodes).in_degree if degree == 0] == [0]


def test_the_shapes_are_what_their_names_say():
    assert nx.dag_longest_path_length(dag("chain", 200)) == 199
    assert max(dict(dag("fan-out", 200).out_degree).values()) == 199
    levels = [len(level) for level in nx.topological_generations(dag("diamond", 28))]
    assert levels == [1, 8, 1, 8, 1, 8, 1]
    degrees = {degree for _, degree in dag("random", 500).in_degree}
    assert degrees == {0, 1, 2, 3}


def test_the_random_shape_is_the_same_every_time():
    assert shapes.edges("random", 100) == shapes.edges("random", 100)


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_graphs_have_the_nodes_and_edges_of_their_shape(name):
    graph = shapes.shape(name, 12)
    assert graph.check().ok, str(graph.check())
    made = plan(graph)
    assert [node.name for node in made.nodes] == [shapes.node_name(i) for i in range(12)]
    assert [tuple(edge) for edge in made.edges.tolist()] == sorted(shapes.edges(name, 12))


def test_names_are_in_the_order_of_numbers():
    names = [shapes.node_name(i) for i in (0, 9, 10, 99_999)]
    assert names == sorted(names)


@pytest.mark.parametrize("name", shapes.SHAPES)
def test_every_node_adds_its_gain(name):
    with shapes.shape(name, 11).instantiate(gd.emulator()) as exe:
        exe["x"].copy_from_host([0.0] * shapes.ELEMENTS)
        exe.update(n=2)
        exe.launch()
        assert exe["x"].copy_to_host()[:3].tolist() == [11, 11, 0]


def test_only_the_touched_nodes_follow_the_param():
    with shapes.shape("chain", 10, touched=3).instantiate(gd.emulator(), values={"n": 1}) as exe:
        exe["x"].copy_from_host([0.0] * shapes.ELEMENTS)
        exe.update(gain=5.0)
        exe.launch()
        assert exe["x"].copy_to_host()[0] == 3 * 5 + 7


def test_memory_can_be_shared_by_execs():
    device = gd.emulator()
    memory = gd.to_device(device, np.zeros(shapes.ELEMENTS, np.float32))
    graph = shapes.shape("chain", 2, memory=memory)
    for _ in range(2):
        with graph.instantiate(device, values={"n": 1}) as exe:
            exe.launch()
            exe.synchronize()
    assert memory.copy_to_host()[0] == 4


@pytest.mark.parametrize(("name", "nodes", "field"), [("ring", 3, "shape"), ("chain", 0, "nodes")])
def test_what_is_no_shape_is_refused(name, nodes, field):
    with pytest.raises(GraphdslError) as caught:
        shapes.edges(name, nodes)
    assert caught.value.field == field
