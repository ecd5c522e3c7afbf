"""What goes wrong while work is recorded, in the user's terms: the rule that was broken, and the remedy.

Libraries report the driver's codes in their own ways, and the driver itself says at the end only that something was
refused before. This module must not call the driver.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from graphdsl.declare.nodes import CapturedNode
from graphdsl.drivers.results import RESULTS
from graphdsl.errors import CaptureError, DriverError


class _Meaning(NamedTuple):
    rule: str
    remedy: str


_WARM_UP = (
    "Call the function once before, outside of the graph, so that the library sets itself up; give it its results to "
    "write into (out=), and let it wait for nothing."
)
_ONE_RECORDING = "Let the function only put work into the stream that it is given."
_CURRENT = "Make the given stream the current one, as `with cupy.cuda.Stream.from_external(stream):` does."

INVALID_VALUE, ILLEGAL_STATE, UNSUPPORTED, INVALIDATED = 1, 401, 900, 901

MEANINGS: dict[int, _Meaning] = {
    ILLEGAL_STATE: _Meaning("the function ended the recording, or began another in the same stream", _ONE_RECORDING),
    UNSUPPORTED: _Meaning(
        "the function did what cannot be recorded: it allocated or freed memory, waited for the device, or used the "
        "legacy default stream",
        _WARM_UP,
    ),
    INVALIDATED: _Meaning(
        "something that the function did cannot be recorded, such as allocating, freeing or waiting, and the library "
        "went on without a word",
        _WARM_UP,
    ),
    902: _Meaning("the function joined streams that are recorded into different graphs", _ONE_RECORDING),
    903: _Meaning("the function ended the recording in a stream where it did not begin", _ONE_RECORDING),
    904: _Meaning(
        "the function began work in other streams, and the given stream does not wait for it",
        "Record an event in each other stream behind its work, and let the given stream wait for it.",
    ),
    905: _Meaning(
        "the function waited for work that was put into a stream before the recording, or is in none of its streams",
        "Leave that wait out: what the node waits for is said by the edges of the graph.",
    ),
    906: _Meaning("the function used the legacy default stream, which waits for the recorded one", _CURRENT),
    907: _Meaning(
        "the function asked or waited for an event that it had recorded, which happens in launches only",
        "Ask for events behind a launch; graph.event and graph.record give those of a graph.",
    ),
    908: _Meaning("the recording was ended in another thread than it began", _ONE_RECORDING),
}
"""What the driver's result codes mean to whoever wrote the function of a captured node."""


def _letters(text: str) -> str:
    """The letters of a text, so that cudaErrorStreamCaptureMerge and CUDA_ERROR_STREAM_CAPTURE_MERGE are alike."""
    return re.sub("[^a-z]", "", text.lower())


_NAMES = {_letters(RESULTS[code].name.removeprefix("CUDA_ERROR_")): code for code in MEANINGS if code != ILLEGAL_STATE}
_NAME = re.compile("|".join(_NAMES))
_TEXT = "operation not permitted when stream is capturing"  # all that some libraries say of code 900
_ATTRIBUTES = ("code", "status", "error_code")


def capture_failure(node: CapturedNode, ended: DriverError | None, raised: Exception | None) -> CaptureError:
    """The error for a recording that failed.

    Parameters
    ----------
    node : CapturedNode
        Whose work was to be recorded.
    ended : DriverError or None
        What the driver said when the recording began or ended.
    raised : Exception or None
        What the function raised.
    """
    code = _code_of(raised) or (0 if ended is None else ended.code)
    if ended is not None and ended.call == "cuStreamEndCapture" and code == INVALID_VALUE:
        code = ILLEGAL_STATE  # there was no recording to end
    said = "" if raised is None else f"the function raised {type(raised).__name__}: {raised}".removesuffix(": ")
    meaning = MEANINGS.get(code)
    if meaning is not None:
        rule = f"{meaning.rule} ({RESULTS[code].name}, {code}){f'; {said}' if said else ''}"
    else:
        rule = said or str(ended)
    return CaptureError(
        rule,
        code=code,
        code_name=RESULTS[code].name if meaning else "" if ended is None else ended.code_name,
        node=node.name,
        field="function",
        value=getattr(node.function, "__name__", type(node.function).__name__),
        remedy=meaning.remedy if meaning else None,
        location=node.location,
    )


def _code_of(raised: BaseException | None) -> int:
    """The driver's code in an exception of any library, or in one that it came from; 0 if none shows."""
    while raised is not None:
        numbers = [getattr(raised, name, None) for name in _ATTRIBUTES]
        text = str(raised)
        name = _NAME.search(_letters(text))
        found = next((int(number) for number in numbers if isinstance(number, int) and number in _NAMES.values()), 0)
        if found or name or _TEXT in text:
            return found or (_NAMES[name.group()] if name else UNSUPPORTED)
        raised = raised.__cause__ or raised.__context__
    return 0
