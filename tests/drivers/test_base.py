"""Bulk calls made of single ones: the same effects, and a refusal that tells which node it is about."""

from __future__ import annotations

import numpy as np
import pytest

from graphdsl.drivers.base import OneByOne
from graphdsl.drivers.structs import EMPTY, HOST, KERNEL, MEMCPY, MEMSET
from graphdsl.errors import DriverError


class Driver(OneByOne):
    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __getattr__(self, name):
        def call(*args):
            if args[-1] == 99:
                raise DriverError(name, 1, "CUDA_ERROR_INVALID_VALUE")
            self.calls.append((name, *args))
            return 1000 + len(self.calls)

        return call


KINDS = np.array([KERNEL, MEMCPY, MEMSET, HOST, EMPTY], np.uint8)
PARAMS = np.array([1, 2, 3, 4, 5], np.uint64)


def test_each_node_is_added_by_the_call_of_its_kind():
    driver = Driver()
    assert driver.graph_add_nodes(7, KINDS, PARAMS).tolist() == [1001, 1002, 1003, 1004, 1005]
    assert driver.calls == [
        ("graph_add_kernel_node", 7, 1),
        ("graph_add_memcpy_node", 7, 2),
        ("graph_add_memset_node", 7, 3),
        ("graph_add_host_node", 7, 4),
        ("graph_add_empty_node", 7),
    ]


def test_each_node_is_changed_by_the_call_of_its_kind():
    driver = Driver()
    driver.graph_exec_set_params(7, KINDS[:4], np.array([11, 12, 13, 14], np.uint64), PARAMS[:4])
    assert [call[0] for call in driver.calls] == [
        f"graph_exec_{kind}_node_set_params" for kind in ("kernel", "memcpy", "memset", "host")
    ]
    assert driver.calls[1][1:] == (7, 12, 2)


def test_a_refusal_tells_the_node():
    driver = Driver()
    params = np.array([1, 99, 3], np.uint64)
    with pytest.raises(DriverError) as caught:
        driver.graph_add_nodes(7, KINDS[:3], params)
    assert caught.value.index == 1
    with pytest.raises(DriverError) as caught:
        driver.graph_exec_set_params(7, KINDS[:3], params, params)
    assert caught.value.index == 1


def test_a_launcher_launches():
    driver = Driver()
    launch = driver.graph_launcher(7, 8)
    assert (launch(), launch()) == (0, 0)
    assert driver.calls == [("graph_launch", 7, 8)] * 2
    assert driver.launch_failure(700).code_name == "CUDA_ERROR_ILLEGAL_ADDRESS"
