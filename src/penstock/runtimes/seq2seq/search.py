"""Greedy and beam search for one request: logits of its rows in, its rows' next tokens out.

The results are those of transformers' `generate` for a batch of one, step by step: the same order
of logits processors, candidates, tie breaks (the lower index) and stop rules, so a model gives the
same text here. Source: `GenerationMixin._sample` and `_beam_search` of transformers 5. A search
sees logits and tokens; it must not know caches, rows or other requests.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from penstock.errors import ModelError
from penstock.runtimes.seq2seq.request import GenerationRequest

_NEVER = np.float32(-1.0e9)  # the score that `generate` gives a beam that must not be chosen


class Search(Protocol):
    """`tokens`: the answer so far; with beam search only when it is finished."""

    tokens: list[int]
    next_tokens: np.ndarray  #: [rows] int32: the token for each row in the next step
    order: np.ndarray | None  #: the row that each row continues; None: each continues itself

    def advance(self, logits: np.ndarray) -> bool:
        """Takes logits [rows, vocabulary], and may overwrite them; True when finished."""


def search(request: GenerationRequest, start_id: int, eos_ids: tuple[int, ...]) -> Search:
    """The search for a request. The first `next_tokens` are the decoder's start."""
    if request.num_beams == 1:
        return Greedy(request, start_id, eos_ids)
    return Beams(request, start_id, eos_ids)


class Greedy:
    __slots__ = ("_eos", "_request", "_start", "next_tokens", "order", "tokens")

    def __init__(self, request: GenerationRequest, start_id: int, eos_ids: tuple[int, ...]) -> None:
        self._request = request
        self._eos = eos_ids
        self._start = start_id
        self.tokens: list[int] = []
        self.next_tokens = np.array([start_id], dtype=np.int32)
        self.order: np.ndarray | None = None

    def advance(self, logits: np.ndarray) -> bool:
        row, request, made = logits[0], self._request, len(self.tokens)
        _process(row, request, made, self._eos, self._start, self.tokens)
        token = int(row.argmax())
        if not math.isfinite(row[token]) and not _is_forced(request, made):
            raise not_finite()
        self.tokens.append(token)
        self.next_tokens[0] = token
        return token in self._eos or made + 1 == request.max_new_tokens


