"""Every block of Python in the README and the guide runs; the blocks of one page run in order and share their names."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str]]:
    """Line and text of each block that is marked as Python."""
    found: list[tuple[int, str]] = []
    start = None
    lines = page.read_text().splitlines()
    for number, line in enumerate(lines):
        if start is None and line.startswith("```"):
            start = number if line == "```python" else -1
        elif start is not None and line.startswith("```"):
            if start >= 0:
                found.append((start + 1, "\n".join(lines[start + 1 : number])))
            start = None
    assert start is None, f"{page}: a block is not closed"
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "docs" / "examples")
    names = {"__name__": page.stem}
    for line, text in blocks(page):
        # Empty lines in front make tracebacks show the line of the page.
        exec(compile("\n" * line + text, page, "exec"), names)


def test_links_and_pictures_exist():
    import re

    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} refers to {target}"
