"""What of two answers is compared, and what becomes of a difference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

SAME, LISTED, UNLISTED = "same", "differ-listed", "differ-unlisted"


def _code(answer: Any) -> Any:
    return type(answer).__name__


def _tensors(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer
    return {side: answer.get(side) for side in ("inputs", "outputs")} | {
        "name": answer.get("name"), "versions": answer.get("versions")
    }  # fmt: skip


def _versions(answer: Any) -> Any:
    return answer.get("versions") if isinstance(answer, Mapping) else answer


def _config(answer: Any) -> Any:
    """What a client reads of it; how Triton tunes itself is no part of it."""
    if not isinstance(answer, Mapping):
        return answer
    wanted = ("name", "platform", "backend", "max_batch_size", "version_policy", "dynamic_batching",
              "model_transaction_policy", "default_model_filename", "parameters")  # fmt: skip
    told = {name: answer[name] for name in wanted if name in answer}
    groups = [(each.get("count"), each.get("kind")) for each in answer.get("instance_group", ())]
    return told | {side: _plain_tensors(answer, side) for side in ("input", "output")} | {
        "instance_group": groups
    }  # fmt: skip


def _plain_tensors(answer: Mapping[str, Any], side: str) -> Any:
    return [
        [each.get(key) for key in ("name", "data_type", "dims", "reshape")]
        for each in answer.get(side, ())
    ]


def _counts(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer
    return [
        {
            "name": each.get("name"), "version": each.get("version"),
            "inferences": int(each.get("inference_count", 0)),
            "executions": int(each.get("execution_count", 0)),
            **{
                kind: int(each.get("inference_stats", {}).get(kind, {}).get("count", 0))
                for kind in ("success", "fail", "cache_hit", "cache_miss")
            },
            "batches": [[int(one.get("batch_size", 0)),
                         int(one.get("compute_infer", {}).get("count", 0))]
                        for one in each.get("batch_stats", ())],
        }
        for each in answer.get("model_stats", ())
    ]  # fmt: skip


def _index(answer: Any) -> Any:
    """Without the models of other cases, which lie there unloaded."""
    rows = answer.get("models", ()) if isinstance(answer, Mapping) else answer
    ready = [each for each in rows if each.get("state") == "READY"]
    return [{name: value for name, value in each.items() if value != ""} for each in ready]


def _log(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer
    return {name: value for name, value in answer.items() if name not in ("log_file", "log_format")}


def _batching(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer
    dynamic = {"dynamic_batching": {}} if "dynamic_batching" in answer else {}
    return {"max_batch_size": answer.get("max_batch_size"), **dynamic}


#: View -> what of an answer is compared.
VIEWS: dict[str, Callable[[Any], Any]] = {
    "": lambda answer: answer, "code": _code, "tensors": _tensors, "config": _config,
    "grpc-config": lambda answer: _config(
        answer.get("config") if isinstance(answer, Mapping) else answer
    ),
    "counts": _counts, "index": _index, "log": _log, "versions": _versions,
    "batching": _batching,
}  # fmt: skip


def _numbers(answer: Any) -> Any:
    """With FP32 in JSON as FP32: 0.1 and the digits of the double that it becomes are one."""
    if isinstance(answer, list):
        return [_numbers(each) for each in answer]
    if not isinstance(answer, Mapping):
        return answer
    if answer.get("datatype") == "FP32" and isinstance(answer.get("data"), list):
        return dict(answer) | {"data": [str(np.float32(each)) for each in answer["data"]]}
    return {name: _numbers(each) for name, each in answer.items()}


@dataclass(frozen=True, slots=True)
class Row:
    """One ask, and what both sides answered to it."""

    name: str  #: case, door and label
    theirs: Any
    ours: Any
    view: str = ""

    @property
    def is_same(self) -> bool:
        (code, answer), (our_code, our_answer) = self.theirs, self.ours
        view = VIEWS[self.view]
        return bool(code == our_code and _numbers(view(answer)) == _numbers(view(our_answer)))


@dataclass(frozen=True, slots=True)
class Difference:
    """A way in which answers differ, kept on purpose or known; a row of the reference."""

    what: str
    here: str
    triton: str
    why: str
    rows: tuple[str, ...]  #: patterns of `Row.name`
    codes: tuple[Any, Any] | None = None  #: Triton's and ours; None: any

    def covers(self, row: Row) -> bool:
        if self.codes is not None and self.codes != (row.theirs[0], row.ours[0]):
            return False
        return any(fnmatchcase(row.name, pattern) for pattern in self.rows)


def judge(
    rows: Iterable[Row], listed: Iterable[Difference]
) -> list[tuple[Row, str, Difference | None]]:
    """Each row with SAME, LISTED and by what, or UNLISTED."""
    differences = list(listed)
    judged: list[tuple[Row, str, Difference | None]] = []
    for row in rows:
        if row.is_same:
            judged.append((row, SAME, None))
            continue
        by = next((each for each in differences if each.covers(row)), None)
        judged.append((row, LISTED if by else UNLISTED, by))
    return judged
