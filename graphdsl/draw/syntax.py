"""How any text stands in the DOT language: identifiers, attributes, tooltips and labels.

In a quoted string of DOT only the quote is escaped; what backslashes and ampersands mean is decided later, and
differently for identifiers, escaped strings and HTML-like labels. This module must not know what is drawn.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any


def attributes_text(attributes: Mapping[str, Any]) -> str:
    """Attributes in DOT: labels are HTML-like, ``lhead`` is an identifier, other text is quoted, numbers are not."""
    return ", ".join(f"{name}={_value(name, value)}" for name, value in attributes.items())


def _value(name: str, value: Any) -> str:
    if name == "label":
        return f"<{value}>"
    if name == "lhead":
        return identifier(value)
    return _quoted(value) if isinstance(value, str) else str(value).lower()


def _quoted(text: str) -> str:
    quotes_escaped = text.replace('"', '\\"')
    return f'"{quotes_escaped}"'


def identifier(name: str) -> str:
    r"""The name of a node, graph or cluster in quotes, with backslashes escaped.

    With a single backslash before a quote the string would not end. Names that start with a percent sign Graphviz
    keeps for itself, so that one gets a backslash too.

    Examples
    --------
    >>> print(identifier('a "b"'), identifier("back\\slash"), identifier("%"))
    "a \"b\"" "back\\slash" "\%"
    """
    return _quoted(("\\" if name.startswith("%") else "") + _doubled(name))


def other_identifier(what: str, name: str) -> str:
    """An identifier that no node has: in it a single backslash stands before a space."""
    return _quoted(f"{what}\\ {_doubled(name)}")


def _doubled(text: str) -> str:
    return text.replace("\\", "\\\\")


def tooltip_text(text: str) -> str:
    """Text for a tooltip, where a backslash would start an escape and an ampersand an entity."""
    return _doubled(text).replace("&", "&amp;")


def html_text(text: str) -> str:
    """Text for an HTML-like label, its spaces kept; Graphviz knows no empty one."""
    return html.escape(text or " ", quote=False).replace("\\", "&#92;").replace(" ", "&#160;")
