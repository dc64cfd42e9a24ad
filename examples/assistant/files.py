"""What the two measuring scripts leave behind: an artifact without its papers, and their figures.

Serves `judge_chat.py` and `judge_search.py`; knows no model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def keep(artifact: Path, folder: Path, names: Sequence[str]) -> dict[str, int]:
    """`folder` with those files of the artifact that are there, and their sizes in bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in names:
        if (artifact / name).is_file():
            shutil.copyfile(artifact / name, folder / name)
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir())}


def write_metrics(path: Path, part: str, figures: dict[str, Any]) -> None:
    """The other parts of the file stay as they are."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps(known | {part: figures}, indent=2) + "\n", encoding="utf-8")
