"""Every case here runs on the emulator always, and on the GPU where there is one."""

from __future__ import annotations

import pytest

import graphdsl as gd
from graphdsl.drivers.base import Driver


@pytest.fixture(params=["emulator", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Driver:
    if request.param == "emulator":
        return gd.emulator()
    from graphdsl.drivers.cuda import unavailable

    reason = unavailable()
    if reason is not None:
        pytest.skip(reason)
    return gd.cuda(0)
