"""What the catalogue service knows of each product, and what of it changes: price and stock."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable
from typing import Any

from catalogue import Product

STOCK_MAX = 40


class Shelf:
    """Safe to use from several threads."""

    def __init__(self, products: Iterable[Product], *, seed: int = 11) -> None:
        self._rng = random.Random(seed)
        self._lock = threading.Lock()
        self.products = {product.id: product for product in products}
        self._ids = list(self.products)
        self._prices = {each.id: each.price_cents for each in self.products.values()}
        self._stocks = {each: self._rng.randrange(STOCK_MAX) for each in self._ids}

    def fields(self, ident: str) -> dict[str, Any]:
        """The message's fields without its addresses. Raises KeyError for an unknown product."""
        product = self.products[ident]
        with self._lock:
            price_cents, stock = self._prices[ident], self._stocks[ident]
        return {
            "id": product.id,
            "title": product.title,
            "brand": product.brand,
            "kind": product.kind,
            "colour": product.colour,
            "price_cents": price_cents,
            "rating": product.rating,
            "reviews": product.reviews,
            "stock": stock,
        }

    def update(self, ident: str, *, price_cents: int | None, stock: int | None) -> None:
        """Raises KeyError for an unknown product, ValueError for a number below zero."""
        if ident not in self.products:
            raise KeyError(ident)
        if min(price_cents or 0, stock or 0) < 0:
            raise ValueError("price and stock are not below zero")
        with self._lock:
            if price_cents is not None:
                self._prices[ident] = price_cents
            if stock is not None:
                self._stocks[ident] = stock

    def sell(self, count: int) -> None:
        """Some of the stock goes; what is sold out is delivered anew."""
        with self._lock:
            for ident in self._rng.sample(self._ids, min(count, len(self._ids))):
                left = self._stocks[ident] - self._rng.randrange(1, 4)
                self._stocks[ident] = left if left >= 0 else STOCK_MAX
