"""The Huffman code of HPACK's strings (RFC 7541, 5.2 and appendix B), decoded half a byte a step.

The code is canonical: codes of one length count upwards in the order of their symbols, and the
first code of a length continues where the shorter ones ended. So the lengths are the whole code.
The decoder is a table of the tree's inner nodes by the next four bits. No code is shorter than
five bits, so a step ends one symbol at most.
"""

from __future__ import annotations

from typing import Final

_EOS: Final = 256
#: Bits of each symbol's code, 0 to 255 and the end of a string (appendix B).
_CODE_BITS: Final = (
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
)  # fmt: skip

#: Padding is the beginning of EOS, all ones, and shorter than a byte (5.2).
_PADDING_BITS_MAX: Final = 7


def _tree() -> list[list[int]]:
    """Inner nodes, the root first: what bit 0 and bit 1 lead to, a node or `~symbol`."""
    nodes = [[0, 0]]
    code = bits_before = 0
    for bits, symbol in sorted((bits, symbol) for symbol, bits in enumerate(_CODE_BITS)):
        code <<= bits - bits_before
        node = 0
        for shift in range(bits - 1, 0, -1):
            bit = code >> shift & 1
            if nodes[node][bit] == 0:
                nodes[node][bit] = len(nodes)
                nodes.append([0, 0])
            node = nodes[node][bit]
        nodes[node][code & 1] = ~symbol
        code += 1
        bits_before = bits
    return nodes


def _steps(nodes: list[list[int]]) -> tuple[list[tuple[int, int]], frozenset[int]]:
    """By 16 * node + four bits: (16 * next node, symbol that ended or -1); then the good ends.

    One node more, which nothing leaves, stands for a string with EOS in it.
    """
    failed = len(nodes)
    steps: list[tuple[int, int]] = []
    for start in range(failed):
        for nibble in range(16):
            node, symbol = start, -1
            for shift in (3, 2, 1, 0):
                after = nodes[node][nibble >> shift & 1]
                if after >= 0:
                    node = after
                elif ~after == _EOS:
                    node = failed
                    break
                else:
                    node, symbol = 0, ~after
            steps.append((16 * node, symbol if node != failed else -1))
    steps += [(16 * failed, -1)] * 16
    node, ends = 0, {0}
    for _ in range(_PADDING_BITS_MAX):
        node = nodes[node][1]
        ends.add(16 * node)
    return steps, frozenset(ends)


_STEPS, _ENDS = _steps(_tree())


def huffman_decoded(data: bytes) -> bytes | None:
    """The string; None where it holds EOS, or padding that is too long or not all ones."""
    steps = _STEPS
    decoded = bytearray()
    node = 0
    for byte in data:
        node, symbol = steps[node + (byte >> 4)]
        if symbol >= 0:
            decoded.append(symbol)
        node, symbol = steps[node + (byte & 15)]
        if symbol >= 0:
            decoded.append(symbol)
    return bytes(decoded) if node in _ENDS else None
