"""A key that is equal for OpenVINO files with the same graph and different weights.

Hundreds of customers' models have one shape. Whether a library survives reading such a file depends
on its graph, its sizes and the numbers that give lengths and positions; tables of weights have no
influence. So the key covers the graph's text and all constants except large tables of
floating-point numbers and of small integers (quantised weights).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

#: Element types of weights -> the number of elements from which a constant is a table of them.
#: Shapes, axes and indices have other types or are shorter: floating-point numbers that give a
#: length (factors of a resize) are one for each axis. The bias for each head of a T5 has eight.
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
    # The file itself states the shape; every type takes at least a byte per two elements.
    return elements >= least and int(constant.get("size", "0")) * 2 >= elements
