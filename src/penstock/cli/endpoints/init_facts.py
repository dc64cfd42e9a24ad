"""What `penstock init` reads from a model's file, which it never executes: the packages that it was
made with, a request that it answers, and what its owner has to add."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from penstock.artifacts.detection.pickles import PickleFacts, pickle_facts, requirements
from penstock.artifacts.detection.torch_files import EXPORTED, WEIGHTS, kind_of
from penstock.errors import CallerError

TEXT: Final = "where is my order"
_QUESTION: Final = {"question": TEXT, "context": "Your order is on its way to you."}
#: Ends of architectures' names whose pipelines take a text.
_OF_TEXTS: Final = ("ForSequenceClassification", "ForTokenClassification", "ForCausalLM")
#: Packages whose parts take something else than rows of numbers, though a part behind them does.
_NOT_ROWS: Final = ("sklearn.pipeline", "sklearn.compose", "sklearn.feature_extraction")


def sklearn_requirements(path: Path) -> list[str]:
    """The libraries of a pickle, in the versions that the file names. Raises CallerError."""
    facts = _pickle(path)
    version = facts.versions.get("scikit-learn")
    own = f"scikit-learn=={version}" if version else "scikit-learn"
    lines = {*requirements(facts), own, "joblib", "numpy"}
    if any(line.startswith("numpy<") for line in lines):
        lines.remove("numpy")
    return sorted(lines)


def sklearn_sample(path: Path) -> str:
    """A row of zeros for a model that takes rows of numbers; "" for any other."""
    facts = _pickle(path)
    takes_rows = facts.features and not facts.columns
    if not takes_rows or any(name.startswith(_NOT_ROWS) for name in facts.names):
        return ""
    return json.dumps({"inputs": [[0] * facts.features]})


def _pickle(path: Path) -> PickleFacts:
    facts = pickle_facts(path)
    if facts is None:
        raise CallerError(
            "file-unusable",
            f"{path.name} is no file of pickle or joblib",
            hint="Other files need no code: penstock deploy NAME FOLDER, with the file in FOLDER.",
        )
    return facts


def is_weights(path: Path) -> bool:
    """Whether PyTorch wrote tensors without the module that they belong to. Raises CallerError."""
    kind = kind_of(path)
    if kind == EXPORTED:
        raise CallerError(
            "file-unusable",
            f"{path.name} is a program of torch.export, which needs no code",
            hint="penstock deploy NAME FOLDER, with the file in FOLDER, serves it as it is.",
        )
    return kind == WEIGHTS


def hugging_face_sample(folder: Path) -> str:
    """A request for the folder's task; "" for one that takes no text, or is not known."""
    config = _json(folder / "config.json")
    name = str(next(iter(config.get("architectures") or ()), ""))
    if name.endswith(_OF_TEXTS):
        return json.dumps({"inputs": TEXT})
    if name.endswith("ForQuestionAnswering"):
        return json.dumps({"inputs": _QUESTION})
    mask = _json(folder / "tokenizer_config.json").get("mask_token")
    mask = mask.get("content") if isinstance(mask, dict) else mask
    if name.endswith("ForMaskedLM") and mask:
        return json.dumps({"inputs": f"where is my {mask}"})
    return ""


def _json(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        value = json.loads(path.read_text())
        return value if isinstance(value, dict) else {}
    return {}
