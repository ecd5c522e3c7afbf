"""What is said where work could not be recorded, whatever way a library reports it in."""

from __future__ import annotations

import gc
import weakref

import pytest

import graphdsl as gd
from graphdsl.drivers.results import RESULTS
from graphdsl.errors import DriverError
from graphdsl.run.capture_failures import MEANINGS, capture_failure


def work(stream):
    pass


@pytest.fixture
def node():
    return gd.Graph().capture(work, name="gemm")


class WithStatus(Exception):
    """As CuPy's, whose ``status`` is the code."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


@pytest.mark.parametrize("code", list(MEANINGS))
def test_each_code_is_explained(node, code):
    problem = DriverError("cuStreamEndCapture", code, RESULTS[code].name)
    failure = capture_failure(node, problem, None)
    assert (failure.node, failure.field, failure.value) == ("gemm", "function", "work")
    assert (failure.code, failure.code_name) == (code, RESULTS[code].name)
    assert failure.remedy == MEANINGS[code].remedy
    assert failure.location == node.location


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (WithStatus(905), 905),
        (RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing"), 900),
        (RuntimeError("CUDA error: operation not permitted when stream is capturing"), 900),
        (RuntimeError("CUDA_ERROR_STREAM_CAPTURE_UNJOINED"), 904),
        (RuntimeError("cudaErrorCapturedEvent"), 907),
        (DriverError("cuMemAlloc", 900, RESULTS[900].name), 900),
    ],
)
def test_codes_are_found_in_exceptions_of_libraries(node, raised, code):
    invalidated = DriverError("cuStreamEndCapture", 901, RESULTS[901].name)
    failure = capture_failure(node, invalidated, raised)
    assert failure.code == code
    assert f"the function raised {type(raised).__name__}" in str(failure)


def test_the_cause_of_an_exception_is_looked_at(node):
    raised = RuntimeError("the library failed")
    raised.__cause__ = WithStatus(906)
    assert capture_failure(node, None, raised).code == 906


@pytest.mark.parametrize("raised", [ValueError("no"), ValueError(), WithStatus(401), WithStatus(7)])
def test_other_exceptions_are_told_as_they_are(node, raised):
    failure = capture_failure(node, None, raised)
    assert (failure.code, failure.code_name, failure.remedy) == (0, "", None)
    assert f"the function raised {type(raised).__name__}" in str(failure)


def test_an_exception_of_a_recording_that_failed_says_both(node):
    failure = capture_failure(node, DriverError("cuStreamEndCapture", 901, RESULTS[901].name), ValueError("no"))
    assert failure.code == 901
    assert "the function raised ValueError: no" in str(failure)


def test_where_nothing_was_recorded_any_more_the_function_has_ended_it(node):
    failure = capture_failure(node, DriverError("cuStreamEndCapture", 1, RESULTS[1].name), None)
    assert failure.code == 401
    assert "ended the recording" in failure.rule


def test_a_code_that_nobody_explains_is_told_as_the_driver_does(node):
    failure = capture_failure(node, DriverError("cuStreamBeginCapture", 700, RESULTS[700].name), None)
    assert (failure.code, failure.code_name) == (700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    assert "cuStreamBeginCapture returned" in str(failure)


def test_the_error_of_a_capture_goes_with_whoever_has_it():
    device, g = gd.emulator(), gd.Graph()
    g.capture(work, emulate=lambda: None, name="gemm")
    device.fail_next("cuStreamEndCapture", 900)
    gc.disable()
    try:
        try:
            g.instantiate(device)
        except gd.GraphdslError as problem:
            known, cause = weakref.ref(problem), weakref.ref(problem.__cause__)
        assert (known(), cause()) == (None, None), "they would keep what their callers have until the next collection"
    finally:
        gc.enable()
