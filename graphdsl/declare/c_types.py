"""What a kernel written in C++ takes: its parameters, read from text such as ``const float* x, int n``.

Only what arguments are judged by is kept: pointer or value, of which elements or which dtype, and whether ``const``
says that what it points to is only read. A type that is not known here, such as a structure, is kept by its name: its
size is in the machine code. This module must not compile anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graphdsl.errors import DeclarationError


class Pointer(NamedTuple):
    """A parameter that is an address.

    Attributes
    ----------
    text : str
        The type as it is written.
    element : numpy.dtype or None
        What it points to; None for ``void`` and types that are not known.
    readonly : bool
        True if the type says that what it points to is only read.
    """

    text: str
    element: np.dtype[Any] | None = None
    readonly: bool = False


class Value(NamedTuple):
    """A parameter passed by value.

    Attributes
    ----------
    text : str
        The type as it is written.
    dtype : numpy.dtype or None
        The type; None for one that is not known.
    """

    text: str
    dtype: np.dtype[Any] | None = None


class Parameter(NamedTuple):
    """One parameter of a kernel.

    Attributes
    ----------
    name : str
        Its name; without one in the text, its number.
    type : Pointer or Value
        What it takes.
    divisor : int
        What the address or the number is a multiple of: the kernel counts on it.
    """

    name: str
    type: Pointer | Value
    divisor: int = 1


def parse(signature: Any, aliases: Mapping[str, str] | None = None) -> tuple[Parameter, ...]:
    """The parameters that a signature declares.

    Parameters
    ----------
    signature : str or sequence
        Types in C++, with names or without, as between the parentheses of a declaration; or a sequence of such types
        and of NumPy dtypes, which stand for values.
    aliases : mapping of str to str, optional
        What other names for types stand for.

    Raises
    ------
    DeclarationError
        If it is neither.

    Examples
    --------
    >>> x, n = parse("const float* __restrict__ x, int n")
    >>> x.name, x.type
    ('x', Pointer(text='const float*', element=dtype('float32'), readonly=True))
    >>> n.type.dtype
    dtype('int32')
    >>> [parameter.name for parameter in parse(["double*", np.int64])]
    ['0', '1']
    """
    parts = split(signature) if isinstance(signature, str) else signature
    if not isinstance(parts, Sequence) or isinstance(parts, (bytes, bytearray)):
        raise _refused(signature)
    if parts == ["void"]:
        return ()
    found = [_parameter(part, str(index), aliases or {}, signature) for index, part in enumerate(parts)]
    names = [parameter.name for parameter in found]
    if len(set(names)) < len(names):
        raise _refused(signature, "names in a signature are different")
    return tuple(found)


def split(text: str) -> list[str]:
    """The parts of a list between its outer commas.

    Examples
    --------
    >>> split("float* x, Pair<int, 3> p")
    ['float* x', 'Pair<int, 3> p']
    """
    parts, depth, part = [], 0, ""
    for char in text:
        depth += (char in "<([{") - (char in ">)]}")
        if char == "," and depth <= 0:
            parts.append(part)
            part = ""
        else:
            part += char
    return [part.strip() for part in [*parts, part]] if text.strip() else []


def _refused(signature: Any, rule: str | None = None) -> DeclarationError:
    return DeclarationError(
        rule or "the signature of a kernel that is not Numba's has its parameters in C++",
        field="signature",
        value=repr(signature),
        remedy='Write it like "const float* x, float* y, float gain, int n", with names or without, or as a list of '
        "such types and NumPy dtypes.",
    )


_IGNORED = re.compile(
    r"\b(?:__restrict__|__restrict|restrict|__grid_constant__|volatile|register|struct|class|enum|union|typename)\b"
    r"|\b(?:alignas|__align__)\s*\([^)]*\)|\[\[.*?\]\]"
)
_FUNCTION = re.compile(r"\(\s*\*+\s*(\w*)\s*\)")


def _parameter(part: Any, number: str, aliases: Mapping[str, str], signature: Any) -> Parameter:
    if not isinstance(part, str):
        return Parameter(number, Value(str(_dtype(part, signature)), _dtype(part, signature)))
    text = _IGNORED.sub(" ", part.partition("=")[0]).strip()
    if not text or text == "...":
        raise _refused(signature)
    function = _FUNCTION.search(text)
    if function:  # an address of code, which no operand of a graph is
        return Parameter(function[1] or number, Value(" ".join(text.split())))
    text, brackets, _ = text.partition("[")
    head, star, tail = text.rpartition("*")
    if not star:
        base, name = _name(text)
        base = _replaced(base, aliases)
        if not brackets and "*" not in base:
            return Parameter(name or number, Value(_spelled(" ".join(_words(base, "const"))), _known(base)))
        head, star, tail = (base, "*", "") if brackets else base.rpartition("*")
    else:
        head, name = _replaced(head, aliases), "".join(_words(tail, "const")[-1:])
        if brackets:
            head += "*"
    _, deeper, last = head.rpartition("*")
    readonly = "const" in (last if deeper else head).split()
    element = np.dtype(np.uint64) if deeper else _known(head)
    return Parameter(name or number, Pointer(f"{_spelled(head)}*", element, readonly), _alignment(element))


def _dtype(given: Any, signature: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] | None = None if given is None else np.dtype(given)  # NumPy reads None as float64
    except (TypeError, ValueError):
        found = None
    if found is None or found.hasobject or found.kind not in "biufcmMV":
        raise _refused(signature)
    return found


def _words(text: str, *without: str) -> list[str]:
    return [word for word in text.split() if word not in without]


_INTEGER_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long"})
_TYPE_WORDS = _INTEGER_WORDS | {"const", "float", "double", "bool", "void"}


def _name(text: str) -> tuple[str, str]:
    """Type and name of a parameter that is no pointer; without a name, an empty one."""
    found = re.fullmatch(r"(.*[\s>])([A-Za-z_]\w*)", text.strip(), re.DOTALL)
    if found is None or found[2] in _TYPE_WORDS or not _words(found[1], "const"):
        return text, ""
    return found[1], found[2]


def _replaced(text: str, aliases: Mapping[str, str]) -> str:
    """A type in which other names for types are replaced by what they stand for."""
    for _ in range(len(aliases)):  # one may stand for another
        replaced = re.sub(r"(?<![\w:])[A-Za-z_]\w*(?!\w|::)", lambda found: aliases.get(found[0], found[0]), text)
        if replaced == text:
            break
        text = replaced
    return text


def _spelled(base: str) -> str:
    """A type with single spaces."""
    return re.sub(r"\s*([<>,*:])\s*", r"\1", " ".join(base.split())).replace(",", ", ")


_NAMESPACES = re.compile(r"^(?:::)?(?:cuda::std::|cuda::|std::|thrust::)?")


def _known(base: str) -> np.dtype[Any] | None:
    """The dtype of a type that is known."""
    words = _words(base, "const")
    if words and set(words) <= _INTEGER_WORDS:
        return np.dtype(_integer(words))
    return _NAMED.get(_NAMESPACES.sub("", "".join(words)))


def _integer(words: Sequence[str]) -> str:
    sign = "u" if "unsigned" in words else "i"
    if "char" in words:
        return f"{sign}1"
    if "short" in words:
        return f"{sign}2"
    if words.count("long") > 1:
        return f"{sign}8"
    # As the host's own C++ has it: the device's agrees, so that structures can be shared.
    return f"{sign}{np.dtype('l').itemsize if 'long' in words else 4}"


def _vectors() -> dict[str, np.dtype[Any]]:
    """CUDA's vector types: ``float4`` has the fields x, y, z and w."""
    bases = {
        "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "longlong": "i8",
        "ulonglong": "u8", "float": "f4", "double": "f8",
    }  # fmt: skip
    return {
        f"{name}{count}": np.dtype([(axis, code) for axis in "xyzw"[:count]])
        for name, code in bases.items()
        for count in range(1, 5)
    }


