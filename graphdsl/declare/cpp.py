"""Reads the parameters of a kernel out of CUDA C++ source text, without a compiler.

It is a reader of declarations, not of C++: what it does not understand, such as a kernel that a macro makes, has no
parameters here, and the machine code tells their sizes later. What it does understand is held against the machine
code, too. This module must not compile anything.
"""

from __future__ import annotations

import re

from graphdsl.declare.c_types import Parameter, parse, split
from graphdsl.errors import DeclarationError


def identifier(name: str) -> str:
    """The bare name of a kernel.

    Examples
    --------
    >>> identifier("math::scale<float, 4>"), identifier("_ZN4math5scaleEPf"), identifier("scale")
    ('scale', 'scale', 'scale')
    """
    if name.startswith("_Z"):
        return _last_of_mangled(name) or name
    return name.partition("<")[0].rpartition("::")[2].strip()


def _last_of_mangled(symbol: str) -> str | None:
    """The last part of the name in a mangled symbol; each part stands behind its length."""
    position = 3 if symbol.startswith("_ZN") else 2
    last = None
    while length := re.match(r"\d+", symbol[position:]):
        start = position + len(length[0])
        position = start + int(length[0])
        last = symbol[start:position]
        if not symbol.startswith("_ZN"):
            break
    return last


def mangled_prefix(name: str) -> str:
    """How the symbol of a kernel without template arguments begins, unless it is ``extern "C"``.

    Examples
    --------
    >>> mangled_prefix("scale"), mangled_prefix("math::scale")
    ('_Z5scale', '_ZN4math5scaleE')
    """
    parts = [part.strip() for part in name.split("::") if part.strip()]
    joined = "".join(f"{len(part)}{part}" for part in parts)
    return f"_ZN{joined}E" if len(parts) > 1 else f"_Z{joined}"


def kernel_parameters(code: str, name: str) -> tuple[Parameter, ...] | None:
    """The parameters of the kernel ``name``, such as ``scale`` or ``math::scale<float>``.

    Returns
    -------
    tuple of Parameter, or None
        None if no declaration of it is found, or several differ.

    Examples
    --------
    >>> code = "template <typename T> __global__ void scale(const T* x, T gain) {}"
    >>> [(parameter.name, parameter.type.text) for parameter in kernel_parameters(code, "scale<float>")]
    [('x', 'const float*'), ('gain', 'float')]
    """
    text = _blanked(code)
    wanted, given = identifier(name), name.partition("<")[2].rpartition(">")[0]
    aliases, found = _aliases(text), []
    for start in (match.start() for match in re.finditer(r"\b__global__\b", text)):
        declared = _declared(text, start, wanted)
        if declared is not None:
            template, listed = declared
            try:
                found.append(parse(listed, aliases | _template_arguments(template, split(given))))
            except DeclarationError:
                return None
    # A kernel may be declared before it is defined, with other names for its parameters or none.
    alike = len({tuple(parameter.type for parameter in parameters) for parameters in found}) == 1
    return found[-1] if alike else None


def _blanked(code: str) -> str:
    """The code without comments and literals."""
    return re.sub(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", " ", code, flags=re.DOTALL)


_ATTRIBUTE = re.compile(r"\b__\w+__\s*\(")


def _declared(text: str, start: int, wanted: str) -> tuple[str, str] | None:
    """Template parameters and parameters of what ``__global__`` at ``start`` declares, if it has the name."""
    position = start
    while True:
        opening = text.find("(", position)
        attribute = _ATTRIBUTE.search(text, position)
        if opening < 0:
            return None
        if attribute is None or attribute.end() - 1 != opening:
            break
        position = _closing(text, opening)  # that of __launch_bounds__ or the like
    if not re.search(rf"\b{re.escape(wanted)}\s*$", text[start:opening]):
        return None
    return _template(text[:start]), text[opening + 1 : _closing(text, opening) - 1]


def _closing(text: str, opening: int) -> int:
    """Where the text behind a pair of parentheses begins."""
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == "(") - (text[position] == ")")
        if depth == 0:
            return position + 1
    return len(text)


def _template(before: str) -> str:
    """The template parameters of a declaration, by the text before it."""
    own = re.split(r"[;{}]", before)[-1]
    found = re.search(r"\btemplate\s*<(.*)>[^>]*$", own, re.DOTALL)
    return found[1] if found else ""


def _template_arguments(template: str, given: list[str]) -> dict[str, str]:
    """What the parameters of a template stand for; those not given have their defaults."""
    found = {}
    for index, parameter in enumerate(split(template)):
        declared, _, default = parameter.partition("=")
        names = re.findall(r"[A-Za-z_]\w*", declared)
        argument = given[index] if index < len(given) else default.strip()
        if names and argument:
            found[names[-1]] = argument
    return found


def _aliases(text: str) -> dict[str, str]:
    """What ``typedef``, ``using`` and plain macros make other names for."""
    found = dict(re.findall(r"\busing\s+(\w+)\s*=\s*([^;{]+);", text))
    found.update((name, type) for type, name in re.findall(r"\btypedef\s+([^;{}]+?[\s*&>])(\w+)\s*;", text))
    found.update(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)$", text, re.MULTILINE))
    return {name: " ".join(kind.split()) for name, kind in found.items() if kind.strip()}
