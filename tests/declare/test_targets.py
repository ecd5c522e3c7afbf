from __future__ import annotations

import pytest

from graphdsl.declare.targets import Targets, targets_of
from graphdsl.errors import DeclarationError


def test_the_device_that_a_graph_is_instantiated_on_has_no_number():
    targets = Targets(1, {0: targets_of("sm_80").limits[0], 1: targets_of("sm_90").limits[0]})
    assert (targets.number(None), targets.number(0)) == (1, 0)
    assert targets.limits_of(None).compute_capability == (9, 0)
    assert targets.name(None) == "device 1 (sm_90)"
    assert targets.name(7) == "device 7"
    assert targets.title == "device 0 (sm_80), device 1 (sm_90)"


def test_one_target_stands_for_all_devices():
    assert list(targets_of("sm_80", [None, 2]).limits) == [0, 2]
    assert targets_of(["sm_80"], [None]).title == "sm_80"
    assert targets_of(None).title == "sm_90"


def test_a_device_that_is_not_there_has_the_limits_of_the_first():
    targets = targets_of(["sm_80"], [None, 3])
    assert targets.count == 1
    assert targets.limits_of(3) is targets.limits_of(None)


def test_unknown_targets_are_refused():
    with pytest.raises(DeclarationError, match="sm_11"):
        targets_of(["sm_90", "sm_11"], [1])
