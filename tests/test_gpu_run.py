import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

GPU_RUN = Path(__file__).with_name("gpu_run.py")


@pytest.fixture
def gpu_run():
    spec = importlib.util.spec_from_file_location("gpu_run", GPU_RUN)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_tree_hash_is_that_of_git(gpu_run, tmp_path):
    files = {"a.py": "1\n", "a/b.py": "2\n", "a/c/d.txt": "3", "a-b/e.py": "", "a.b/é.py": "4", "z": "5"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "z").chmod(0o755)
    (tmp_path / "empty" / "nested").mkdir(parents=True)
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "b.pyc").write_text("left by Python")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet")
    git("config", "core.excludesFile", "/dev/null")
    git("add", *files)
    assert gpu_run.tree_hash(tmp_path).hex() == git("write-tree")


@pytest.mark.parametrize("processes", ["0", "2"])
def test_only_gpu_and_conformance_tests_are_run_and_counted(tmp_path, processes):
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance" / "test_same.py").write_text("def test_passes(): pass\ndef test_fails(): assert False\n")
    (tmp_path / "test_other.py").write_text(
        "import pytest\n"
        "def test_left_out(): assert False\n"
        "@pytest.mark.gpu\ndef test_passes(): pass\n"
        "@pytest.mark.gpu\ndef test_skipped(): pytest.skip()\n"
        "@pytest.fixture\ndef broken(): assert False\n"
        "@pytest.mark.gpu\ndef test_set_up_fails(broken): pass\n"
    )
    code = (
        "import gpu_run, pytest; ended = gpu_run.Counts()\n"
        f"options = ['-q', '-p', 'no:cacheprovider', '-p', 'gpu_run', '-n', '{processes}']\n"
        "status = pytest.main([*options, '.'], plugins=[ended])\n"
        "import json; print(); print(json.dumps([int(status), ended.counts]))"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs a GPU\n")
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(GPU_RUN.parent)!r})\n{code}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    status, counts = json.loads(done.stdout.splitlines()[-1])
    assert status == 1
    assert counts == {"passed": 2, "failed": 2, "skipped": 1}


def test_without_a_gpu_nothing_is_run_or_written(gpu_run, monkeypatch, tmp_path, capsys):
    def no_gpu():
        raise RuntimeError("no device")

    monkeypatch.setattr(gpu_run, "gpu_facts", no_gpu)
    monkeypatch.setattr(gpu_run, "RECORD", tmp_path / "last-run.json")
    assert gpu_run.main([]) == 2
    assert "nothing was run: RuntimeError: no device" in capsys.readouterr().err
    assert not (tmp_path / "last-run.json").exists()


def test_code_from_elsewhere_is_refused(gpu_run, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu_run, "ROOT", tmp_path)
    with pytest.raises(RuntimeError, match="pip install --no-deps --no-build-isolation --editable"):
        gpu_run.require_checkout()
