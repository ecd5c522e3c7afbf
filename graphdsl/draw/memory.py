"""A picture of the memory of a graph: each arena over the steps of the canonical order, as SVG.

A planned array is a box: from its first use to its last from left to right, and its bytes from the bottom up. Arrays
that share nothing stand above, a line each. This module must not know how memory is planned.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any, Protocol

from graphdsl.draw.labels import bytes_text, count_text
from graphdsl.errors import DeclarationError


class Place(Protocol):
    """Where an array lies (`graphdsl.plan.Place`)."""

    @property
    def name(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def planned(self) -> bool: ...
    @property
    def why(self) -> str: ...


class Memory(Protocol):
    """The arena of a device (`graphdsl.plan.MemoryPlan`)."""

    @property
    def places(self) -> Mapping[str, Any]: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def peak_nbytes(self) -> int: ...
    @property
    def sum_nbytes(self) -> int: ...
    @property
    def least_nbytes(self) -> int: ...


class Planned(Protocol):
    """A graph with its memory (`graphdsl.plan.Plan`)."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> Mapping[int | None, Any]: ...
    @property
    def steps(self) -> tuple[str, ...]: ...
    @property
    def times(self) -> Mapping[str, tuple[int, ...]]: ...


_FONT = "Helvetica,Arial,sans-serif"
_INK, _FAINT, _GRID = "#1f2933", "#5c6b7a", "#d9dfe5"
_FILLS = ("#e3eefb", "#fdf0dc", "#f1e9f8", "#e4f3e8", "#fbe9ee", "#e0f2f1", "#fdf6d8", "#eef1f4")
_EDGES = ("#3a6ea5", "#b9771f", "#7d5aa6", "#3d8455", "#a8456b", "#2f7d76", "#9a7d0a", "#5c6b7a")

_LEFT, _RIGHT, _WIDTH = 84, 20, 900
_HEIGHT = 300  # of the planned bytes of an arena
_LINE = 18  # of an array that shares nothing
_MOST_LINES = 12
_MOST_NAMES = 48  # more steps than that are numbered
_LETTER = 6.2  # the width of a letter, more or less


def to_svg(plan: Planned) -> str:
    """The memory of a plan as the text of an SVG file.

    Examples
    --------
    >>> from graphdsl.declare.definition import Definition
    >>> from graphdsl.plan import plan
    >>> graph = Definition("demo")
    >>> x = graph.device_array("x", 1024, "f4", lifetime="launch")
    >>> _ = graph.memset(x, 0)
    >>> "<title>x: 4 KiB from 0 on" in to_svg(plan(graph))
    True
    """
    parts: list[str] = []
    top = 34
    for device, memory in sorted(plan.memory.items(), key=lambda item: -1 if item[0] is None else item[0]):
        arena = _Arena(plan, memory, top)
        parts += arena.parts("" if device is None else f"device {device}: ")
        top = arena.bottom
    if not plan.memory:
        parts.append(_text(_LEFT, top + 14, "no device arrays of its own", fill=_FAINT))
        top += 30
    width, height = _LEFT + _WIDTH + _RIGHT, top + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="{_FONT}" font-size="11">',
            f'<rect width="{width}" height="{height}" fill="white"/>',
            _text(12, 22, f"memory of {plan.name}", size=15, weight="bold"),
            *parts,
            "</svg>\n",
        ]
    )


def write(plan: Planned, path: str | Path) -> Path:
    """Write the picture to a file; gives the path.

    Raises
    ------
    DeclarationError
        If it is no path of an SVG file, or the file cannot be written.
    """
    if not isinstance(path, (str, os.PathLike)) or Path(path).suffix.lower() != ".svg":
        raise DeclarationError(
            "the picture of memory is an SVG file",
            field="path",
            value=repr(path if isinstance(path, str) else str(path)),
            remedy="Pass a path such as 'memory.svg'.",
        )
    path = Path(path)
    try:
        path.write_text(to_svg(plan), encoding="utf-8")
    except OSError as problem:
        raise DeclarationError(
            f"the picture could not be written: {problem.strerror}",
            field="path",
            value=repr(str(path)),
            remedy="Choose a file in a folder that exists and that you may write to.",
        ) from problem
    return path


def summary(memory: Memory) -> str:
    """What an arena takes, in a line."""
    text = bytes_text(memory.nbytes)
    if not memory.peak_nbytes:
        return f"{text}, and nothing is shared"
    saved = f"planned {bytes_text(memory.peak_nbytes)} of {bytes_text(memory.sum_nbytes)}"
    return f"{text}: {saved}; no plan needs less than {bytes_text(memory.least_nbytes)}"


