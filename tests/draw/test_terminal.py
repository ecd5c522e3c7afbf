import re

import numpy as np
import pytest
from rich.console import Console

from graphdsl.declare.definition import Definition
from graphdsl.draw import terminal
from tests.draw.graphs import chain, demo


def shown(renderable):
    """Its lines as plain text, without those that are blank or a rule."""
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(renderable)
    lines = (line.rstrip() for line in captured.get().splitlines())
    return [line for line in lines if line.strip(" ─")]


def cells(line):
    return line.split()


@pytest.fixture
def diamond():
    g = Definition("diamond")
    start, left, right, stop = (g.empty(name=name) for name in ("start", "left", "right", "stop"))
    start >> [left, right] >> stop
    return g


def test_levels_show_each_node_with_its_kind_and_what_it_waits_for(diamond):
    title, _, *rows = shown(terminal.levels(diamond))
    assert title == "diamond: 4 nodes, 4 edges, 3 levels"
    assert [cells(row) for row in rows] == [
        ["0", "start", "empty"],
        ["1", "left", "empty", "start"],
        ["right", "empty", "start"],
        ["2", "stop", "empty", "left,", "right"],
    ]


def test_levels_say_what_nodes_do():
    text = "\n".join(shown(terminal.levels(demo())))
    for essential in ("scale<<<cdiv(n, 256), 256>>>", "raw → x, 4 KiB", "y = 0"):
        assert essential in text


def test_a_level_is_one_more_than_the_deepest_that_is_waited_for():
    g = chain("a", "b", "c")
    g.node("a") >> g.empty(name="late")
    g.node("c") >> g.node("late")
    assert cells(shown(terminal.levels(g))[-1])[:2] == ["3", "late"]


def test_many_names_are_counted():
    g = Definition()
    [g.empty(name=f"n{i}") for i in range(9)] >> g.empty(name="end")
    assert shown(terminal.levels(g))[-1].endswith("n0, n1, n2, n3, n4, n5 and 3 more")


def test_a_cycle_is_named_and_what_follows_still_has_a_level():
    g = chain("a", "b", "c", "d")
    g.node("c") >> g.node("b")
    lines = shown(terminal.levels(g))
    assert lines[-1] == "cycle: b → c → b"
    assert cells(lines[-2])[:2] == ["2", "d"]


def test_each_group_of_cycles_is_named_in_the_order_of_declaration():
    g = chain("a", "b", "c")
    g.node("a") >> g.node("a")
    g.node("c") >> g.node("b")
    assert shown(terminal.tree(g))[-2:] == ["cycle: a → a", "cycle: b → c → b"]


def test_the_tree_indents_forks_only(diamond):
    diamond.node("stop") >> diamond.empty(name="end")
    assert shown(terminal.tree(diamond)) == [
        "diamond: 5 nodes, 5 edges",
        "└── start  empty",
        "    ├── left  empty",
        "    │   ↓ stop  empty  also after right",
        "    │   ↓ end  empty",
        "    └── right  empty",
    ]


def test_the_tree_hangs_a_node_under_the_deepest_it_waits_for():
    g = chain("a", "b", "c")
    [g.empty(name="other"), g.node("a"), g.node("c")] >> g.empty(name="end")
    assert "    ↓ end  empty  also after other, a" in [line.replace("│", " ") for line in shown(terminal.tree(g))]


def test_the_tree_shows_every_node_once_even_on_a_cycle():
    g = chain("a", "b", "c", "d")
    g.node("d") >> g.node("a")
    lines = shown(terminal.tree(g))
    assert sorted(line.replace("├── ", "").replace("└── ", "").split()[0] for line in lines[1:-1]) == [
        "a",
        "b",
        "c",
        "d",
    ]
    assert lines[-1] == "cycle: a → b → c → d → a"


def test_a_long_chain_stays_at_the_margin():
    assert all(line.startswith(("└── ", "    ↓ ")) for line in shown(terminal.tree(chain(*map(str, range(2000)))))[1:])


def test_operands_show_their_type_and_how_many_nodes_use_them():
    g = demo()
    g.external("w", np.zeros((2, 3)))
    _, *rows = shown(terminal.operands(g))
    assert [cells(row) for row in rows] == [
        ["n", "param", "int32", "4", "B", "1024", "2"],
        ["gain", "param", "float32", "4", "B", "1.0", "1"],
        ["raw", "pinned", "float32[1024]", "4", "KiB", "1"],
        ["out", "pinned", "float32[1024]", "4", "KiB", "2"],
        ["x", "device", "float32[1024]", "4", "KiB", "2"],
        ["y", "device", "float32[1024]", "4", "KiB", "3"],
        ["w", "external,", "pageable", "float64[2,", "3]", "48", "B", "0"],
    ]


def test_a_param_without_a_default_shows_none():
    g = Definition()
    g.param("n", np.int32)
    assert cells(shown(terminal.operands(g))[-1]) == ["n", "param", "int32", "4", "B", "0"]


@pytest.mark.parametrize("view", [terminal.levels, terminal.tree])
def test_names_that_look_like_markup_are_shown_as_they_are(view):
    assert any("[red]a[/red]" in line for line in shown(view(chain("[red]a[/red]", ":smile:"))))
    assert any(":smile:" in line for line in shown(view(chain("[red]a[/red]", ":smile:"))))


@pytest.mark.parametrize("view", [terminal.levels, terminal.tree, terminal.operands])
def test_an_empty_graph_can_be_shown(view):
    assert shown(view(Definition("nothing")))


def test_a_long_cycle_is_cut_short():
    g = Definition()
    nodes = [g.empty(name=f"n{i}") for i in range(40)]
    for before, after in zip(nodes, [*nodes[1:], nodes[0]]):
        before >> after
    text = "\n".join(shown(terminal.levels(g)))
    assert "n0 → n1 → n2 → n3 → n4 → n5 → (29 more) → n35" in text


@pytest.mark.parametrize("view", [terminal.levels, terminal.tree])
def test_bodies_follow_what_holds_them(view):
    inner = Definition("inner")
    inner.empty(name="deep")
    g = Definition("outer")
    with g.while_(g.condition("more", default=0), name="loop") as body:
        body.child(inner, name="child")
    g.if_(g.condition("taken", default=0), name="branch").otherwise.empty(name="no")
    lines = shown(view(g))
    titles = [line.split(",")[0] for line in lines if re.match(r"[\w/]+: \d+ node", line)]
    assert titles == ["outer: 2 nodes", "loop: 1 node", "loop/child: 1 node", "branch/otherwise: 1 node"]
    assert any("loop/child/deep" in line for line in lines)
