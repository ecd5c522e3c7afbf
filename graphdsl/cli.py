"""The command line: ``graphdsl check|dot|draw|show|memory|passes|trace|run|debug|orders|bench|doctor``.

Each command finds a graph in a Python file and calls the public interface; what is wrong becomes one message on
stderr and exit status 2. Imports that take long stand in the commands that need them. This module must not do
anything that the interface cannot.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import numpy as np
import typer

import graphdsl as gd
from graphdsl.draw.labels import count_text
from graphdsl.errors import CallbackError, GraphdslError

if TYPE_CHECKING:
    from graphdsl.drivers.base import Driver

NODE_FAILED = 1
"""Exit status where a node fails that is run alone."""

ORDER_MATTERS = 1
"""Exit status where two orders of a graph give different results."""

FAILED = 2
"""Exit status where something is wrong."""

_FIRST = 6  # how many elements of an array are printed

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Explicit CUDA graphs in Python: check, draw and run the graph that a file declares.

    FILE.py[:name] is a Python file and, after a colon, the name of a graph in it or of a function that returns one;
    the name may be left out where the file has one graph. Only run and debug use a GPU, and do without one too.

    \b
    Examples:
      graphdsl check demo.py              what is wrong, and what to do
      graphdsl check demo.py -t sm_80     held to the limits of another GPU
      graphdsl draw demo.py -o demo.png   a picture
      graphdsl show demo.py:build --tree  the graph that build() returns, as a tree
      graphdsl show demo.py --access      what each node reads and writes
      graphdsl memory demo.py             where its arrays lie, and what shares bytes
      graphdsl passes demo.py --reduce    the edges that others imply
      graphdsl trace demo.py              the driver calls that would build it
      graphdsl run demo.py -p gain=2.0    launch it once, on a GPU if there is one
      graphdsl debug demo.py              run it node by node, and name the node that fails
      graphdsl orders demo.py             whether its result depends on an order that no edge asks for
      graphdsl bench --peers              what graphs cost here, beside other libraries
      graphdsl doctor                     what is installed, and what would run where
    """,
)

