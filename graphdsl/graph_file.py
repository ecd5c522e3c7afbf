"""Finds a graph in a Python file: what ``FILE.py[:name]`` means on the command line.

Whatever is wrong with the file becomes one `GraphdslError` that names the line of the file. This module must not do
anything with the graph.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from graphdsl.declare.store import unknown_name
from graphdsl.errors import GraphdslError
from graphdsl.graph import Graph

_MISSING = object()
_GUARD = 'Code that runs the graph belongs under if __name__ == "__main__".'
_NO_GPU = (
    "Numba asked for a GPU, which a signature at the decorator does at once. "
    "Decorate with a bare @cuda.jit, and give the types as signature= to g.kernel if they must be fixed."
)


def load_graph(spec: str) -> Graph:
    """The graph that ``FILE.py`` or ``FILE.py:name`` means.

    The file is imported as a module: its directory comes first on ``sys.path`` from then on, as when Python runs it,
    and what it prints goes to stderr.

    Parameters
    ----------
    spec : str
        Path of a Python file; after a colon, the name of a graph in it or of a function that makes one and needs no
        arguments. Without a name, the file's only graph.

    Raises
    ------
    GraphdslError
        If the file cannot be imported, or has no such graph, or several to choose from.
    """
    path, name = _split(spec)
    module = _import(path)
    return _named(module, name, path) if name else _only(module, path)


def _split(spec: str) -> tuple[Path, str]:
    file, colon, name = spec.rpartition(":")
    if not colon or Path(spec).is_file():
        file, name = spec, ""
    path = Path(file)
    if not path.is_file():
        raise GraphdslError(
            "it is a folder" if file and path.is_dir() else "there is no such file",
            field="FILE",
            value=file,
            remedy="Give the path of a Python file that declares a graph, as in graph.py or graph.py:name.",
        )
    return path.resolve(), name


def _import(path: Path) -> ModuleType:
    if path.suffix != ".py":
        raise GraphdslError(
            "a graph is declared in a Python file", field="FILE", value=path.name, remedy="Give a file ending in .py."
        )
    # The name is not the file's own: a file called numba.py must not take the place of the package.
    name = f"graphdsl_file_{path.stem}"
    loader = _Fresh(name, str(path))
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(path)))
    module.__file__ = str(path)
    sys.modules[name] = module
    sys.path.insert(0, str(path.parent))
    with _explained(path, "importing the file failed", _GUARD):
        loader.exec_module(module)
    return module


class _Fresh(SourceFileLoader):
    """Compiles a file as it is now: of one that was edited within a second Python may have the bytecode of before."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _named(module: ModuleType, name: str, path: Path) -> Graph:
    with _explained(path, f"looking up {name} failed"):
        found = getattr(module, name, _MISSING)
    if found is _MISSING:
        raise unknown_name(name, _candidates(module), f"graph in {path.name}", GraphdslError)
    if callable(found):
        _require_no_arguments(found, name)
        with _explained(path, f"calling {name}() failed"):
            found = found()
    if not isinstance(found, Graph):
        raise GraphdslError(
            "it must be a Graph, or a function that returns one",
            field=name,
            value=f"an object of type {type(found).__name__}",
            remedy=f"Name one of: {', '.join(_candidates(module)) or 'none is there'}.",
        )
    return found


def _only(module: ModuleType, path: Path) -> Graph:
    found = _graphs(module)
    first: dict[int, str] = {}
    for name, graph in found.items():
        first.setdefault(id(graph), name)
    names = list(first.values())
    if len(names) == 1:
        return found[names[0]]
    example = next(iter(names or _functions(module)), "name")
    raise GraphdslError(
        f"the file declares {len(names)} graphs: {', '.join(names)}" if names else "the file declares no graph",
        field="FILE",
        value=path.name,
        remedy=f"Name the graph, or a function that returns one, as in {path.name}:{example}.",
    )


def _graphs(module: ModuleType) -> dict[str, Graph]:
    return {name: value for name, value in vars(module).items() if isinstance(value, Graph)}


def _functions(module: ModuleType) -> list[str]:
    """Functions of the file itself that could be asked for a graph."""
    return [
        name
        for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and not _required_parameters(value)
    ]


def _candidates(module: ModuleType) -> list[str]:
    return [*_graphs(module), *_functions(module)]


def _require_no_arguments(function: Callable[..., Any], name: str) -> None:
    required = _required_parameters(function)
    if required:
        raise GraphdslError(
            "a function that makes a graph is called without arguments",
            field=name,
            value=f"{name}({', '.join(required)})",
            remedy="Give its parameters default values, or name a graph.",
        )


def _required_parameters(function: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some callables of C have no signature; the call will tell
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in parameters if each.default is each.empty and each.kind not in variadic]


@contextmanager
def _explained(path: Path, what: str, remedy: str | None = None) -> Iterator[None]:
    """Turns whatever the user's code raises into one error that names the line; ``remedy`` is for its own failures."""
    try:
        with redirect_stdout(sys.stderr):  # stdout is for the command's own output
            yield
    except (Exception, SystemExit) as problem:
        location = _location(problem, path)
        raise GraphdslError(
            f"{what}: {_summary(problem)}",
            field="FILE",
            value=path.name if location is None else f"{location[0]}:{location[1]}",
            remedy=_remedy(problem, remedy),
        ) from problem


def _location(problem: BaseException, path: Path) -> tuple[str, int] | None:
    """File and line that a reader looks at first: of a syntax error, else of the last frame in the file."""
    if isinstance(problem, SyntaxError) and problem.filename:
        return Path(problem.filename).name, problem.lineno or 1
    frames = traceback.extract_tb(problem.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    return (path.name, lines[-1] or 1) if lines else None


def _summary(problem: BaseException) -> str:
    if isinstance(problem, GraphdslError):
        return str(problem)
    text = problem.msg if isinstance(problem, SyntaxError) else str(problem)
    return f"{type(problem).__name__}: {' '.join(text.split())}".rstrip(" :.")


def _remedy(problem: BaseException, otherwise: str | None) -> str | None:
    if any(base.__name__ == "CudaSupportError" for base in type(problem).__mro__):
        return _NO_GPU
    if isinstance(problem, ModuleNotFoundError):
        return f"Install {problem.name}, or run graphdsl from the environment that has it."
    if isinstance(problem, (SyntaxError, GraphdslError)):
        return None
    return otherwise
