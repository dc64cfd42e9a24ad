"""Inputs for comparing a compiled model with its source, and for finding INT8's ranges.

The caller's texts come first. Without them, the samples are a few dozen queries of different
lengths and rows of random tokens: the queries are typical of users, and the random rows cover the
whole vocabulary. Everything is seeded: the same source gives the same samples.

A few inputs with the source's answers stay in the artifact: `proof.npz`.

Another processor's check needs them. They have at most `BYTES_MAX`, come from the compiler's own
inputs (a caller's texts and arrays never leave with an artifact), and include only batches that the
artifact answers within its tolerance where it is compiled, so that a later failure is due to the
other processor.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from penstock.artifacts.description.description import ModelDescription, TensorSpec
from penstock.compile.contract import Options, Parity, Tolerance
from penstock.compile.graphs.graph import Arrays
from penstock.compile.graphs.torch_graph import example_of
from penstock.compile.proof.parity import compare
from penstock.errors import CallerError, ModelError
from penstock.runtimes.tensor_bytes import NUMPY

TEXTS = (
    "wireless headphones",
    "red running shoes size 42",
    "where is my package",
    "how do i return a jacket that does not fit?",
    "Is the second product the same as the first, only in another colour?",
    "usb c",
    "a",
    "Best gift for a 10 year old who likes dinosaurs, under 30 euros",
    "stainless steel water bottle 500 ml, leak proof, with a straw and a handle for school",
    "THE SCREEN CAME BROKEN AND NOBODY ANSWERS!!!",
    "café crème machine à espresso",
    "iphone 15 pro max 256gb case clear magsafe",
    "The battery lasts two days. The camera is fine in daylight, and poor at night. I would buy "
    "it again at this price, but not at the full one, since the charger has to be bought apart.",
    "cheap flights",
    "4.5 stars or more",
    "what is the difference between oled and qled",
)
_CALIBRATION_ROWS = 300  #: NNCF's own default
_HELD_OUT_ROWS = 100
_RANDOM_LENGTHS = (3, 8, 16, 17, 32, 64, 127)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Batches of inputs."""

    parity: tuple[Arrays, ...]  #: batches of one and of several rows
    calibration: tuple[Arrays, ...]  #: one row each; () = INT8 of weights only
    kept: tuple[Arrays, ...] = ()  #: batches that the artifact may contain: none of a caller's


