"""Makes the search index of the pipeline: every product's text through the embedding endpoint.

    python examples/assistant/build_index.py --url http://127.0.0.1:8080

Writes `pipeline/index/` (not kept in git), which the next deployment of the pipeline takes along.
An index that was made of the same texts by the same endpoint's artifact is kept as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLE = Path(__file__).resolve().parent
sys.path[:0] = [str(EXAMPLE), str(EXAMPLE / "pipeline" / "code")]

from catalogue import make_catalogue  # noqa: E402 - the example is a folder, not a package
from retrieval import product_text, write  # noqa: E402

INDEX = EXAMPLE / "pipeline" / "index"
ARTIFACT = EXAMPLE / "embed"
_BATCH = 64


def embeddings(url: str, endpoint: str, texts: Sequence[str], key: str = "") -> np.ndarray:
    """One row per text. Raises OSError with the endpoint's words where it does not answer."""
    rows: list[Any] = []
    for start in range(0, len(texts), _BATCH):
        request = urllib.request.Request(
            f"{url}/endpoints/{endpoint}/openai/v1/embeddings",
            data=json.dumps({"input": list(texts[start : start + _BATCH])}).encode(),
            headers={"Content-Type": "application/json"}
            | ({"Authorization": f"Bearer {key}"} if key else {}),
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                rows += [each["embedding"] for each in json.loads(answer.read())["data"]]
        except urllib.error.HTTPError as error:
            words = error.read().decode("utf-8", "replace")[:300]
            raise OSError(f"{endpoint}: {error.code} {words}") from None
    return np.array(rows, dtype=np.float32)


def build(
    url: str, endpoint: str = "embed", *, index: Path = INDEX, artifact: Path = ARTIFACT,
    key: str = "",
) -> bool:  # fmt: skip
    """Whether the index had to be made."""
    products = [asdict(product) for product in make_catalogue()]
    texts = [product_text(product) for product in products]
    made_of = index / "made-of"
    digest = _digest(texts, artifact)
    if made_of.is_file() and made_of.read_text() == digest:
        return False
    write(index, products, embeddings(url, endpoint, texts, key))
    made_of.write_text(digest)
    return True


def _digest(texts: Sequence[str], artifact: Path) -> str:
    """Of the texts, of what makes the index, and of the model's files."""
    whole = hashlib.sha256("\n".join(texts).encode())
    whole.update(Path(EXAMPLE, "pipeline", "code", "retrieval.py").read_bytes())
    for file in sorted(path for path in artifact.rglob("*") if path.is_file()):
        whole.update(file.read_bytes())
    return whole.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="of the platform")
    parser.add_argument("--endpoint", default="embed")
    parser.add_argument("--index", type=Path, default=INDEX, help="folder to make")
    asked = parser.parse_args()
    try:
        key = os.environ.get("PENSTOCK_KEY", "")
        made = build(asked.url, asked.endpoint, index=asked.index, key=key)
    except OSError as error:
        sys.exit(f"error: {error}")
    print(f"{asked.index} {'is made' if made else 'was up to date'}")


if __name__ == "__main__":
    main()