class Beams:
    """The best of `num_beams` hypotheses; candidates are `1 + eos ids` (at least 2) per beam."""

    __slots__ = (
        "_eos", "_finished", "_finished_scores", "_finished_tokens", "_improvable", "_keep",
        "_made", "_request", "_running", "_scores", "_start", "next_tokens", "order", "tokens",
    )  # fmt: skip

    def __init__(self, request: GenerationRequest, start_id: int, eos_ids: tuple[int, ...]) -> None:
        beams = request.num_beams
        self._request = request
        self._eos = eos_ids
        self._start = start_id
        self._keep = max(2, 1 + len(eos_ids)) * beams
        self._made = 0
        self._running: list[list[int]] = [[] for _ in range(beams)]
        self._scores = np.full(beams, _NEVER, dtype=np.float32)
        self._scores[0] = 0.0  # all beams begin alike: only the first may fork
        self._finished_tokens: list[list[int]] = [[] for _ in range(beams)]
        self._finished_scores = np.full(beams, _NEVER, dtype=np.float32)
        self._finished = np.zeros(beams, dtype=bool)
        self._improvable = True
        self.tokens: list[int] = []
        self.next_tokens = np.full(beams, start_id, dtype=np.int32)
        self.order: np.ndarray | None = None

    def advance(self, logits: np.ndarray) -> bool:
        request = self._request
        log_probs = _log_softmax(logits)
        if np.isnan(log_probs[:, 0]).any():
            raise not_finite()
        for at, row in enumerate(log_probs):
            _process(row, request, self._made, self._eos, self._start, self._running[at])
        log_probs += self._scores[:, None]
        vocabulary = log_probs.shape[1]
        best = _top(log_probs.reshape(-1), self._keep)
        scores = log_probs.reshape(-1)[best]
        beams, ids = best // vocabulary, best % vocabulary
        candidates = [
            [*self._running[beam], token]
            for beam, token in zip(beams.tolist(), ids.tolist(), strict=True)
        ]
        self._made += 1
        ends = np.isin(ids, self._eos) | (self._made == request.max_new_tokens)

        running_scores = scores + ends.astype(np.float32) * _NEVER
        chosen = _top(running_scores, request.num_beams)
        self._running = [candidates[at] for at in chosen]
        self._scores = running_scores[chosen]
        self.next_tokens = ids[chosen].astype(np.int32)
        order = beams[chosen]
        self.order = None if (order == np.arange(len(order))).all() else order

        self._collect(candidates, scores, ends)
        over = self._is_over(ends)
        if over:
            self.tokens = self._finished_tokens[0]
        return over

    def _collect(self, candidates: list[list[int]], scores: np.ndarray, ends: np.ndarray) -> None:
        """Merges hypotheses that just ended into the best finished ones."""
        request = self._request
        just_ended = ends & (np.arange(len(ends)) < request.num_beams)
        scores = scores / np.float32(self._made**request.length_penalty)
        if self._finished.all() and request.early_stopping is True:
            scores = scores + _NEVER
        if not self._improvable:
            scores = scores + _NEVER
        scores = scores + (~just_ended).astype(np.float32) * _NEVER
        merged = np.concatenate([self._finished_scores, scores.astype(np.float32)])
        kept = _top(merged, request.num_beams)
        tokens = self._finished_tokens + candidates
        self._finished_tokens = [tokens[at] for at in kept]
        self._finished_scores = merged[kept]
        self._finished = np.concatenate([self._finished, just_ended])[kept]

    def _is_over(self, ends: np.ndarray) -> bool:
        request = self._request
        length = self._made
        if request.early_stopping == "never" and request.length_penalty > 0.0:
            length = request.max_new_tokens
        reachable = self._scores[0] / np.float32(length**request.length_penalty)
        worst = np.where(self._finished, self._finished_scores.min(), _NEVER)
        self._improvable = self._improvable and bool((reachable > worst).any())
        full = bool(self._finished.all()) and request.early_stopping is True
        return not self._improvable or full or bool(ends.all())


def not_finite() -> ModelError:
    return ModelError(
        "not-a-number",
        "the model's scores are not finite for this input",
        hint="The weights are damaged, or overflow in this precision: compile with f32.",
    )


def _is_forced(request: GenerationRequest, made: int) -> bool:
    return (made == 0 and request.forced_bos_token_id is not None) or (
        made + 1 == request.max_new_tokens and request.forced_eos_token_id is not None
    )


def _process(
    row: np.ndarray,
    request: GenerationRequest,
    made: int,
    eos: tuple[int, ...],
    start_id: int,
    tokens: list[int],
) -> None:
    """Applies the logits processors of `generate` to one row's scores, in its order."""
    if request.no_repeat_ngram_size:
        banned = _repeats([start_id, *tokens], request.no_repeat_ngram_size)
        if banned:
            row[banned] = -np.inf
    if made < request.min_new_tokens:
        for token in eos:
            row[token] = -np.inf
    if made == 0 and request.forced_bos_token_id is not None:
        _force(row, request.forced_bos_token_id)
    if made + 1 == request.max_new_tokens and request.forced_eos_token_id is not None:
        _force(row, request.forced_eos_token_id)


def _force(row: np.ndarray, token: int) -> None:
    row[:] = -np.inf
    row[token] = 0.0


def _repeats(tokens: list[int], size: int) -> list[int]:
    """Tokens that would complete an n-gram that exists already."""
    tail = tokens[len(tokens) - size + 1 :]
    return [
        tokens[at + size - 1]
        for at in range(len(tokens) - size + 1)
        if tokens[at : at + size - 1] == tail
    ]


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def _top(values: np.ndarray, count: int) -> np.ndarray:
    """Indexes of the largest, best first; the lower index where values are equal."""
    if len(values) > 4 * count:
        # All values equal to the smallest chosen one must take part in the tie break.
        floor = np.partition(values, len(values) - count)[len(values) - count]
        places = np.flatnonzero(values >= floor)
    else:
        places = np.arange(len(values))
    order = np.argsort(-values[places], kind="stable")[:count]
    return np.asarray(places[order])
