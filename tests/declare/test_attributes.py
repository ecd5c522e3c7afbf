"""Launch attributes as they are declared: one form, or a refusal that says what to write."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.attributes import ATTRIBUTES, GivenAttributes, LaunchAttributes, launch_attributes


def clear(x):
    x[0] = 0


@pytest.fixture
def graph():
    return gd.Graph("demo")


@pytest.fixture
def x(graph):
    return graph.device_array("x", (4, 8), np.float32)


def node(graph, x, **attributes):
    return graph.kernel(clear, grid=8, block=32, args=x, name="clear", **attributes)


def test_a_node_without_attributes_has_none(graph, x):
    assert node(graph, x).attributes is None
    assert graph.kernel(clear, grid=8, block=32, args=x, cooperative=False, priority=None).attributes is None


def test_each_attribute_in_its_one_form(graph, x):
    policy = gd.AccessPolicy(x, hit_ratio=1, hit="persisting", miss="normal")
    made = node(
        graph,
        x,
        cooperative=np.True_,
        cluster=2,
        preferred_cluster=[4, np.int64(1)],
        cluster_policy="spread",
        priority=np.int8(-3),
        access_policy=policy,
        sync_domain="remote",
        sync_domain_map={"remote": 2, "default": 1},
    )
    assert made.attributes == LaunchAttributes(
        access_policy=policy,
        cooperative=True,
        cluster=(2, 1, 1),
        cluster_policy="spread",
        priority=-3,
        sync_domain_map=(1, 2),
        sync_domain="remote",
        preferred_cluster=(4, 1, 1),
    )
    assert [name for name, _ in made.attributes.given()] == list(ATTRIBUTES)
    assert made.attributes.cluster_blocks == 4
    assert str(made.attributes) == (
        "access_policy=x 1 persisting, else normal, cooperative, cluster=(2, 1, 1), cluster_policy=spread, "
        "priority=-3, sync_domain_map=(1, 2), sync_domain=remote, preferred_cluster=(4, 1, 1)"
    )


def test_a_priority_of_zero_is_one():
    assert launch_attributes("a", {"priority": 0}) == LaunchAttributes(priority=0)


def test_every_attribute_can_be_given():
    assert set(GivenAttributes.__annotations__) == set(ATTRIBUTES)


@pytest.mark.parametrize(
    ("attributes", "field", "says"),
    [
        ({"cluster": 2.0}, "cluster", "integer"),
        ({"cluster": ()}, "cluster", "one to three"),
        ({"cluster": (1, 1, 1, 1)}, "cluster", "one to three"),
        ({"cluster": True}, "cluster", "integer"),
        ({"preferred_cluster": "2"}, "preferred_cluster", "integer"),
        ({"cluster_policy": "wide"}, "cluster_policy", "default, spread, load_balancing"),
        ({"cooperative": 1}, "cooperative", "True or False"),
        ({"priority": 1.5}, "priority", "integer"),
        ({"access_policy": 3}, "access_policy", "AccessPolicy"),
        ({"sync_domain": 1}, "sync_domain", "default, remote"),
        ({"sync_domain_map": {"default": 0}}, "sync_domain_map", "'remote': 1"),
        ({"sync_domain_map": (0, 1)}, "sync_domain_map", "'remote': 1"),
        ({"clutser": 2}, "clutser", "Did you mean cluster"),
        ({"shared": 2}, "shared", "Did you mean shared_bytes"),
        ({"xyz": 2}, "xyz", "cooperative, cluster"),
    ],
)
def test_what_is_no_attribute_is_refused(graph, x, attributes, field, says):
    with pytest.raises(gd.DeclarationError, match=says) as caught:
        node(graph, x, **attributes)
    assert (caught.value.node, caught.value.field) == ("clear", field)
    assert len(graph) == 0


@pytest.mark.parametrize("field", ["cluster", "priority", "cooperative", "preferred_cluster"])
def test_an_attribute_follows_no_param(graph, x, field):
    n = graph.param("n", np.int32, default=2)
    with pytest.raises(gd.DeclarationError, match="follows no param") as caught:
        node(graph, x, **{field: n})
    assert caught.value.field == field
    with pytest.raises(gd.DeclarationError, match="follows no param"):
        node(graph, x, cluster=(1, n))


class TestAccessPolicy:
    def test_the_window_spans_what_lies_between_its_ends(self, x):
        assert gd.AccessPolicy(x).nbytes == 128
        assert gd.AccessPolicy(x[1:3, 2:4]).nbytes == 32 + 8
        assert gd.AccessPolicy(x[1:1]).nbytes == 0

    @pytest.mark.parametrize(
        ("options", "field"),
        [
            ({"hit_ratio": "0.5"}, "access_policy.hit_ratio"),
            ({"hit_ratio": True}, "access_policy.hit_ratio"),
            ({"hit": "often"}, "access_policy.hit"),
            ({"miss": None}, "access_policy.miss"),
        ],
    )
    def test_what_is_no_policy_is_refused(self, x, options, field):
        with pytest.raises(gd.DeclarationError) as caught:
            gd.AccessPolicy(x, **options)
        assert caught.value.field == field

    def test_the_window_is_an_array_of_the_graph(self):
        with pytest.raises(gd.DeclarationError, match="array of the graph"):
            gd.AccessPolicy(np.zeros(3))

    def test_the_window_follows_no_param(self, graph, x):
        n = graph.param("n", np.int32, default=2)
        with pytest.raises(gd.DeclarationError, match="follows no param"):
            gd.AccessPolicy(x[:n])

    def test_the_window_is_an_operand_of_the_node(self, graph, x):
        other = graph.device_array("other", 8, np.float32)
        made = node(graph, x, access_policy=gd.AccessPolicy(other))
        assert made.window is other
        assert other in made.operands()
        assert node(gd.Graph(), x, priority=1).window is None

    def test_the_window_of_a_child_is_what_stands_for_its_array(self, x):
        child = gd.Graph("child")
        y, z = (child.device_array(name, (4, 8), np.float32) for name in "yz")
        for name, window in (("bound", y[1:3]), ("own", z)):
            child.kernel(
                clear, grid=8, block=32, args=y, name=name, priority=-1, access_policy=gd.AccessPolicy(window, 0.5)
            )
        node = x.definition.child(child, {"y": x}, name="child")
        bound, own = node.body.nodes
        assert (bound.window.buffer, bound.window.offset, bound.attributes.priority) == (x, 32, -1)
        assert bound.attributes.access_policy.hit_ratio == 0.5
        assert own.window is x.definition.operands["child/z"]
        n = x.definition.param("n", np.int32, default=4)
        following = x.definition.device_array("w", (8, 4, 8), np.float32)[n]
        operands = list(x.definition.operands)
        with pytest.raises(gd.DeclarationError, match="follows no param"):
            x.definition.child(child, {"y": following}, name="no")
        assert list(x.definition.operands) == operands

    def test_a_copy_of_a_graph_has_windows_of_its_own(self, graph, x):
        node(graph, x, access_policy=gd.AccessPolicy(x))
        copied = copy.deepcopy(graph)
        assert copied.node("clear").window is copied.operands["x"] is not x
