"""Texts through an encoder: tokenize, pad to the bucket, run, softmax or pool.

Padding is masked out, so an answer does not depend on the length of its mates beyond rounding.

Where the description gives buckets, rows are padded too, to powers of two: a compiler specialises
its kernels for each shape it meets (tens of milliseconds on a CPU, measured), so the shapes are
kept few and are met once while the model loads, not under traffic.
"""

from __future__ import annotations

import os
import time
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.artifacts.description import ModelDescription, Tokenizer
from penstock.errors import ModelError
from penstock.instance.codecs.base import CodecModel, Decoded, Tensors
from penstock.instance.codecs.text import TextDecoded, decode_texts
from penstock.instance.lane_threads import LaneThreads
from penstock.instance.request import Item
from penstock.instance.tensor_engine import Results, wrong_rows
from penstock.runtimes.base import TensorRuntime
from penstock.runtimes.dtypes import NUMPY
from penstock.wire.frames import decode_request_meta

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # the cores belong to the lanes

#: Loading waits at most this long for warm-up, and at least for one row in each bucket.
WARM_UP_S_MAX = 1.5

_INPUT_NAMES = ("input_ids", "attention_mask", "token_type_ids")


class TextEngine:
    """As `TensorEngine`; an item's data is a list of token id lists."""

    #: Larger bodies are tokenized on the helper thread: at 1 to 2 MB/s they would stall the loop.
    loop_bytes_max = 8_192

    def __init__(
        self,
        runtime: TensorRuntime,
        description: ModelDescription,
        model: CodecModel,
        model_dir: Path,
        threads: LaneThreads,
    ) -> None:
        self._runtime = runtime
        self._description = description
        self._model = model
        self._threads = threads
        self._width_fixed = _check_inputs(runtime, description)
        self._pad_id = description.tokenizer.pad_id if description.tokenizer else 0
        self._tokenizer = _open_tokenizer(model_dir, description.tokenizer, self._width_fixed)
        self._row_steps: tuple[int, ...] = ()
        if description.batching.buckets:
            self._row_steps = row_steps(description.batching.rows_max)
        self._labels: tuple[str, ...] = ()
        if description.task == "text-classification":
            self._labels = self._checked_labels()
        self._warm_up(time.monotonic() + WARM_UP_S_MAX)

    def _checked_labels(self) -> tuple[str, ...]:
        """One per logit; found by running the model once, which also warms it up."""
        buckets = self._description.batching.buckets
        logits = self._outputs(0, [[self._pad_id]], buckets[0] if buckets else 1)[0]
        count = int(logits.shape[-1])
        labels = self._description.labels
        if not labels:
            return tuple(f"LABEL_{at}" for at in range(count))
        if len(labels) != count:
            raise ModelError(
                "labels-mismatch",
                f"the description names {len(labels)} labels, the model answers {count} scores",
                hint="Give `labels` in model.yaml one name per logit, in their order.",
            )
        return labels

    def _warm_up(self, until: float) -> None:
        """Runs every shape that traffic can bring, small ones first, on every lane."""
        tokens_max = self._description.tokenizer.tokens_max if self._description.tokenizer else 1
        buckets = [min(each, tokens_max) for each in self._description.batching.buckets]
        for rows in self._row_steps:
            for bucket in buckets:
                for lane in range(self._runtime.lanes):
                    if rows > 1 and time.monotonic() > until:
                        return
                    self._outputs(lane, [[self._pad_id] * bucket] * rows, bucket)

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    def decode(self, meta: bytes, body: bytes) -> tuple[Decoded, Any, int]:
        decoded: TextDecoded = decode_texts(
            self._model, self._labels, decode_request_meta(meta), body
        )
        encodings = self._tokenizer.encode_batch(decoded.texts)
        ids = [encoding.ids for encoding in encodings]
        return decoded, ids, max(map(len, ids))

    def cut(self, data: Any, start: int, stop: int) -> Any:
        return data[start:stop]

    def join(self, results: list[Tensors]) -> Tensors:
        return {name: np.concatenate([each[name] for each in results]) for name in results[0]}

    def run(
        self, lane: int, items: list[Item], bucket: int, done: Callable[[Results], None]
    ) -> None:
        self._threads.submit(lane, lambda: self._run_all(lane, items, bucket), done)

    def _run_all(self, lane: int, items: list[Item], bucket: int) -> Results:
        rows = [ids for item in items for ids in item.data]
        outcome = self._try(lane, rows, bucket)
        if isinstance(outcome, Exception):
            if len(items) == 1:
                return [outcome]
            return [self._try(lane, item.data, bucket) for item in items]
        results: Results = []
        at = 0
        for item in items:
            end = at + item.rows
            results.append({name: array[at:end] for name, array in outcome.items()})
            at = end
        return results

    def _try(self, lane: int, rows: list[list[int]], bucket: int) -> Any:
        """The answer's tensors, or the error."""
        try:
            array, mask = self._outputs(lane, rows, bucket)
            if array.ndim < 2:
                return wrong_rows("0", array, len(rows))
            if self._labels:
                return {"score": _softmax(array.astype(np.float32, copy=False))}
            return {"embedding": self._pooled(array.astype(np.float32, copy=False), mask)}
        except Exception as error:  # ours or the library's: the copy tells them apart
            return error

    def _outputs(
        self, lane: int, rows: list[list[int]], bucket: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The model's first output and the attention mask, for texts padded to one length."""
        width = self._width_fixed or max(1, bucket, *map(len, rows))
        count = len(rows)
        padded = self._padded_rows(count)
        ids = np.full((padded, width), self._pad_id, dtype=np.int64)
        mask = np.zeros((padded, width), dtype=np.int64)
        for at, row in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
        ids[count:] = ids[0]
        mask[count:] = mask[0]
        inputs = {}
        for spec in self._runtime.inputs:
            if spec.name == "input_ids":
                array = ids
            elif spec.name == "attention_mask":
                array = mask
            else:
                array = np.zeros_like(ids)
            inputs[spec.name] = array.astype(NUMPY[spec.dtype], copy=False)
        output = next(iter(self._runtime.run(lane, inputs).values()))
        if output.ndim == 0 or output.shape[0] != padded:
            raise wrong_rows("0", output, padded)
        return output[:count], mask[:count]

    def _padded_rows(self, count: int) -> int:
        steps = self._row_steps
        return steps[bisect_left(steps, count)] if steps and count <= steps[-1] else count

    def _pooled(self, array: np.ndarray, mask: np.ndarray) -> np.ndarray:
        embedding = self._description.embedding
        if array.ndim == 3:
            if embedding is not None and embedding.pooling == "cls":
                array = array[:, 0]
            else:
                weights = mask[:, :, None].astype(np.float32)
                array = (array * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1.0)
        if embedding is None or embedding.normalize:
            array = array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), 1e-12)
        return np.ascontiguousarray(array)


