"""Texts as counts of letter triples, each triple at a place that its hash names."""

import zlib


def prepare(texts):
    rows = []
    for text in texts:
        row = [0] * 256
        padded = b" %b " % text.lower().encode()
        for at in range(len(padded) - 2):
            row[zlib.crc32(padded[at : at + 3]) % 256] += 1
        rows.append(row)
    return {"counts": rows}
