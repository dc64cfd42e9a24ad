"""The second archive of SageMaker's toolkits: code that is stored apart from the weights.

Where the SDK does not repack an artifact (scikit-learn, XGBoost, a plain `Model`), its environment
names an archive on S3 as SAGEMAKER_SUBMIT_DIRECTORY. Both together make what a repacked artifact
is: the weights, and the code in `code/`, which replaces the artifact's own `code/`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from penstock.artifacts.cache.cache import ArtifactCache, CacheEntry
from penstock.artifacts.files.budget import disk_errors

SUBMIT_DIRECTORY: Final = "SAGEMAKER_SUBMIT_DIRECTORY"
_FOLDER: Final = "code"


def code_uri(environment: Mapping[str, str]) -> str:
    """URI of the code; empty where it is in the artifact, or there is none."""
    named = environment.get(SUBMIT_DIRECTORY, "")
    return named if named.startswith("s3://") else ""


def together(weights: str, code: str) -> str:
    """A stamp for both, which changes when either does; empty where one of them has none."""
    return f"{weights}+{code}" if weights and code else ""


def joined(
    weights: CacheEntry | None, code: CacheEntry, cache: ArtifactCache, *, what: str
) -> CacheEntry:
    """The cache entry of weights and code together. Its files are links: no byte is copied.

    Raises `CallerError` (`artifact-disk-full`, `artifact-disk-failed`).
    """
    parts = f"penstock weights and code 1\n{weights.digest if weights else ''} {code.digest}\n"
    digest = hashlib.sha256(parts.encode()).hexdigest()
    found = cache.find(digest)
    if found is not None:
        return found
    with cache.staging(what) as staging:
        files = staging / "files"
        with disk_errors(what, staging):
            files.mkdir()
            if weights is not None:
                _link(weights.root, files, leaving_out=_FOLDER)
            _link(code.root, files / _FOLDER)
        return cache.commit(files, digest, what=what)


def _link(source: Path, to: Path, *, leaving_out: str = "") -> None:
    for folder, folders, names in os.walk(source):
        relative = Path(folder).relative_to(source)
        if leaving_out and relative == Path() and leaving_out in folders:
            folders.remove(leaving_out)
        (to / relative).mkdir(parents=True, exist_ok=True)
        for name in names:
            os.link(Path(folder, name), to / relative / name, follow_symlinks=False)
