"""Access policies, domains, priorities: a wrong graph gives code, node and field, and the nearest right one none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import graphdsl as gd
from graphdsl.declare.limits import limits_of
from tests.check.conftest import scale
from tests.check.findings import cheap, judged, only

SM_90 = limits_of("sm_90")


def judge(demo, target="sm_90", **attributes):
    args = (demo.x, demo.y, demo.gain, demo.n)
    demo.g.kernel(scale, grid=4, block=256, args=args, name="run", **attributes)
    return cheap(demo.g, target=target)


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({}, []),
        ({"hit_ratio": 0}, []),
        ({"hit_ratio": 1, "miss": "normal"}, []),
        ({"hit_ratio": 1.001}, ["access_policy.hit_ratio"]),
        ({"hit_ratio": -0.1}, ["access_policy.hit_ratio"]),
        ({"hit_ratio": float("nan")}, ["access_policy.hit_ratio"]),
        ({"miss": "persisting"}, ["access_policy.miss"]),
        ({"hit_ratio": 2, "miss": "persisting"}, ["access_policy.hit_ratio", "access_policy.miss"]),
    ],
)
def test_policies(demo, options, fields):
    report = judge(demo, access_policy=gd.AccessPolicy(demo.x, **options))
    assert judged(report) == [("GD222", "run", field) for field in fields]


def test_the_window_has_bytes_and_not_too_many(demo):
    assert judged(judge(demo, access_policy=gd.AccessPolicy(demo.x[:0]))) == [("GD222", "run", "access_policy")]
    most = dataclasses.replace(SM_90, window_bytes=4096)
    assert judged(cheap(demo.g, target=most)) == [("GD222", "run", "access_policy")]


@pytest.mark.parametrize(("window_bytes", "fits"), [(4096, True), (4095, False), (0, False)])
def test_the_window_of_the_device(demo, window_bytes, fits):
    limits = dataclasses.replace(SM_90, window_bytes=window_bytes)
    report = judge(demo, limits, access_policy=gd.AccessPolicy(demo.x))
    assert judged(report) == ([] if fits else [("GD222", "run", "access_policy")])


def test_devices_without_policies(demo):
    assert "has no access policies" in only(judge(demo, "sm_75", access_policy=gd.AccessPolicy(demo.x))).rule


def test_the_window_is_held_to_the_rules_about_operands(demo):
    other = gd.Graph("other").device_array("z", 8, np.float32)
    assert judged(judge(demo, access_policy=gd.AccessPolicy(other))) == [("GD105", "run", "access_policy")]


def test_the_window_lies_where_the_device_reaches(demo):
    report = judge(demo, access_policy=gd.AccessPolicy(demo.staged))
    assert judged(report) == [("GD203", "run", "access_policy")]


@pytest.mark.parametrize(
    ("domains", "target", "fits"),
    [((0, 1), "sm_90", True), ((3, 3), "sm_90", True), ((0, 4), "sm_90", False), ((-1, 0), "sm_90", False),
     ((0, 1), "sm_80", False), ((0, 0), "sm_80", True)],
)  # fmt: skip
def test_domains(demo, domains, target, fits):
    given = dict(zip(("default", "remote"), domains))
    report = judge(demo, target, sync_domain="remote", sync_domain_map=given)
    assert judged(report) == ([] if fits else [("GD223", "run", "sync_domain_map")])


@pytest.mark.parametrize(("priority", "fits"), [(0, True), (-5, True), (1, False), (-6, False)])
def test_priorities(demo, priority, fits):
    report = judge(demo, priority=priority)
    assert judged(report) == ([] if fits else [("GD224", "run", "priority")])
    assert report.ok, "the driver clamps it"
