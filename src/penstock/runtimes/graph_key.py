"""What two OpenVINO files have in common when they are one graph with different weights.

Hundreds of customers' models have one shape. Whether a library survives reading such a file is a
question of its graph, its sizes and the numbers that say how long or where something is; tables of
weights answer nothing. So the key is of the graph's text and of every constant but large tables of
floating-point numbers and of small integers, which is how quantised weights are kept.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

#: Element types that weights are stored in -> elements from which a constant is a table of them.
#: Shapes, axes and indices are of other types or shorter: floating-point numbers that say how long
#: something is (factors of a resize) are one for each axis. A bias for each head of a T5 is eight.
_TABLES: Final = {
    **dict.fromkeys(("f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "f4e2m1", "nf4"), 8),
    **dict.fromkeys(("i8", "u8", "i4", "u4"), 4096),
}


def graph_key(xml: Path) -> str | None:
    """A digest; None where the file is no IR with whole weights beside it, or can't be read."""
    try:
        text = xml.read_bytes()
        with open(xml.with_suffix(".bin"), "rb") as weights:
            digest = hashlib.sha256(text)
            size = weights.seek(0, 2)
            digest.update(b"\0%d" % size)
            # Entities can't be expanded from outside, and expat bounds their growth.
            for element in ElementTree.fromstring(text).iter("data"):  # noqa: S314
                begin, count = element.get("offset"), element.get("size")
                if begin is None or count is None:
                    continue
                if int(begin) + int(count) > size:
                    return None
                if not _is_table(element):
                    weights.seek(int(begin))
                    digest.update(weights.read(int(count)))
    except (OSError, ValueError, ElementTree.ParseError):
        return None
    return digest.hexdigest()


def _is_table(constant: ElementTree.Element) -> bool:
    least = _TABLES.get(constant.get("element_type", ""))
    if least is None:
        return False
    elements = 1
    for length in constant.get("shape", "").split(","):
        elements *= int(length) if length.strip() else 1
    # The shape is the file's word; a byte per two elements is the least that any type has.
    return elements >= least and int(constant.get("size", "0")) * 2 >= elements
