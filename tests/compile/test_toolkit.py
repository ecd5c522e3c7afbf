from pathlib import Path

import pytest

from graphdsl.compile.toolkit import library


@pytest.mark.parametrize("name", ["nvvm", "nvJitLink", "nvrtc"])
def test_a_library_has_a_version_and_lies_somewhere(name):
    version, path = library(name)
    assert all(part.isdecimal() for part in version.split("."))
    assert name.lower() in Path(path).name.lower()


def test_an_unknown_library_is_an_error():
    with pytest.raises(Exception, match="cufoo"):
        library("cufoo")
