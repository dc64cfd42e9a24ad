"""Makes the models of the support desk: an embedding model per customer, and autocomplete models.

    python examples/support/make_models.py --out build/support

writes OUT/embeddings/customer-001.tar.gz ... and OUT/autocomplete/customer-001.tar.gz ..., which
are the prefixes of two multi-model endpoints. One seed gives the same bytes again. What is there is
not made again, so a run that was stopped goes on. Needs nothing beside Penstock itself.
"""

from __future__ import annotations

import argparse
import gzip
import io
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import autocomplete
import embedder
from customers import Customer, customers
from replies import replies
from traffic import AUTOCOMPLETE, EMBEDDINGS

HERE = Path(__file__).resolve().parent
#: Query intent's: words and word pieces of shopping, learnt from its queries.
TOKENIZER = HERE.parent / "query_intent" / "artifact" / "tokenizer.json"
SMALL = embedder.Shape(layers=1, width=32, heads=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--customers", type=int, default=200)
    parser.add_argument("--autocomplete", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help="a tenth of the bytes, for trying out")
    given = parser.parse_args()
    begun = time.monotonic()
    sizes = make_all(
        given.out,
        people=given.customers,
        autocomplete_models=given.autocomplete,
        seed=given.seed,
        small=given.small,
    )
    for kind, size in sizes.items():
        print(f"{given.out / kind}: {size:,} bytes")
    print(f"in {time.monotonic() - begun:.0f} s")


def make_all(
    out: Path, *, people: int, autocomplete_models: int, seed: int, small: bool
) -> dict[str, int]:
    """Both folders below `out`; returns the bytes of each. What is there is not made again."""
    shape = SMALL if small else embedder.Shape()
    known = customers(people, seed=seed)

    def embedding(customer: Customer, folder: Path) -> None:
        shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
        embedder.write(folder, customer=customer.number, name=customer.key, seed=seed, shape=shape)

    def completing(customer: Customer, folder: Path) -> None:
        autocomplete.write(
            folder, replies(customer, seed), name=customer.key, seed=seed, layers=1 if small else 2
        )

    return {
        EMBEDDINGS: make(known, out / EMBEDDINGS, embedding),
        AUTOCOMPLETE: make(known[:autocomplete_models], out / AUTOCOMPLETE, completing),
    }


def make(people: list[Customer], out: Path, write: Callable[[Customer, Path], None]) -> int:
    """One archive per customer; returns the bytes of all of them."""
    out.mkdir(parents=True, exist_ok=True)
    size = 0
    for customer in people:
        path = out / f"{customer.key}.tar.gz"
        if not path.exists():
            with tempfile.TemporaryDirectory() as made:
                write(customer, Path(made))
                # Hidden until it is whole: a server that reads this prefix never sees half of it.
                hidden = out / f".{path.name}.part"
                hidden.write_bytes(packed(Path(made)))
                hidden.rename(path)
        size += path.stat().st_size
    return size


def packed(folder: Path) -> bytes:
    """A .tar.gz of a folder's files, in the order of names and without times or owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(folder.iterdir()):
            info = tarfile.TarInfo(path.name)
            info.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(info, file)
    # Weights hardly shrink: the fastest level makes the files nearly as small as the slowest.
    return gzip.compress(buffer.getvalue(), compresslevel=1, mtime=0)


if __name__ == "__main__":
    main()
