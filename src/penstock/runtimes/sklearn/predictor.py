"""scikit-learn's models in a worker: skops files, and pickles that are trusted."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, Final

from penstock.errors import ModelError
from penstock.runtimes.python import estimators

_SHOWN_MAX: Final = 10


def load(path: Path, init: dict[str, Any]) -> estimators.EstimatorPredictor:
    """Raises ModelError: `artifact-untrusted`, `model-unreadable`."""
    estimators.library("sklearn", "scikit-learn")
    if zipfile.is_zipfile(path):
        return estimators.EstimatorPredictor(_skops(path, bool(init.get("trusted"))))
    return estimators.EstimatorPredictor(estimators.unpickled(path, init))


def _skops(path: Path, trusted: bool) -> Any:
    """The object of a skops file. Types that skops does not trust by itself, some of scikit-learn's
    among them, need an artifact that is trusted."""
    skops = estimators.library("skops.io", "skops")
    try:
        unknown = list(skops.get_untrusted_types(file=path))
        if unknown and not trusted:
            more = f" and {len(unknown) - _SHOWN_MAX} more" if len(unknown) > _SHOWN_MAX else ""
            raise ModelError(
                "artifact-untrusted",
                f"{path.name} has types that skops does not trust: "
                f"{', '.join(unknown[:_SHOWN_MAX])}{more}",
                hint="If it is your own: penstock deploy NAME FOLDER --trust (or "
                "PENSTOCK_TRUST_ARTIFACT=true in the Environment of CreateModel).",
            )
        return skops.load(path, trusted=unknown)
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(
            "model-unreadable",
            f"{path.name} can't be loaded here: {type(error).__name__}: {str(error)[:300]}",
            hint="Save it again by skops.io.dump, or use the versions that made it.",
        ) from None