_NAMED: dict[str, np.dtype[Any]] = {
    **_vectors(),
    **{f"{sign}int{bits}_t": np.dtype(f"{sign or 'i'}{bits // 8}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{
        name: np.dtype(code)
        for code, names in {
            "?": "bool",
            "i8": "ptrdiff_t intptr_t ssize_t",
            "u8": "size_t uintptr_t CUdeviceptr cudaTextureObject_t CUtexObject cudaSurfaceObject_t CUsurfObject "
            "cudaGraphConditionalHandle CUgraphConditionalHandle",
            "u4": "uint",
            "u2": "ushort",
            "u1": "uchar byte",
            "f2": "half __half _Float16",
            "f4": "float",
            "f8": "double",
            "c8": "complex<float> cuComplex cuFloatComplex",
            "c16": "complex<double> cuDoubleComplex",
        }.items()
        for name in names.split()
    },
}


def _alignment(element: np.dtype[Any] | None) -> int:
    """What the address of a vector is a multiple of: vectors of two and of four are read at once, up to 16 bytes."""
    return 1 if element is None or len(element.names or ()) not in (2, 4) else min(element.itemsize, 16)


def holds(element: np.dtype[Any] | None, dtype: np.dtype[Any]) -> bool:
    """True if memory with elements of ``dtype`` may be passed as a pointer to ``element``.

    Equal types may; so may bytes of any kind as bytes, numbers and complex numbers as vectors of them, and structures
    as a structure or vector of the same size.

    Examples
    --------
    >>> float4 = parse("float4*")[0].type.element
    >>> holds(float4, np.dtype(np.float32)), holds(float4, np.dtype(np.int32)), holds(None, np.dtype(np.int32))
    (True, False, True)
    """
    if element is None or element == dtype:
        return True
    if element.itemsize == dtype.itemsize:
        if element.names or dtype.names:
            return bool(element.names and dtype.names) or _part(element) == _part(dtype)
        return element.itemsize == 1
    return element.names is not None and _part(element) == dtype


def complex_of(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The complex dtype that lies as a vector of two does; None for anything else.

    Examples
    --------
    >>> complex_of(parse("float2")[0].type.dtype)
    dtype('complex64')
    """
    part = _part(dtype)
    pair = part is not None and part.kind == "f" and len(dtype.names or ()) == 2
    return np.dtype(f"c{dtype.itemsize}") if pair and dtype.itemsize in (8, 16) else None


def _part(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """The dtype that all numbers in a vector or complex number have; None if they differ."""
    if dtype.kind == "c":
        return np.dtype(f"f{dtype.itemsize // 2}")
    parts = {dtype[name] for name in dtype.names or ()}
    return parts.pop() if len(parts) == 1 else None