def row_steps(rows_max: int) -> tuple[int, ...]:
    """1, 2, 4 ... and `rows_max` itself."""
    steps = [1]
    while steps[-1] * 2 < rows_max:
        steps.append(steps[-1] * 2)
    return tuple(steps) if rows_max <= 1 else (*steps, rows_max)


def _softmax(logits: np.ndarray) -> np.ndarray:
    """A single logit is a binary classifier's: its sigmoid."""
    if logits.shape[1] == 1:
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _check_inputs(runtime: TensorRuntime, description: ModelDescription) -> int:
    """Returns the one length that the graph insists on; 0 where it takes any."""
    names = [spec.name for spec in runtime.inputs]
    unknown = [name for name in names if name not in _INPUT_NAMES]
    if unknown or "input_ids" not in names:
        raise ModelError(
            "inputs-mismatch",
            f"{description.file} takes {', '.join(names)}; a text model takes input_ids and, if it "
            "needs them, attention_mask and token_type_ids",
            hint="Serve it as task `tensor`, or export it with these input names.",
        )
    spec = next(each for each in runtime.inputs if each.name == "input_ids")
    if len(spec.shape) != 2:
        raise ModelError(
            "inputs-mismatch", f"input_ids has shape {list(spec.shape)}, [batch, tokens] is needed"
        )
    return max(spec.shape[1], 0)


def _open_tokenizer(model_dir: Path, spec: Tokenizer | None, width_fixed: int) -> Any:
    import tokenizers  # noqa: PLC0415 - only text models need it

    if spec is None:
        raise ModelError(
            "tokenizer-missing",
            "a text model needs a tokenizer",
            hint="Put tokenizer.json beside the model.",
        )
    path = model_dir / spec.file
    if not path.is_file():
        raise ModelError(
            "tokenizer-missing",
            f"the artifact has no file {spec.file!r}",
            hint="Put the Hugging Face tokenizer.json there.",
        )
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise ModelError(
            "tokenizer-unreadable",
            f"{spec.file}: {str(error)[:300]}",
            hint="It must be a `tokenizers` JSON file, whole.",
        ) from None
    tokens_max = min(spec.tokens_max, width_fixed) if width_fixed else spec.tokens_max
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=tokens_max)
    return tokenizer
