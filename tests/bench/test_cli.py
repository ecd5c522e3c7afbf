"""The command ``graphdsl bench``, with the measuring replaced by results that never were."""

import pytest

from graphdsl import cli
from graphdsl.bench import records, report, run
from graphdsl.bench.records import OURS, Case
from tests.bench.canned import results


@pytest.fixture
def bench(monkeypatch, capsys, tmp_path):
    """Runs the command in an empty folder; gives the plan, the status, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    plans = []

    def pretended(plan, progress):
        plans.append(plan)
        progress("something")
        return results(absent={"warp": "Warp is not installed"})

    monkeypatch.setattr(run, "run", pretended)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            cli.main(["bench", *arguments])
        return plans[0] if plans else None, ended.value.code, *capsys.readouterr()

    return call


def test_it_prints_tables_and_the_machine(bench):
    plan, status, said, _ = bench()
    assert status == 0
    assert plan.peers == (OURS,)
    assert said.startswith("Some GPU, driver 580.1; ")
    for word in ("Targets", "÷ C", "Changing a part", "Warp is not installed"):
        assert word in said


def test_options_say_what_is_measured(bench):
    plan, status, _, told = bench("--peers", "--quick", "--nodes", "3,5", "--shapes", "chain,diamond")
    assert status == 0
    assert "cuda_core" in plan.peers
    assert plan.quick
    assert plan.cases == (Case("chain", 3), Case("chain", 5), Case("diamond", 3), Case("diamond", 5))
    assert "measuring something ..." in told


def test_it_writes_json_and_a_chart(bench, tmp_path):
    pytest.importorskip("matplotlib")
    _, status, said, _ = bench("--json", "run.json", "--chart", "run.png")
    assert status == 0
    assert said.splitlines()[-2:] == ["run.json", "run.png"]
    assert records.load(tmp_path / "run.json").machine["gpu"] == "Some GPU"
    assert (tmp_path / "run.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_measured_for_a_chart(bench, monkeypatch):
    monkeypatch.setattr(report.importlib.util, "find_spec", lambda name: None)
    plan, status, _, told = bench("--chart", "run.png")
    assert (plan, status) == (None, 2)
    assert "pip install matplotlib" in told


@pytest.mark.parametrize(
    ("arguments", "word"),
    [(["--nodes", "many"], "1,100,1000"), (["--nodes", "0"], "1 or more"), (["--shapes", "ring"], "fan-out")],
)
def test_what_cannot_be_measured_is_refused_with_the_remedy(bench, arguments, word):
    plan, status, _, told = bench(*arguments)
    assert (plan, status) == (None, 2)
    assert word in told


def test_without_a_gpu_it_says_so(bench, monkeypatch):
    from graphdsl.drivers import cuda

    monkeypatch.setattr(cuda, "unavailable", lambda: "the CUDA driver finds no GPU")
    assert "Only what needs no GPU is measured" in bench()[3]
