"""What codes mean: one table for both drivers, held to what cuda.bindings says of the codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda.bindings import driver

from graphdsl.drivers.results import (
    INSTANTIATE_RESULTS,
    RESULTS,
    UPDATE_RESULTS,
    ExecUpdateError,
    InstantiateError,
    driver_error,
    is_fault,
)
from graphdsl.drivers.results_page import results_page
from graphdsl.errors import DriverError, MemoryFault

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "driver-errors.md"

MUST_BE_EXPLAINED = [
    "INVALID_VALUE",
    "OUT_OF_MEMORY",
    "INVALID_CONTEXT",
    "CONTEXT_IS_DESTROYED",
    "NO_BINARY_FOR_GPU",
    "UNSUPPORTED_PTX_VERSION",
    "ILLEGAL_ADDRESS",
    "LAUNCH_OUT_OF_RESOURCES",
    "LAUNCH_FAILED",
    "LAUNCH_TIMEOUT",
    "MISALIGNED_ADDRESS",
    "ILLEGAL_INSTRUCTION",
    "ASSERT",
    "COOPERATIVE_LAUNCH_TOO_LARGE",
    "NOT_PERMITTED",
    "NOT_SUPPORTED",
    "SYSTEM_NOT_READY",
    "GRAPH_EXEC_UPDATE_FAILURE",
]


def test_names_are_those_of_the_driver():
    assert {code: row.name for code, row in RESULTS.items()} == {
        int(each): each.name for each in driver.CUresult if int(each) in RESULTS
    }


@pytest.mark.parametrize("name", MUST_BE_EXPLAINED)
def test_what_users_meet_is_there(name):
    assert int(getattr(driver.CUresult, f"CUDA_ERROR_{name}")) in RESULTS


def test_all_that_can_go_wrong_with_a_capture_is_there():
    assert all(int(each) in RESULTS for each in driver.CUresult if "STREAM_CAPTURE" in each.name)


@pytest.mark.parametrize("code", [code for code in RESULTS if code])
def test_a_row_is_a_statement_and_an_instruction(code):
    name, meaning, remedy, _ = RESULTS[code]
    assert name.startswith("CUDA_ERROR_")
    assert not meaning.endswith(".")
    assert meaning[0].islower() or meaning.startswith(("CUDA_", "NVLink"))
    assert remedy.endswith(".")


def test_what_ends_a_context_is_a_fault():
    """NVIDIA says of these codes that only another process, or another context, helps."""
    said = [int(each) for each in driver.CUresult if "inconsistent state" in (each.__doc__ or "")]
    assert len(said) > 8
    assert all(RESULTS[code].is_fault for code in (*said, 710))


def test_each_reason_of_instantiate_and_of_whole_updates_is_there():
    results = {each.name for each in driver.CUgraphInstantiateResult} - {"CUDA_GRAPH_INSTANTIATE_SUCCESS"}
    assert set(INSTANTIATE_RESULTS) == results
    assert list(UPDATE_RESULTS) == [each.name for each in sorted(driver.CUgraphExecUpdateResult)]


def test_a_code_alone_is_explained():
    problem = driver_error("cuGraphLaunch", 700)
    assert (problem.call, problem.code, problem.code_name) == ("cuGraphLaunch", 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
    assert "memory that is not there" in problem.rule
    assert "indices" in problem.remedy
    assert is_fault(problem)


def test_what_is_known_of_a_failure_stands_in_place_of_the_general():
    problem = driver_error("cuMemFree", 1, "nothing begins at 0x10", of=MemoryFault)
    assert type(problem) is MemoryFault
    assert str(problem) == "cuMemFree returned CUDA_ERROR_INVALID_VALUE (1): nothing begins at 0x10."
    assert not is_fault(problem)


def test_a_code_that_nobody_knows_keeps_what_the_driver_says():
    problem = driver_error("cuInit", 12345, "it is new", name="CUDA_ERROR_NEW")
    assert str(problem) == "cuInit returned CUDA_ERROR_NEW (12345): it is new."
    assert driver_error("cuInit", 12345).code_name == "CUDA_ERROR_UNKNOWN"
    assert driver_error("cuInit", 1, name="CUDA_ERROR_NEW").code_name == "CUDA_ERROR_INVALID_VALUE"


@pytest.mark.parametrize("result", INSTANTIATE_RESULTS)
def test_a_refused_graph_is_explained(result):
    problem = InstantiateError(1, result, 0x10)
    assert isinstance(problem, DriverError)
    assert (problem.result, problem.node_handle, problem.code) == (result, 0x10, 1)
    assert f"{result}: " in str(problem)
    assert problem.remedy


def test_an_unexpected_reason_leaves_it_to_the_code():
    problem = InstantiateError(2, "CUDA_GRAPH_INSTANTIATE_ERROR", 0)
    assert "not enough memory" in str(problem)
    assert "Close execs" in problem.remedy


@pytest.mark.parametrize("result", list(UPDATE_RESULTS)[1:])
def test_a_refused_update_is_explained(result):
    problem = ExecUpdateError(910, result, 0x10, 0x20)
    assert (problem.result, problem.node_handle, problem.from_handle) == (result, 0x10, 0x20)
    assert UPDATE_RESULTS[result][0] in str(problem)
    assert "again" in problem.remedy


def test_the_page_is_current():
    command = (
        "python -c \"from graphdsl.drivers.results_page import results_page; print(results_page(), end='')\" "
        "> docs/reference/driver-errors.md"
    )
    assert PAGE.read_text() == results_page(), f"the page is old; make it with: {command}"
    assert all(f"| `{row.name}` | {code} |" in results_page() for code, row in RESULTS.items() if code)
