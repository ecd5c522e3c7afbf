"""The driver itself: a C program that makes the calls we make (``peer.c``), compiled here and kept running."""

from __future__ import annotations

import functools
import json
import shutil
import subprocess
import tempfile
from itertools import chain
from pathlib import Path

from graphdsl.bench.measure import Samples
from graphdsl.bench.peers import Setting
from graphdsl.bench.records import Case
from graphdsl.bench.shapes import edges

SOURCE = Path(__file__).with_name("peer.c")


def unavailable() -> str | None:
    """Why it cannot be measured here; None if it can."""
    return None if shutil.which("nvcc") or shutil.which("cc") else "there is no C compiler: neither nvcc nor cc"


def measure(case: Case, setting: Setting) -> Samples:
    """Measure one graph."""
    program = _program(setting)
    assert program.stdin is not None
    assert program.stdout is not None
    assert program.stderr is not None
    budget, pairs = setting.budget(case), edges(*case)
    numbers = [case.nodes, len(pairs), budget.seconds, budget.least, budget.most, *chain.from_iterable(pairs)]
    try:
        program.stdin.write(" ".join(map(str, numbers)) + "\n")
        program.stdin.flush()
        answer = program.stdout.readline()
    except BrokenPipeError:
        answer = ""
    if not answer:
        raise RuntimeError(f"the C program ended: {program.stderr.read().strip()}")
    found: Samples = json.loads(answer)
    return found


@functools.cache
def _program(setting: Setting) -> subprocess.Popen[str]:
    """The program, waiting for cases; it ends when this process does, because its input ends then."""
    with tempfile.TemporaryDirectory() as folder:
        program = compile_peer(Path(folder))
        pipe = subprocess.PIPE
        command = [str(program), setting.cubin, setting.entry]
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def compile_peer(folder: Path) -> Path:
    """Compile ``peer.c`` against the toolkit's stub of the driver, or against the driver itself; gives the program.

    Raises
    ------
    RuntimeError
        With what the compilers said.
    """
    program = folder / "peer"
    said = []
    for command in (["nvcc", str(SOURCE), "-lcuda"], ["cc", *_include(), str(SOURCE), *_driver_library()]):
        if shutil.which(command[0]):
            done = subprocess.run([*command, "-O2", "-o", program], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return program
            said.append(f"{command[0]}: {(done.stderr or done.stdout).strip()}")
    raise RuntimeError(f"the C program could not be compiled; {'; '.join(said)}")


def _include() -> list[str]:
    from cuda.pathfinder import find_nvidia_header_directory

    found = find_nvidia_header_directory("cudart")
    return [f"-I{found}"] if found else []


def _driver_library() -> list[str]:
    """The driver's library, as this process has loaded it: it may lie where no linker looks."""
    from cuda.bindings import driver

    driver.cuInit(0)
    mapped = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libcuda.so" in line]
    return mapped[:1]
