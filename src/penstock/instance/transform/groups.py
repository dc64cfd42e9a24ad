"""Records of a span that share a request body: from their bytes to their written outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import NamedTuple, cast

from penstock.errors import PenstockError
from penstock.instance.transform.call import TransformCall
from penstock.records.bodies import Bodies
from penstock.records.filters import Processing
from penstock.records.formats.block import RecordBlock
from penstock.records.parts import PartWriter


class _GroupEntry(NamedTuple):
    """One record."""

    record: bytes
    block: RecordBlock
    number: int  #: its number in the span
    error: PenstockError | None  #: why the model can't get it; None: it can


class RecordGroup:
    """Records of one body, together with preceding records that the model can't get."""

    def __init__(
        self, entries: list[_GroupEntry], inputs: list[bytes], processing: Processing
    ) -> None:
        self.entries = entries
        self.inputs = inputs  #: the model's inputs, for records that have one
        self._processing = processing
        self._of_input = [at for at, entry in enumerate(entries) if entry.error is None]
        self._errors = {at: entry.error for at, entry in enumerate(entries) if entry.error}
        self._outputs: dict[int, bytes] = {}
        #: Answers that are one output for several records, keyed by the first of them.
        self._whole: dict[int, tuple[bytes, int]] = {}

    @property
    def refused(self) -> int:
        return len(self._errors)

    def numbers(self, items: Iterable[int]) -> Iterator[int]:
        """Numbers in the span of the records with these inputs."""
        return (self.entries[self._of_input[item]].number for item in items)

    def take(self, items: tuple[int, ...], answer: bytes, bodies: Bodies) -> None:
        """Takes the answer to these inputs. Raises ModelError if it must be split by record and
        can't be."""
        places = [self._of_input[item] for item in items]
        if not bodies.needs_parts:
            self._whole[places[0]] = (answer, len(items))
            return
        parts = bodies.parted(answer, len(items))
        for place, part in zip(places, parts, strict=True):
            try:
                record = self.entries[place].record
                self._outputs[place] = self._processing.output(record, part)
            except PenstockError as error:
                self._errors[place] = error

    def refuse(self, item: int, error: PenstockError) -> None:
        self._errors[self._of_input[item]] = error

    def write(self, writer: PartWriter) -> None:
        run: list[bytes] = []
        for place, entry in enumerate(self.entries):
            error = self._errors.get(place)
            if error is None and place in self._outputs:
                run.append(self._outputs[place])
                continue
            if run:
                writer.write(run)
                run = []
            if error is not None:
                offset = entry.block.offset_of(entry.number)
                writer.refuse(entry.number, offset, error.to_dict())
            elif place in self._whole:
                output, records = self._whole[place]
                writer.write([output], records=records)
        if run:
            writer.write(run)


def groups(call: TransformCall, bodies: Bodies) -> Generator[RecordGroup, None, None]:
    """Groups in the order of the input. Raises CallerError, NotNowError: see
    `RecordReader.blocks`."""
    processing = call.processing
    waiting: deque[_GroupEntry] = deque()  #: records that are read and not yet in a group
    blocks = cast(Generator[RecordBlock, None, None], call.reader().blocks())

    def inputs() -> Iterator[bytes]:
        for block in blocks:
            for number, record in enumerate(block.records, block.first):
                try:
                    given = call.model_input(number, record)
                except PenstockError as error:
                    waiting.append(_GroupEntry(record, block, number, error))
                    continue
                waiting.append(_GroupEntry(record, block, number, None))
                yield given

    with closing(blocks):
        for found in bodies.grouped(inputs()):
            entries: list[_GroupEntry] = []
            left = len(found)
            while left:
                entries.append(waiting.popleft())
                left -= entries[-1].error is None
            yield RecordGroup(entries, found, processing)
        if waiting:
            yield RecordGroup(list(waiting), [], processing)
