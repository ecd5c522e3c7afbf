"""What the functions of ``numba.cuda.libdevice`` mean in the emulator, as far as they have a meaning here.

They round as NumPy does, to nearest; those that a GPU approximates are exact here. This module must not know kernels.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numba.cuda import libdevice

Function = Callable[..., Any]

_MASK = 0xFFFF_FFFF


def _each(function: Callable[[float], float]) -> Function:
    """A function of `math`, with NaN and infinities as a device gives them."""

    def of_number(x: Any) -> float:
        try:
            return function(float(x))
        except OverflowError:
            return math.inf
        except ValueError:
            return math.nan

    return of_number


def _fma(x: Any, y: Any, z: Any) -> Any:
    """Rounded once."""
    exact = [float(each) for each in (x, y, z)]
    if not all(map(math.isfinite, exact)):
        return np.float64(x) * np.float64(y) + np.float64(z)
    a, b, c = map(Fraction, exact)
    return float(a * b + c)


def _rounded_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + type(x)(0.5)), x)


# Functions that libdevice has for float64 under this name, and for float32 with an f behind it.
_OF_FLOATS: dict[str, Function] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign,
    "cos": np.cos, "cosh": np.cosh, "cospi": lambda x: np.cos(np.pi * np.float64(x)), "erf": _each(math.erf),
    "erfc": _each(math.erfc), "exp": np.exp, "exp10": lambda x: np.power(type(x)(10), x), "exp2": np.exp2,
    "expm1": np.expm1, "fabs": np.fabs, "fdim": lambda x, y: np.fmax(x - y, 0), "floor": np.floor,
    "fma": _fma, "fmax": np.fmax, "fmin": np.fmin, "fmod": np.fmod,
    "hypot": np.hypot, "ldexp": np.ldexp, "lgamma": _each(math.lgamma), "log": np.log, "log10": np.log10,
    "log1p": np.log1p, "log2": np.log2, "nearbyint": np.rint, "nextafter": np.nextafter, "pow": np.power,
    "powi": np.power, "rcbrt": lambda x: 1 / np.cbrt(x), "remainder": lambda x, y: x - y * np.rint(x / y),
    "rint": np.rint, "round": _rounded_away, "rsqrt": lambda x: 1 / np.sqrt(np.float64(x)), "scalbn": np.ldexp,
    "sin": np.sin, "sinh": np.sinh, "sinpi": lambda x: np.sin(np.pi * np.float64(x)), "sqrt": np.sqrt,
    "tan": np.tan, "tanh": np.tanh, "tgamma": _each(math.gamma), "trunc": np.trunc,
}  # fmt: skip

_FAST = {
    "fast_cosf": "cos", "fast_exp10f": "exp10", "fast_expf": "exp", "fast_log10f": "log10", "fast_log2f": "log2",
    "fast_logf": "log", "fast_powf": "pow", "fast_sinf": "sin", "fast_tanf": "tan",
}  # fmt: skip

# Behind the letter of their type, d or f, and before how they round.
_ROUNDED: dict[str, Function] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "rcp": lambda x: 1 / x, "sqrt": np.sqrt,
}  # fmt: skip

_TOWARDS: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_INTEGERS: dict[str, tuple[int, int]] = {
    "int": (-(2**31), 2**31 - 1), "uint": (0, 2**32 - 1), "ll": (-(2**63), 2**63 - 1), "ull": (0, 2**64 - 1),
}  # fmt: skip


def _saturated(towards: Function, least: int, most: int) -> Function:
    """A float as an integer, the nearest there is; NaN is 0."""
    return lambda x: 0 if np.isnan(x) else min(max(int(towards(np.clip(np.float64(x), -1e30, 1e30))), least), most)


def _signed(word: int) -> Any:
    word &= _MASK
    return np.int64(word - 2**32 if word >> 31 else word)


def _byte_perm(x: Any, y: Any, selector: Any) -> Any:
    given = ((int(y) & _MASK) << 32 | int(x) & _MASK).to_bytes(8, "little")
    return _signed(int.from_bytes((given[int(selector) >> 4 * place & 7] for place in range(4)), "little"))


_OTHERS: dict[str, Function] = {
    "abs": abs, "llabs": abs, "byte_perm": _byte_perm,
    **dict.fromkeys(("max", "llmax", "umax", "ullmax"), max),
    **dict.fromkeys(("min", "llmin", "umin", "ullmin"), min),
    "mulhi": lambda x, y: np.int64(int(x) * int(y) >> 32),
    "umulhi": lambda x, y: np.int64((int(x) & _MASK) * (int(y) & _MASK) >> 32),
    "fast_fdividef": lambda x, y: np.float32(np.float32(x) / np.float32(y)),
    "fast_sincosf": lambda x: (np.sin(np.float32(x)), np.cos(np.float32(x))),
    "sincosf": lambda x: (np.sin(np.float32(x)), np.cos(np.float32(x))),
    "sincos": lambda x: (np.sin(np.float64(x)), np.cos(np.float64(x))),
    "modff": lambda x: np.modf(np.float32(x)), "modf": lambda x: np.modf(np.float64(x)),
    "saturatef": lambda x: np.float32(np.fmin(np.fmax(np.float32(x), 0), 1)),
    "frsqrt_rn": lambda x: np.float32(1 / np.sqrt(np.float64(x))),
    "fma_rn": lambda x, y, z: np.float64(_fma(x, y, z)),
    "fmaf_rn": lambda x, y, z: np.float32(_fma(np.float32(x), np.float32(y), np.float32(z))),
    "float_as_int": lambda x: np.int64(np.float32(x).view(np.int32)),
    "int_as_float": lambda x: np.uint32(int(x) & _MASK).view(np.float32),
    "double_as_longlong": lambda x: np.float64(x).view(np.int64),
    "longlong_as_double": lambda x: np.int64(x).view(np.float64),
    **dict.fromkeys(("isnanf", "isnand"), lambda x: int(np.isnan(x))),
    **dict.fromkeys(("isinff", "isinfd"), lambda x: int(np.isinf(x))),
    **dict.fromkeys(("finitef", "isfinited"), lambda x: int(np.isfinite(x))),
    **dict.fromkeys(("signbitf", "signbitd"), lambda x: int(np.signbit(x))),
    "half2float": lambda x: np.uint16(int(x) & 0xFFFF).view(np.float16).astype(np.float32),
    "float2half_rn": lambda x: np.int64(np.float32(x).astype(np.float16).view(np.uint16)),
}  # fmt: skip


def _as(kind: type[np.floating[Any]], function: Function) -> Function:
    """A function of floats that a device computes in one type; integers among them stay."""

    def call(*args: Any) -> Any:
        return kind(function(*(arg if isinstance(arg, (int, np.integer)) else kind(arg) for arg in args)))

    return call


def _table() -> dict[str, Function]:
    made = dict(_OTHERS)
    for name, function in _OF_FLOATS.items():
        made[name] = _as(np.float64, function)
        made[f"{name}f"] = _as(np.float32, function)
    made |= {name: _as(np.float32, _OF_FLOATS[exact]) for name, exact in _FAST.items()}
    for letter, kind in (("f", np.float32), ("d", np.float64)):
        made |= {f"{letter}{name}_rn": _as(kind, function) for name, function in _ROUNDED.items()}
    for source, kind in (("float", np.float32), ("double", np.float64)):
        for target, bounds in _INTEGERS.items():
            made |= {f"{source}2{target}_{mode}": _saturated(to, *bounds) for mode, to in _TOWARDS.items()}
            made[f"{target}2{source}_rn"] = kind
    return {name: function for name, function in made.items() if hasattr(libdevice, name)}


_FUNCTIONS = _table()


def meaning(name: str) -> Function:
    """What a function of libdevice does; one that raises if it has no meaning here."""
    found = _FUNCTIONS.get(name)
    return _refusing(name) if found is None else found


def _refusing(name: str) -> Function:
    def refuse(*args: Any) -> Any:
        raise NotImplementedError(
            f"numba.cuda.libdevice.{name} has no meaning in the emulator: use one of math, or another of libdevice"
        )

    return refuse


class Libdevice:
    """Stands for the module ``numba.cuda.libdevice``."""

    def __getattr__(self, name: str) -> Function:
        return meaning(name)
