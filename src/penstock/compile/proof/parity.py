"""How far the artifact's answers are from the source's: pure arithmetic on two lists of answers.

It compares what a client would see: probabilities of a classifier, directions of an embedding, and
numbers in relation to the largest of them. A label that the source itself decides by less than the
tolerance is not counted at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from penstock.artifacts.description.description import ModelDescription
from penstock.compile.contract import Parity, Tolerance
from penstock.compile.graphs.graph import Arrays

_UNITS = {
    "classification": "probability",
    "embedding": "cosine distance",
    "regression": "relative",
    "tensor": "relative",
}
_OF_TASK = {
    "text-classification": "classification",
    "pair-classification": "classification",
    "text-regression": "regression",
    "feature-extraction": "embedding",
}


def compare(
    reference: Sequence[Arrays],
    ours: Sequence[Arrays],
    description: ModelDescription,
    tolerance: Tolerance,
) -> Parity:
    """Compares batches of answers in the same order, by output name."""
    kinds = kinds_of(description, list(reference[0]))
    largest, means, agreements, samples = 0.0, [], [], 0
    for name, kind in kinds.items():
        pairs = [
            (np.asarray(a[name], dtype=np.float64), np.asarray(b[name], dtype=np.float64))
            for a, b in zip(reference, ours, strict=True)
        ]
        if any(a.shape != b.shape for a, b in pairs):
            return _failed(kinds, tolerance)
        differences, agreement = _difference(kind, pairs, tolerance)
        if differences.size:
            # a NaN anywhere must give a NaN: max() would lose it
            largest = float(np.maximum(largest, np.max(differences)))
            means.append(float(np.mean(differences)))
        if agreement is not None:
            agreements.append(agreement)
        samples = max(samples, sum(len(a) if a.ndim else 1 for a, _ in pairs))
    units = sorted({_UNITS[kind] for kind in kinds.values()})
    return Parity(
        unit=", ".join(units),
        samples=samples,
        difference_max=largest,
        difference_mean=float(np.max(means)) if means else 0.0,
        agreement=min(agreements) if agreements else None,
        tolerance=tolerance,
    )


def kinds_of(description: ModelDescription, outputs: Sequence[str]) -> dict[str, str]:
    """Output name -> classification, embedding, regression or tensor."""
    if description.task == "multi-head":
        return {head.output: head.task for head in description.heads}
    if description.task in _OF_TASK:
        return {outputs[0]: _OF_TASK[description.task]}
    return dict.fromkeys(outputs, "tensor")


def _difference(
    kind: str, pairs: list[tuple[np.ndarray, np.ndarray]], tolerance: Tolerance
) -> tuple[np.ndarray, float | None]:
    if kind == "classification":
        return _of_classes(pairs, tolerance)
    if kind == "embedding":
        return np.concatenate([_cosine_distance(a, b) for a, b in pairs]), None
    scale = max([1.0, *(float(np.abs(a).max()) for a, _ in pairs if a.size)])
    return np.concatenate([(np.abs(a - b) / scale).ravel() for a, b in pairs]), None


def _of_classes(
    pairs: list[tuple[np.ndarray, np.ndarray]], tolerance: Tolerance
) -> tuple[np.ndarray, float | None]:
    differences, equal, decided = [], 0, 0
    for a, b in pairs:
        theirs, ours = _probabilities(a), _probabilities(b)
        differences.append(np.abs(theirs - ours).ravel())
        ranked = np.sort(theirs, axis=-1)
        clear = ranked[:, -1] - ranked[:, -2] > tolerance.difference_max
        same = theirs.argmax(axis=-1) == ours.argmax(axis=-1)
        decided += int(clear.sum())
        equal += int((same & clear).sum())
    return np.concatenate(differences), equal / decided if decided else None


def _probabilities(logits: np.ndarray) -> np.ndarray:
    """Probabilities of both classes for a single logit, which is a binary classifier's."""
    if logits.shape[-1] == 1:
        one = 1.0 / (1.0 + np.exp(-logits))
        return np.asarray(np.concatenate([one, 1.0 - one], axis=-1))
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def _cosine_distance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    product = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = (a * b).sum(axis=-1) / np.where(product == 0.0, 1.0, product)
    return np.asarray(np.clip(1.0 - cosine, 0.0, 2.0).ravel())


def _failed(kinds: dict[str, str], tolerance: Tolerance) -> Parity:
    """The result for answers of different shapes: nothing is equal."""
    return Parity(
        unit=", ".join(sorted({_UNITS[kind] for kind in kinds.values()})),
        samples=0,
        difference_max=float("inf"),
        difference_mean=float("inf"),
        agreement=None,
        tolerance=tolerance,
    )
