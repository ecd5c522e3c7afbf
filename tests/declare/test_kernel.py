"""What counts as a kernel, and what is read from its decorator."""

from __future__ import annotations

import gc
import weakref

import numba
import pytest
from numba import cuda

from graphdsl.declare.kernel import Kernel, as_kernel
from graphdsl.errors import DeclarationError


def plain(x, y, n=4):
    pass


@cuda.jit
def lazy(x, y):
    x[0] = y[0]


@cuda.jit(fastmath=True, debug=True, opt=False, max_registers=32, launch_bounds=(128, 2))
def tuned(x):
    x[0] = 1


@cuda.jit(device=True)
def helper(x):
    return x


@numba.njit
def on_the_host(x):
    return x


def starred(x, *rest):
    pass


def keyword_only(x, *, n):
    pass


class Callable:
    def __call__(self, x):
        pass


def test_a_plain_function():
    kernel = as_kernel(plain)
    assert (kernel.function, kernel.name, kernel.parameters) == (plain, "plain", ("x", "y", "n"))
    assert (kernel.signatures, kernel.options) == ((), {})
    assert str(kernel) == "plain(x, y, n)"


def test_a_decorated_function():
    kernel = as_kernel(lazy)
    assert (kernel.function, kernel.name, kernel.parameters) == (lazy.py_func, "lazy", ("x", "y"))
    assert kernel.signatures == ()
    assert not kernel.options.keys() & {"fastmath", "debug", "link", "launch_bounds", "max_registers"}


def test_options_that_change_the_code_are_kept():
    wanted = {"fastmath": True, "debug": True, "opt": False, "max_registers": 32, "launch_bounds": (128, 2)}
    assert wanted.items() <= as_kernel(tuned).options.items()


def test_one_function_has_one_kernel():
    assert as_kernel(plain) is as_kernel(plain)
    assert as_kernel(lazy) is as_kernel(lazy)
    assert as_kernel(lazy) is not as_kernel(plain)
    assert as_kernel(as_kernel(lazy)) is as_kernel(lazy)


def test_a_declared_signature_is_kept(monkeypatch):
    """Numba compiles such a function at once, which needs a GPU; what it leaves behind is set by hand here."""
    declared = cuda.jit(plain)
    monkeypatch.setattr(declared, "_can_compile", False)
    signature = (numba.float32[:], numba.float32[:], numba.int32)
    monkeypatch.setattr(declared, "overloads", {signature: None})
    assert as_kernel(declared).signatures == (signature,)


@pytest.mark.parametrize(
    "source",
    [None, 3, "kernel", [plain], len, print, Callable(), Callable, on_the_host, pytest],
    ids=lambda source: type(source).__name__,
)
def test_what_is_no_kernel(source):
    with pytest.raises(DeclarationError, match=r"decorated with numba\.cuda\.jit") as caught:
        as_kernel(source, node="run")
    assert (caught.value.node, caught.value.field) == ("run", "kernel")


def test_a_device_function_cannot_be_launched():
    with pytest.raises(DeclarationError, match="device function") as caught:
        as_kernel(helper, node="run")
    assert (caught.value.node, caught.value.value) == ("run", "helper")


@pytest.mark.parametrize(("source", "said"), [(starred, "*rest"), (keyword_only, "n")])
def test_parameters_are_positional(source, said):
    with pytest.raises(DeclarationError, match="positional") as caught:
        as_kernel(source)
    assert said in caught.value.value


def test_a_kernel_needs_no_decorator_to_be_declared_twice():
    assert as_kernel(Kernel(plain)).function is plain


def test_a_dispatcher_that_is_gone_leaves_no_kernel_behind():
    dispatcher = cuda.jit(lambda x: None)
    kernel = weakref.ref(as_kernel(dispatcher))
    del dispatcher
    gc.collect()
    assert kernel() is None