class TextSamples:
    """Makes inputs from texts with the artifact's own tokenizer."""

    def __init__(
        self,
        tokenizer: Any,
        specs: Sequence[TensorSpec],
        *,
        tokens_max: int,
        pad_id: int,
        pairs: bool,
    ) -> None:
        tokenizer.enable_truncation(max_length=tokens_max)
        self._tokenizer = tokenizer
        self._names = [spec.name for spec in specs]
        self._dtypes = {spec.name: NUMPY[spec.dtype] for spec in specs}
        self._tokens_max = tokens_max
        self._pad_id = pad_id
        self._pairs = pairs

    def make(self, options: Options) -> Samples:
        """The samples. Raises CallerError (`samples-invalid`)."""
        calibration = text_lines(options.calibration) if options.calibration else []
        held_out: list[str] = []
        if len(calibration) >= 10:
            # Every fifth text: the check must have texts that set no range.
            held_out = calibration[::5][:_HELD_OUT_ROWS]
            calibration = [text for at, text in enumerate(calibration) if at % 5]
        if options.samples is not None:
            rows = [self._encode(text) for text in text_lines(options.samples)]
        else:
            rows = [self._encode(text) for text in (*TEXTS, *held_out)]
            if not calibration:
                rows += self._random_rows(rows[0])
        ranges = [self._encode(text) for text in calibration[:_CALIBRATION_ROWS]]
        return Samples(
            parity=tuple(self._batch(part) for part in _parts(rows)),
            calibration=tuple(self._batch([row]) for row in ranges),
            kept=tuple(self._batch(part) for part in _parts([*map(self._encode, TEXTS)])),
        )

    def filled(self, rows: int, tokens: int) -> Arrays:
        """A full batch of one shape, for measuring."""
        random = np.random.default_rng(0)
        ids = random.integers(0, self._vocabulary(), (rows, tokens))
        arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        return {
            name: arrays.get(name, np.zeros_like(ids)).astype(self._dtypes[name])
            for name in self._names
        }

    def _vocabulary(self) -> int:
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))

    def _encode(self, text: str) -> tuple[list[int], list[int]]:
        first, tab, second = text.partition("\t")
        if self._pairs:
            # A line without a tab is compared with itself, as in half the pairs of a duplicate
            # check.
            encoding = self._tokenizer.encode(first, second if tab else first)
        elif tab and "token_type_ids" in self._names:
            encoding = self._tokenizer.encode(first, second)
        else:
            encoding = self._tokenizer.encode(text)
        return encoding.ids, encoding.type_ids

    def _random_rows(self, like: tuple[list[int], list[int]]) -> list[tuple[list[int], list[int]]]:
        """Random ids between the special tokens at the start and end of a text."""
        random = np.random.default_rng(1)
        rows = []
        for length in _RANDOM_LENGTHS:
            size = min(length, self._tokens_max)
            for _ in range(3):
                ids = [int(each) for each in random.integers(0, self._vocabulary(), size)]
                ids = [at if at != self._pad_id else like[0][0] for at in ids]
                ids[0], ids[-1] = like[0][0], like[0][-1]
                rows.append((ids, [0] * size))
        return rows

    def _batch(self, rows: Sequence[tuple[list[int], list[int]]]) -> Arrays:
        width = max([1, *(len(ids) for ids, _ in rows)])
        ids = np.full((len(rows), width), self._pad_id, dtype=np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for at, (row, segments) in enumerate(rows):
            ids[at, : len(row)] = row
            mask[at, : len(row)] = 1
            types[at, : len(row)] = segments
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        return {name: arrays[name].astype(self._dtypes[name]) for name in self._names}


def tensor_samples(specs: tuple[TensorSpec, ...], example: Arrays, options: Options) -> Samples:
    """Samples for models of tensors: the caller's .npz, else the source's example and random
    values.

    Raises CallerError (`samples-invalid`).
    """
    if options.calibration is not None and options.calibration.suffix != ".npz":
        raise CallerError(
            "samples-invalid",
            "--calibration holds texts, and this model takes tensors",
            hint="Give an .npz with one array per input, rows first.",
        )
    calibration: tuple[Arrays, ...] = ()
    if options.calibration is not None:
        calibration = _rows_of(_arrays(options.calibration, specs))[:_CALIBRATION_ROWS]
    if options.samples is not None:
        return Samples(parity=(_arrays(options.samples, specs),), calibration=calibration)
    made = [dict(example)]
    if all(spec.shape and spec.shape[0] == -1 for spec in specs):
        made += [example_of(specs, rows=rows, seed=rows) for rows in (1, 3, 8)]
    return Samples(parity=tuple(made), calibration=calibration, kept=tuple(made[1:]))


def _arrays(path: Path, specs: tuple[TensorSpec, ...]) -> Arrays:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {spec.name: file[spec.name] for spec in specs}
    except (OSError, ValueError, KeyError) as error:
        raise CallerError(
            "samples-invalid",
            f"{path}: {error}",
            hint=f"It must be an .npz with the arrays {', '.join(spec.name for spec in specs)}.",
        ) from None


def _rows_of(arrays: Arrays) -> tuple[Arrays, ...]:
    count = min(len(array) for array in arrays.values())
    return tuple(
        {name: array[at : at + 1] for name, array in arrays.items()} for at in range(count)
    )


def _parts(rows: list[Any]) -> list[list[Any]]:
    """Batches of 1, 2, 4, 8, 1, 2 ... rows: alone, and with rows of other lengths."""
    parts, at, turn = [], 0, 0
    while at < len(rows):
        size = (1, 2, 4, 8)[turn % 4]
        parts.append(rows[at : at + size])
        at += size
        turn += 1
    return parts


FILE = "proof.npz"
BYTES_MAX = 256 << 10  #: size of all arrays together
_BATCHES_MAX = 4  #: for texts: of 1, 2, 4 and 8 rows
_FILE_BYTES_MAX = 2 * BYTES_MAX  #: bound of a file to read: arrays, names and headers

Sample = tuple[Arrays, Arrays]  #: (inputs, the source's answer)


def write_samples(
    folder: Path,
    asked: Sequence[Sample],
    ours: Sequence[Arrays],
    description: ModelDescription,
    tolerance: Tolerance,
) -> int:
    """Writes those of `asked` that fit, in order. Returns the number of batches; with 0 there is no
    file."""
    kept: dict[str, np.ndarray] = {}
    count = size = 0
    for (inputs, answer), given in zip(asked, ours, strict=True):
        arrays = _named(count, inputs, answer)
        size += sum(array.nbytes for array in arrays.values())
        if size > BYTES_MAX or count == _BATCHES_MAX:
            break
        if not compare([answer], [given], description, tolerance).failures():
            kept |= arrays
            count += 1
    if count:
        np.savez(folder / FILE, **kept)  # type: ignore[arg-type]
    return count


def read_samples(folder: Path) -> list[Sample]:
    """The samples; [] without a file. Raises ModelError (`proof-unreadable`)."""
    path = folder / FILE
    if not path.is_file():
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _FILE_BYTES_MAX:
                raise ValueError(f"it holds more than {_FILE_BYTES_MAX} bytes")
        with np.load(path, allow_pickle=False) as file:
            found: dict[int, tuple[dict[str, Any], dict[str, Any]]] = {}
            for key in file.files:
                number, kind, name = key.split("/", 2)
                pair = found.setdefault(int(number), ({}, {}))
                pair[("in", "out").index(kind)][name] = file[key]
    except (OSError, ValueError, KeyError, MemoryError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError("proof-unreadable", f"{FILE}: {error}") from None
    return [found[number] for number in sorted(found)]


def compare_samples(
    samples: Sequence[Sample],
    ours: Sequence[Arrays],
    description: ModelDescription,
    tolerance: Tolerance,
) -> Parity:
    """Compares them by the rule of the compile."""
    return compare([answer for _, answer in samples], ours, description, tolerance)


def _named(number: int, inputs: Arrays, answer: Arrays) -> dict[str, np.ndarray]:
    return {
        **{f"{number}/in/{name}": array for name, array in inputs.items()},
        **{f"{number}/out/{name}": array for name, array in answer.items()},
    }


_ROWS_MAX: Final = 2000  #: later lines are not read: a comparison would take hours
_LINE_CHARS_MAX: Final = 100_000


def text_lines(path: Path) -> list[str]:
    """The non-empty lines, at least one. Raises CallerError (`samples-invalid`)."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CallerError(
            "samples-invalid", f"{path}: {error}", hint="Give a UTF-8 file with one text per line."
        ) from None
    texts = [line for line in lines[:_ROWS_MAX] if line.strip()]
    if not texts or max(map(len, texts)) > _LINE_CHARS_MAX:
        raise CallerError(
            "samples-invalid",
            f"{path} holds {'a line that is too long' if texts else 'no text'}",
            hint="Give a UTF-8 file with one text per line; the two texts of a pair are divided "
            "by a tab.",
        )
    return texts
