import configparser
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def python(code: str, **options) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of the checkout, built from a copy so that nothing is left in the checkout."""
    pytest.importorskip("setuptools", minversion="77")
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in ("graphdsl", "kernels"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_holds_every_file_of_the_packages_and_nothing_else(wheel):
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = [file for folder in ("graphdsl", "kernels") for file in (ROOT / folder).rglob("*") if file.is_file()]
    names = {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}
    expected = {name if name.startswith("graphdsl/") else f"graphdsl/{name}" for name in names}
    assert expected - packed == set(), "add the package or its data to [tool.setuptools] in pyproject.toml"
    assert packed - expected == set()


def test_the_wheel_has_the_console_script_and_the_licence(wheel):
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    scripts = configparser.ConfigParser()
    scripts.read_string(archive.read(f"{info}/entry_points.txt").decode())
    assert dict(scripts["console_scripts"]) == {"graphdsl": "graphdsl.cli:main"}
    assert f"{info}/licenses/LICENSE" in archive.namelist()
    assert "License-Expression: Apache-2.0" in archive.read(f"{info}/METADATA").decode()


def test_the_kernels_are_imported_from_the_unpacked_wheel(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path)
    code = "import graphdsl.kernels as k; print(k.__file__, len(k.__all__))"
    place, count = python(code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}).split()
    assert Path(place) == tmp_path / "graphdsl" / "kernels" / "__init__.py"
    assert int(count) > 0


def test_importing_the_package_imports_neither_numba_nor_cuda():
    loaded = set(python("import graphdsl, sys; print(*sys.modules)").split())
    assert "graphdsl" in loaded
    assert not {name for name in loaded if name.split(".")[0] in ("numba", "llvmlite", "cuda", "torch", "matplotlib")}


def test_the_command_line_starts():
    assert "check" in python("from graphdsl.cli import main; main(['--help'])")