class _Arena:
    """One arena, drawn from ``top`` on; ``bottom`` is where it ends."""

    def __init__(self, plan: Planned, memory: Memory, top: int) -> None:
        self._plan = plan
        self._memory = memory
        self._alone = [place for place in memory.places.values() if not place.planned]
        self._planned = [place for place in memory.places.values() if place.planned]
        self._top = top
        self._lines = top + 26
        shown = min(len(self._alone), _MOST_LINES) + (len(self._alone) > _MOST_LINES)
        self._above = self._lines + shown * _LINE + (8 if shown else 0)
        self._floor = self._above + (_HEIGHT if self._planned else 0)
        named = len(plan.steps) <= _MOST_NAMES
        longest = max((len(name) for name in plan.steps), default=0)
        below = (min(longest, 28) * _LETTER * 0.71 + 24 if named else 36) if self._planned else 0
        self.bottom = int(self._floor + below + 14)

    def parts(self, title: str) -> Iterator[str]:
        yield _text(_LEFT, self._top + 14, f"{title}{summary(self._memory)}")
        yield from self._alone_parts()
        if self._planned:
            yield from self._axes()
            for number, place in enumerate(self._planned):
                yield from self._box(place, number % len(_FILLS))
            yield from self._bound()

    def _alone_parts(self) -> Iterator[str]:
        for number, place in enumerate(self._alone[:_MOST_LINES]):
            y = self._lines + number * _LINE
            told = f"{place.name}: {bytes_text(place.nbytes)} from {place.offset:,} on, by itself; {place.why}"
            yield f'<g><title>{escape(told)}</title><rect x="{_LEFT}" y="{y}" width="{_WIDTH}" height="{_LINE - 3}" '
            yield f'fill="#f5f7f9" stroke="{_GRID}"/>'
            yield _text(_LEFT + 6, y + 11, _cut(f"{place.name}  {bytes_text(place.nbytes)}  {place.why}", _WIDTH))
            yield "</g>"
        if len(self._alone) > _MOST_LINES:
            more = f"and {count_text(len(self._alone) - _MOST_LINES, 'array')} more that share nothing"
            yield _text(_LEFT + 6, self._lines + _MOST_LINES * _LINE + 11, more, fill=_FAINT)

    def _x(self, step: float) -> float:
        return _LEFT + _WIDTH * step / max(len(self._plan.steps), 1)

    def _y(self, nbytes: int) -> float:
        return self._floor - _HEIGHT * nbytes / self._memory.peak_nbytes

    def _axes(self) -> Iterator[str]:
        for quarter in range(5):
            nbytes = self._memory.peak_nbytes * quarter // 4
            y = self._y(nbytes)
            yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_GRID}"/>'
            yield _text(_LEFT - 6, y + 4, _rounded(nbytes), fill=_FAINT, anchor="end")
        steps = self._plan.steps
        if len(steps) <= _MOST_NAMES:
            for step, name in enumerate(steps):
                x, y = self._x(step + 0.5), self._floor + 12
                turned = f' transform="rotate(-45 {x:.1f} {y:.1f})"'
                yield _text(x, y, _cut(name, 28 * _LETTER), fill=_FAINT, anchor="end", more=turned)
        else:
            for tenth in range(0, 11):
                step = (len(steps) - 1) * tenth // 10
                yield _text(self._x(step + 0.5), self._floor + 14, f"{step}", fill=_FAINT, anchor="middle")
            middle = _LEFT + _WIDTH / 2
            yield _text(middle, self._floor + 29, "step in canonical order", fill=_FAINT, anchor="middle")

    def _box(self, place: Place, colour: int) -> Iterator[str]:
        times = self._plan.times[place.name]
        if not times:
            return
        x, y = self._x(times[0]), self._y(place.offset + place.nbytes)
        width, height = self._x(times[-1] + 1) - x, self._y(place.offset) - y
        steps = self._plan.steps
        used = f"{steps[times[0]]} to {steps[times[-1]]}"
        told = f"{place.name}: {bytes_text(place.nbytes)} from {place.offset:,} on, {used}; {place.why}"
        yield f"<g><title>{escape(told)}</title>"
        yield (
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2" fill="{_FILLS[colour]}" '
            f'stroke="{_EDGES[colour]}"/>'
        )
        for time in times if len(steps) <= _MOST_NAMES else ():
            centre = f'cx="{self._x(time + 0.5):.1f}" cy="{y + height - 4:.1f}"'
            yield f'<circle {centre} r="1.6" fill="{_EDGES[colour]}"/>'
        room = int(width / _LETTER) - 1
        if height >= 12 and room >= min(len(place.name), 3):
            label = place.name if len(place.name) <= room else f"{place.name[: room - 1]}…"
            middle = x + width / 2, y + height / 2 + (3 if height < 20 else 2)
            yield _text(*middle, label, anchor="middle")
        yield "</g>"

    def _bound(self) -> Iterator[str]:
        least = self._memory.least_nbytes
        if 0 < least < self._memory.peak_nbytes:
            y = self._y(least)
            yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{_INK}" '
            yield f'stroke-dasharray="5 4"><title>no plan needs less than {bytes_text(least)}</title></line>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    fill: str = _INK,
    size: int = 11,
    weight: str = "normal",
    anchor: str = "start",
    more: str = "",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}"{more}>{escape(text)}</text>'
    )


def _cut(text: str, width: float) -> str:
    most = int(width / _LETTER)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _rounded(nbytes: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if nbytes >= 1 << shift:
            return f"{nbytes / (1 << shift):.3g} {unit}"
    return f"{nbytes} B"
