"""What watching a cache costs, measured: every part of it runs, and launches are timed on one side alone."""

from __future__ import annotations

import json

import graphdsl as gd
from graphdsl.bench import observed


def test_all_sides_are_measured_and_written(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(observed, "NODES", (1, 3))
    path = tmp_path / "found.json"
    observed.main(path, gd.emulator(), launches=40, turns=2)
    record = json.loads(path.read_text())
    assert (record["launches"], record["turns"], list(record["chains"])) == (40, 2, ["1", "3"])
    for found in record["chains"].values():
        assert all(0 < found[side]["asked"] <= found[side]["done"] for side in observed.SIDES)
        assert found["times"] >= 1
        assert found["gpu"] > 0
    head, *rows = capsys.readouterr().out.splitlines()[1:]
    assert [len(row.split()) for row in rows] == [len(head.split())] * 2
