"""Hybrid retrieval: words by BM25, meaning by an index of vectors, both rankings fused.

What a question says outright (kind, colour, price, features; see `asked.py`) filters both rankings,
and is given up from the weakest on where too little is left: a red tent when there is no blue one,
and not a blue shoe. Fusion is by reciprocal ranks (Cormack, Clarke and Buettcher, 2009), which
needs no scores that could be compared. Must not know models, endpoints or prompts: a query's vector
comes from outside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import bm25s
import faiss
import numpy as np
from asked import Term, meets, read

#: How deep each ranking is read, and the constant of the paper.
DEPTH: Final = 200
RANK_CONSTANT: Final = 60

_PRODUCTS: Final = "products.json"
_WORDS: Final = "words"
_VECTORS: Final = "vectors.faiss"
#: Of the graph (Malkov and Yashunin, 2018): neighbours of a node, and how far a search looks.
_NEIGHBOURS: Final = 32
_SEARCHED: Final = 256

#: What is asked for, from what is never given up to what is given up first.
_HELD: Final = (
    ("kind",),
    ("kind", "under", "over"),
    ("kind", "under", "over", "colour"),
    ("kind", "under", "over", "colour", "material", "feature", "stars"),
)

_SMALL: Final = (
    "a about am an and any are as at be but by can do does for from had has have hello hi how i in"
    " is it its made make me my no not of on one or other please say so some tell than thank thanks"
    " that the their them then there these they this those to up us was we what when where which"
    " who will with you your"
)
_SMALL_WORDS: Final = frozenset(_SMALL.split())

Product = Mapping[str, Any]


def product_text(product: Product) -> str:
    """What is known of a product: the embedder learns from this text, and the index keeps it."""
    features = ", ".join(product["features"])
    return (
        f"{product['title']}, {product['category']}, {product['colour']}, {product['material']},"
        f" {features}"
    )


def words_of(text: str) -> list[str]:
    """Lower case, without plural and small words: enough for texts that a shop writes itself."""
    return [
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
        for word in re.findall(r"[a-z0-9]+", text.lower())
        if word not in _SMALL_WORDS
    ]


class Retrieval:
    """An index that has been read. `write` makes its folder."""

    def __init__(self, products: Sequence[Product], words: bm25s.BM25, vectors: Any) -> None:
        self.products = products
        self.titles = {product["title"].lower(): at for at, product in enumerate(products)}
        self._words = words
        self._vectors = vectors
        self._prices = np.array([product["price_cents"] for product in products])
        self._ratings = np.array([product["rating"] for product in products])
        self._masks: dict[str, np.ndarray] = {}  #: of terms without numbers, by label

    @classmethod
    def read(cls, folder: Path) -> Retrieval:
        products = json.loads((folder / _PRODUCTS).read_text(encoding="utf-8"))
        words = bm25s.BM25.load(str(folder / _WORDS))
        vectors = faiss.read_index(str(folder / _VECTORS))
        faiss.omp_set_num_threads(1)  # one vector a search: threads would only wait for one another
        return cls(products, words, vectors)

    def keywords(self, text: str, count: int = DEPTH) -> list[int]:
        """Places of products that share words with the text, best first."""
        return self._by_words(text, None, count)

    def nearest(self, vector: Sequence[float], count: int = DEPTH) -> list[int]:
        """Places of products whose vectors are near, best first."""
        query = _unit(np.asarray([vector], dtype=np.float32))
        _, places = self._vectors.search(query, min(count, len(self.products)))
        return [int(at) for at in places[0] if at >= 0]

    def find(
        self,
        text: str,
        vector: Sequence[float] | None,
        *,
        ranked: Sequence[int] | None = None,
        cents_max: int | None = None,
        count: int = 4,
    ) -> list[int]:
        """Places of the products that fit best; empty where nothing of the text is known here.

        `ranked`: what `keywords` says of the text, where that was asked before. `cents_max`: a
        limit that the text does not say.
        """
        terms = read(text)
        if cents_max is not None:
            terms += (Term("under", "", amount=cents_max),)
        worded = self.keywords(text) if ranked is None else ranked
        near = self.nearest(vector) if vector is not None else []
        if not terms and not worded:
            return []
        found: list[int] = []
        for held in reversed(_HELD):
            mask = self._mask([term for term in terms if term.field in held])
            rankings = (
                (worded, near)
                if mask is None
                else (self._by_words(text, mask, DEPTH), [at for at in near if mask[at]])
            )
            fused = fuse(rankings)
            if (
                not fused and mask is not None
            ):  # only numbers were asked for, and there is no vector
                fused = sorted(np.flatnonzero(mask).tolist(), key=lambda at: -self._ratings[at])
            found += [at for at in fused if at not in found]
            if len(found) >= count or mask is None:
                break
        return found[:count]

    def named_in(self, text: str) -> list[int]:
        """Places of products whose titles stand in a text, in its order."""
        plain = text.lower()
        places = [(plain.find(title), at) for title, at in self.titles.items() if title in plain]
        return [at for _, at in sorted(places)]

    def _by_words(self, text: str, mask: np.ndarray | None, count: int) -> list[int]:
        words = [word for word in words_of(text) if word in self._words.vocab_dict]
        if not words:
            return []
        scores = self._words.get_scores(words)
        if mask is not None:
            scores = scores * mask
        best = np.argsort(-scores, kind="stable")[:count]
        return [int(at) for at in best if scores[at] > 0]

    def _mask(self, terms: Iterable[Term]) -> np.ndarray | None:
        """Which products are all that is asked for; None: nothing is."""
        whole: np.ndarray | None = None
        for term in terms:
            mask = self._mask_of(term)
            whole = mask if whole is None else whole & mask
        return whole

    def _mask_of(self, term: Term) -> np.ndarray:
        if term.field == "under":
            return self._prices <= term.amount
        if term.field == "over":
            return self._prices >= term.amount
        if term.field == "stars":
            return self._ratings >= term.amount
        known = self._masks.get(term.label)
        if known is None:  # labels are those of shop.json: few, and always the same
            known = np.array([meets(term, product) for product in self.products])
            self._masks[term.label] = known
        return known


def fuse(rankings: Iterable[Sequence[int]]) -> list[int]:
    """One ranking of several; ties go to the smaller place."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, at in enumerate(ranking, 1):
            scores[at] = scores.get(at, 0.0) + 1 / (RANK_CONSTANT + rank)
    return sorted(scores, key=lambda at: (-scores[at], at))


def write(folder: Path, products: Sequence[Product], vectors: np.ndarray) -> None:
    """Makes the folder that `Retrieval.read` reads; `vectors` are of `product_text`, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = [dict(product) for product in products]
    (folder / _PRODUCTS).write_text(json.dumps(listed), encoding="utf-8")
    words = bm25s.BM25()
    texts = [f"{product_text(each)} {each['description']}" for each in listed]
    words.index([words_of(text) for text in texts], show_progress=False)
    words.save(str(folder / _WORDS))
    faiss.omp_set_num_threads(1)
    index = faiss.IndexHNSWFlat(vectors.shape[1], _NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = index.hnsw.efSearch = _SEARCHED
    index.add(_unit(vectors.astype(np.float32)))
    faiss.write_index(index, str(folder / _VECTORS))


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Of length one, so that products of vectors are cosines."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)