Device = Annotated[str, typer.Option("--device", "-d", help="auto, cuda:N or emulator.")]
Params = Annotated[
    list[str] | None, typer.Option("--param", "-p", metavar="NAME=VALUE", help="Value of a param; repeatable.")
]
File = Annotated[str, typer.Argument(metavar="FILE.py[:name]", help="A file, and the graph or function in it.")]
Target = Annotated[
    str, typer.Option("--target", "-t", help="Compute capability, such as sm_80; of several devices, sm_90,sm_80.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LanesOf = Annotated[str, typer.Option("--lanes", metavar="N|auto|none", help="Lanes that nodes are threaded onto.")]
Operands = Annotated[bool, typer.Option("--operands", help="Draw buffers too.")]
Access = Annotated[bool, typer.Option("--access", help="Name at each edge what flows along it.")]


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; ends the process with status 0, or 2 where something is wrong."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name that the terminal cannot show must not end the command
            stream.reconfigure(errors="replace")
    try:
        app(arguments)
    except GraphdslError as problem:
        _fail(_message(problem))
    except OSError as problem:
        _fail(str(problem))
    except MemoryError as problem:
        _fail(f"this machine has too little memory: {str(problem) or 'a smaller graph may fit'}")
    raise AssertionError("unreachable: typer ends the process")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"graphdsl {gd.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def check(file: File, target: Target = "sm_90", as_json: AsJson = False) -> None:
    """Say what is wrong with a graph, and what to do.

    Exit status 2 if there are errors; warnings and advice change nothing.
    """
    report = _load(file).check(_targets(target))
    if as_json:
        found = {"graph": report.graph, "target": report.target, "ok": report.ok, "findings": report.to_json()}
        typer.echo(json.dumps(found, indent=2))
    else:
        _print(report)
    if not report.ok:
        raise typer.Exit(FAILED)


@app.command()
def dot(
    file: File,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write to this file, not to stdout.")] = None,
    operands: Operands = False,
    access: Access = False,
    lanes: LanesOf = "none",
) -> None:
    """Print a graph in Graphviz' DOT language.

    What is wrong is red; exit status 2 if something is.
    """
    graph = _load(file)
    text = graph.to_dot(operands=operands, access=access, lanes=_lanes(lanes))
    if output is None:
        typer.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
        typer.echo(output)
    _require_no_errors(graph)


@app.command()
def draw(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture to write: .svg, .png, .pdf or .dot.")
    ] = None,
    operands: Operands = False,
    access: Access = False,
    lanes: LanesOf = "none",
) -> None:
    """Draw a graph to a picture, and print its path.

    Without --output it is GRAPH.svg in the current folder. What is wrong is red; exit status 2 if something is.
    """
    graph = _load(file)
    path = output or Path(re.sub(r"[^\w.-]+", "_", graph.name) + ".svg")
    typer.echo(graph.draw(path, operands=operands, access=access, lanes=_lanes(lanes)))
    _require_no_errors(graph)


@app.command()
def show(
    file: File,
    tree: Annotated[bool, typer.Option("--tree", help="Show a tree instead of levels.")] = False,
    access: Annotated[bool, typer.Option("--access", help="Show what each node reads and writes, instead.")] = False,
    lanes: LanesOf = "none",
) -> None:
    """Show a graph and its operands in the terminal.

    Nodes of one level may run side by side. With --access, of Numba kernels what their code tells; what could not be
    told counts as read and written, and the reason is given. Exit status 2 if something is wrong with the graph.
    """
    from graphdsl.draw import terminal

    graph = _load(file)
    if access:
        _print(terminal.accesses(graph))
    else:
        _print(terminal.tree(graph) if tree else terminal.levels(graph), terminal.operands(graph))
    _require_no_errors(graph)
    if lanes != "none":
        typer.echo(graph.plan(lanes=_lanes(lanes)).lanes)


@app.command()
def memory(
    file: File,
    svg: Annotated[Path | None, typer.Option("--svg", help="Draw it to this .svg file, too.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show where the arrays of a graph lie, and what they share.

    Nothing is allocated; exit status 2 if something is wrong with the graph.
    """
    from graphdsl.draw import terminal

    graph = _load(file)
    plan = graph.plan()
    if as_json:
        typer.echo(json.dumps({str(device or 0): each.to_json() for device, each in plan.memory.items()}, indent=2))
    else:
        _print(terminal.memory(plan))
    if svg is not None:
        typer.echo(graph.draw_memory(svg), err=as_json)


@app.command()
def passes(
    file: File,
    reduce: Annotated[bool, typer.Option("--reduce", help="Drop the edges that others imply.")] = False,
    fuse: Annotated[bool, typer.Option("--fuse", help="Make one kernel of elementwise nodes in a chain.")] = False,
    dead: Annotated[
        list[str] | None,
        typer.Option("--dead", metavar="NAME", help="Drop what this output does not follow from; repeatable."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Draw the new graph: .svg, .png, .pdf or .dot.")
    ] = None,
) -> None:
    """Transform a graph, and say what was changed.

    In this order: what is dead is dropped, then nodes are fused, then edges are dropped.
    """
    asked = [
        partial(gd.passes.eliminate_dead, outputs=dead) if dead else None,
        gd.passes.fuse_elementwise if fuse else None,
        gd.passes.transitive_reduction if reduce else None,
    ]
    graph, changes = gd.passes.apply(_load(file), [each for each in asked if each is not None])
    typer.echo(changes)
    typer.echo(repr(graph))
    if output is not None:
        typer.echo(graph.draw(output))


@app.command()
def trace(file: File, target: Target = "sm_90", lanes: LanesOf = "auto") -> None:
    """Print the driver calls that build a graph."""
    for call in _load(file).trace(_targets(target), lanes=_lanes(lanes)):
        typer.echo(call)


@app.command()
def run(
    file: File,
    device: Device = "auto",
    params: Params = None,
    launches: Annotated[int, typer.Option("--launches", "-n", min=1, help="How many times to launch.")] = 1,
    names: Annotated[
        list[str] | None, typer.Option("--print", metavar="NAME", help="Operand to print; host arrays by default.")
    ] = None,
    lanes: LanesOf = "auto",
) -> None:
    """Launch a graph, and print what it gives.

    Says where it ran, how long the launches took, and what the host arrays of the graph hold after them. Nothing is
    put into its arrays first: a graph that needs input fills it in a host node, or has it in an external operand.
    """
    graph = _load(file)
    values = dict(map(_parameter, params or ()))
    shown = names or [
        name for name, operand in graph.operands.items() if getattr(operand, "space", "device") != "device"
    ]
    with graph.instantiate(_device(device, graph), values=values, lanes=_lanes(lanes)) as graph_exec:
        operands = {name: graph_exec[name] for name in shown}  # before the launches: a name may be wrong
        start = time.perf_counter()
        for _ in range(launches):
            graph_exec.launch()
        graph_exec.synchronize()
        seconds = time.perf_counter() - start
        times = f"launched {count_text(launches, 'time')} in {_duration(seconds)}"
        typer.echo(f"{graph.name} ran on {graph_exec.device.name}: {times}")
        _print_operands(operands)


@app.command()
def debug(
    file: File,
    device: Device = "auto",
    params: Params = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="How long a node may take; no limit by default.")
    ] = None,
    as_json: AsJson = False,
    here: Annotated[bool, typer.Option("--here", help="Run in this process, as for compute-sanitizer.")] = False,
    steps: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run a graph node by node, and name the node that fails.

    Each node runs alone, in another process, which may lose its GPU's context, die or hang over it; of the one that
    fails all fields are shown. Exit status 1 if a node fails, 2 if it does not come to that.
    """
    from graphdsl.child import CAN_WATCH, watch

    if here or steps is not None or not CAN_WATCH:
        _debug_here(file, device, params, as_json, steps)
        return
    given = [*(f"--param={param}" for param in params or ()), *(["--json"] if as_json else [])]
    ended = watch(lambda pipe: ["debug", f"--steps={pipe}", f"--device={device}", *given, "--", file], timeout)
    if ended.status is not None:
        raise typer.Exit(ended.status)
    at = f"node {ended.step!r} failed" if ended.step else "no node was running"
    typer.echo(f"graphdsl: {at}: {ended.why}.", err=True)
    raise typer.Exit(NODE_FAILED if ended.step else FAILED)


def _debug_here(file: str, device: str, params: list[str] | None, as_json: bool, steps: int | None) -> None:
    from graphdsl.child import teller

    tell = teller(steps)
    graph = _load(file)
    graph_exec = graph.instantiate(_device(device, graph), values=dict(map(_parameter, params or ())))
    report = graph_exec.debug(observe=lambda node: tell(node.name))
    tell("")
    typer.echo(json.dumps(report.to_json(), indent=2) if as_json else report)
    with nullcontext() if report.ok else suppress(GraphdslError):  # a lost context refuses
        graph_exec.close()
    if not report.ok:
        raise typer.Exit(NODE_FAILED)


@app.command()
def orders(
    file: File,
    params: Params = None,
    most: Annotated[int, typer.Option("--orders", "-n", min=1, help="How many orders to run in at most.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the orders, and of what the arrays hold.")] = 0,
    names: Annotated[
        list[str] | None,
        typer.Option("--compare", metavar="NAME", help="Array to compare; repeatable, all by default."),
    ] = None,
    tolerance: Annotated[
        float,
        typer.Option(metavar="X", min=0, help="How far apart floating-point numbers may be, relative and absolute."),
    ] = 0.0,
) -> None:
    """Run a graph in many orders, and name a missing edge.

    On the emulator, with arrays that hold random numbers. Exit status 1 if the result depends on the order, 2 if the
    graph fails in all of them.
    """
    graph = _load(file)
    values = dict(map(_parameter, params or ()))
    inputs = gd.testing.random_inputs(graph, seed)
    try:
        tried = gd.testing.assert_order_independent(
            graph, inputs, outputs=names, orders=most, seed=seed, values=values, rtol=tolerance, atol=tolerance
        )
    except gd.OrderError as problem:
        typer.echo(f"graphdsl: {problem}", err=True)
        raise typer.Exit(ORDER_MATTERS) from None
    typer.echo(f"{graph.name} gives the same in {tried}")


@app.command()
def bench(
    what: Annotated[
        str, typer.Argument(metavar="[lanes]", help="lanes: what threading nodes onto lanes does to launches.")
    ] = "",
    peers: Annotated[bool, typer.Option("--peers", help="Measure the driver itself and other libraries too.")] = False,
    nodes: Annotated[str | None, typer.Option(metavar="N,...", help="Sizes of graphs: 1,100,1000 by default.")] = None,
    shapes: Annotated[
        str | None, typer.Option(metavar="NAME,...", help="chain, fan-out, diamond, random: all by default.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Take few samples, and no large graphs.")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all that was found to this file.")] = None,
    chart: Annotated[Path | None, typer.Option(help="Draw bars to this .png file; needs matplotlib.")] = None,
) -> None:
    """Measure what graphs cost on this machine.

    Launches, updates and building on the first GPU, in microseconds, with NVIDIA's names for what its sample measures;
    takes up to four minutes. Without a GPU only what needs none is measured.
    """
    from graphdsl.bench import lanes, records, report
    from graphdsl.bench import run as benchmark
    from graphdsl.bench.tables import machine_text
    from graphdsl.drivers.cuda import unavailable

    if what not in ("", "lanes"):
        raise GraphdslError(
            "there is no such benchmark", field="bench", value=what, remedy='Leave it out, or write "bench lanes".'
        )
    plan = benchmark.make_plan(peers=peers, nodes=_sizes(nodes), shapes=_names(shapes), quick=quick)
    if chart is not None:
        report.require_matplotlib(chart)
    reason = unavailable()
    if reason is not None and what:
        raise GraphdslError(f"launches are measured on a GPU: {reason}", field="bench", value=what, remedy="Use one.")
    if reason is not None:
        typer.echo(f"Only what needs no GPU is measured, and building in the emulator: {reason}", err=True)

    def progress(next_: str) -> None:
        typer.echo(f"measuring {next_} ...", err=True)

    results = lanes.run(progress) if what else benchmark.run(plan, progress)
    typer.echo(machine_text(results.machine))
    _print(*report.tables_of(results))
    if json_file is not None:
        records.save(results, json_file)
        typer.echo(json_file)
    if chart is not None:
        report.chart(results, chart)
        typer.echo(chart)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Say what is installed, and what is missing.

    Compiles a kernel and runs a small graph on each device. Exit status 2 if something needed is missing.
    """
    from graphdsl.doctor import examine

    diagnosis = examine()
    if as_json:
        typer.echo(json.dumps(diagnosis.to_json(), indent=2))
    else:
        _print(diagnosis)
    if not diagnosis.ok:
        raise typer.Exit(FAILED)


# Arguments


def _load(file: str) -> gd.Graph:
    from graphdsl.graph_file import load_graph

    return load_graph(file)


def _targets(text: str) -> Any:
    """What `Graph.check` takes: one target, or those of several devices."""
    return list(_names(text)) if "," in text else text


def _device(name: str, graph: gd.Graph) -> Driver | None:
    kind, _, ordinal = name.partition(":")
    if name == "auto":
        return None
    if name == "emulator":
        return gd.emulator(devices=graph.least_devices)
    if kind == "cuda" and (ordinal.isdecimal() or name == "cuda"):
        return gd.cuda(int(ordinal or 0))
    raise GraphdslError(
        "a device is auto, emulator, or cuda:N", field="--device", value=name, remedy="Choose one of them."
    )


def _parameter(text: str) -> tuple[str, Any]:
    """``("gain", 2.0)`` from ``"gain=2.0"``."""
    name, _, value = text.partition("=")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        raise GraphdslError(
            "it gives a param a number", field="--param", value=text, remedy="Write NAME=VALUE, as in gain=2.0."
        ) from None


def _lanes(text: str) -> Any:
    """What `Graph.instantiate` takes: a number, ``"auto"``, or None for none."""
    return int(text) if text.isdecimal() else None if text == "none" else text


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _sizes(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(map(int, _names(text)))
    except ValueError:
        raise GraphdslError(
            "it is a list of numbers", field="--nodes", value=text, remedy="Write them as in 1,100,1000."
        ) from None


# Output


def _print(*renderables: Any) -> None:
    """Print tables and trees; as plain text, not folded and not padded, where there is no terminal."""
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(*renderables)
        return
    text = io.StringIO()
    Console(file=text, width=10_000, color_system=None).print(*renderables)
    typer.echo("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def _require_no_errors(graph: gd.Graph) -> None:
    graph.check(compile=False).raise_for_errors()


def _print_operands(operands: dict[str, Any]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table("operand", "type", "first values", "min", "max", "mean", box=SIMPLE_HEAD)
    for name, value in operands.items():
        array = np.asarray(value.copy_to_host() if hasattr(value, "copy_to_host") else value)
        first = ", ".join(_number(item) for item in array.flat[:_FIRST]) + (", …" if array.size > _FIRST else "")
        table.add_row(*map(Text, (name, f"{array.dtype}{list(array.shape)}", first, *_statistics(array))))
    if operands:
        _print(table)


def _statistics(array: np.ndarray[Any, Any]) -> list[str]:
    """Least, greatest and mean element, where the dtype has them."""
    if not array.size or array.dtype.kind not in "biuf":
        return ["", "", ""]
    return [_number(array.min()), _number(array.max()), _number(array.mean(dtype="float64"))]


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _duration(seconds: float) -> str:
    """A time in the unit that suits it.

    Examples
    --------
    >>> _duration(0.00123), _duration(2.5)
    ('1.23 ms', '2.5 s')
    """
    factor, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "µs")
    return f"{seconds * factor:.3g} {unit}"


def _message(problem: GraphdslError) -> str:
    """What went wrong; of a host node also the line that raised."""
    place = problem.raised_at if isinstance(problem, CallbackError) else None
    return str(problem) if place is None else f"{problem} Raised at {place[0]}:{place[1]}."


def _fail(message: str) -> NoReturn:
    typer.echo(f"graphdsl: {message}", err=True)
    sys.exit(FAILED)
