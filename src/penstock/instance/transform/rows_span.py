"""A span through a model of this process: records to rows, rows to full batches, answers in order.

Three things run at once: this thread reads, decodes and tokenizes window after window; the lanes
run the batches of windows that are read; the writing thread writes windows whose batches have all
run, in the order of the input. At most `WINDOWS_MAX` windows are held, so memory does not grow with
the span.

Windows and batches depend on the records alone, so a repeated span gives the same bytes, as far as
the model does for the same batch. If a batch fails, bisection finds its guilty records; a refused
record goes to the part's errors with its own reason.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from queue import SimpleQueue
from threading import Event, Lock, Semaphore, Thread
from typing import Final, cast

from penstock import scheduling
from penstock.core.blame.bisection import Action, Bisection, Refuse, RunPart
from penstock.core.jobs.spec import SpanDone
from penstock.core.jobs.windows import Windows, full_batches, windows_of
from penstock.errors import CallerError, ModelError, PenstockError
from penstock.instance import broken, replies
from penstock.instance.engines.rows import RowsEngine, WindowRows
from penstock.instance.transform.call import SpanProgress, TransformCall
from penstock.instance.transform.lane_pool import SpanLanes
from penstock.records.at_work import AtWork
from penstock.records.formats.lines import RecordBlock
from penstock.records.parts import PartWriter


class SpanWindow:
    rows: WindowRows

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.first = 0  #: index in the span of its first record
        self.batches = 0
        self.left = 0  #: batches of it that have not ended
        self.counted = 0  #: records that were reported to progress
        self.ran = Event()  #: set when all its batches have run
        self.refused: dict[int, PenstockError] = {}  #: errors by index in the window
        self._blocks: list[RecordBlock] = []

    def take(self, block: RecordBlock, begin: int, end: int) -> None:
        """Adds the records of a block from index `begin` to before `end`."""
        if begin == end:
            return
        if not self.records:
            self.first = block.first + begin
        self.records += block.records[begin:end]
        self._blocks.append(block)

    def numbers(self) -> range:
        """Numbers in the span of its records."""
        return range(self.first, self.first + len(self.records))

    def offset_of(self, at: int) -> int:
        """Offset of the record at index `at`, in bytes from the object's start."""
        index = self.first + at
        block = next(each for each in reversed(self._blocks) if each.first <= index)
        return block.offset_of(index)


#: One window is read, one runs, and one is written.
WINDOWS_MAX: Final = 3
_WAIT_S: Final = 0.1  #: time between two checks whether the span should go on


class RowsSpan:
    """Call `run` once, on a thread of its own."""

    def __init__(
        self,
        call: TransformCall,
        engine: RowsEngine,
        lanes: SpanLanes,
        progress: SpanProgress,
    ) -> None:
        self._call = call
        self._engine = engine
        self._lanes = lanes
        self._progress = progress
        self._processing = call.processing
        self._asked = call.asked
        self._noted = AtWork(call.parts_uri, call.span) if call.noted else None
        # With notes, few records should be at work: no window is read while another one runs.
        self._room = Semaphore(1 if call.noted else WINDOWS_MAX)
        self._read: SimpleQueue[SpanWindow | None] = (
            SimpleQueue()
        )  #: windows in order, for the writing thread
        self._lock = Lock()

    def run(self) -> SpanDone:
        """When it returns, the part is committed; when it raises, nothing of it is left.

        Raises CallerError where the data does not have the declared format, or a disk fails;
        NotNowError where the span was ended, or may pass later.
        """
        call = self._call
        writer = PartWriter(call.parts_uri, call.span, call.spec.output)
        try:
            self._run(writer)
            self._progress.check()
            summary = writer.commit()
        finally:
            writer.abandon()
            if self._noted is not None:
                self._noted.close()
        return self._progress.done(summary)

    def _run(self, writer: PartWriter) -> None:
        writing = Thread(target=self._write_all, args=(writer,), name="transform-write")
        writing.start()
        try:
            for window in self._windows():
                if not self._begin(window):
                    return
        except Exception as error:  # `check` raises it once all threads have stopped
            self._progress.end(replies.as_error(error, "reading the records"))
        finally:
            self._read.put(None)
            writing.join()

    # Reading

    def _windows(self) -> Iterator[SpanWindow]:
        reader = self._call.reader()
        cut = Windows(windows_of(self._call.span))
        window = SpanWindow()
        with closing(cast(Generator[RecordBlock, None, None], reader.blocks())) as blocks:
            for block in blocks:
                begin = 0
                for end in cut.add([len(record) for record in block.records]):
                    window.take(block, begin, end)
                    yield window
                    window, begin = SpanWindow(), end
                window.take(block, begin, len(block.records))
        if window.records:
            yield window

    def _begin(self, window: SpanWindow) -> bool:
        """Reads a window and passes its batches to the lanes; False where the span ends."""
        while not self._room.acquire(timeout=_WAIT_S):
            if self._progress.ended:
                return False
        if self._progress.ended:
            return False
        inputs, refused = self._inputs(window)
        with self._working(at for at in window.numbers() if at not in self._call.refused):
            rows = window.rows = self._rows_of(inputs)
        window.refused = {**rows.unread, **refused}
        batches = full_batches(rows.lengths, self._engine.rows_spec, kinds=rows.kinds)
        window.batches = window.left = len(batches)
        if not batches:
            window.ran.set()
        self._read.put(window)
        self._lanes.add(partial(self._run_batch, window, batch.rows) for batch in batches)
        return True

    def _rows_of(self, inputs: list[bytes]) -> WindowRows:
        try:
            return self._engine.read(self._asked, inputs)
        except ModelError as error:  # concerns all records: the job's own settings
            raise CallerError(error.code, error.message, hint=error.hint) from error

    def _inputs(self, window: SpanWindow) -> tuple[list[bytes], dict[int, PenstockError]]:
        """The model's inputs, and the errors of records that it can't get."""
        if self._processing.is_plain and not self._call.refused:
            return window.records, {}
        inputs: list[bytes] = []
        refused: dict[int, PenstockError] = {}
        for at, (number, record) in enumerate(zip(window.numbers(), window.records, strict=True)):
            try:
                inputs.append(self._call.model_input(number, record))
            except PenstockError as error:
                refused[at] = error
                inputs.append(b"")
        return inputs, refused

    # Running, on lanes

    def _run_batch(self, window: SpanWindow, rows: tuple[int, ...], lane: int) -> None:
        error = self._try(window, rows, lane)
        if error is None:
            self._over(window)
            return
        halves = Bisection(rows)
        self._carry_out(window, halves, halves.begin(), error)

    def _run_part(self, window: SpanWindow, halves: Bisection, part: RunPart, lane: int) -> None:
        error = self._try(window, part.items, lane)
        actions = halves.passed() if error is None else halves.failed()
        self._carry_out(window, halves, actions, error)

    def _try(self, window: SpanWindow, rows: tuple[int, ...], lane: int) -> PenstockError | None:
        """None: the rows have run, or the span was ended."""
        if self._progress.ended:
            return None
        begin = time.monotonic()
        try:
            with self._working(window.first + window.rows.record_of(row) for row in rows):
                window.rows.run(lane, rows)
        except Exception as error:  # the library's error or ours
            told = replies.as_error(error, "running the model")
            if broken.ends_process(error):  # no record is to blame for what runs after it
                broken.end_now(told)
            return told
        finally:
            with self._lock:
                self._progress.run_s += time.monotonic() - begin
        return None

    def _working(self, records: Iterable[int]) -> AbstractContextManager[None]:
        """Marks these records as at work in the notes, if an instance has ended over this span."""
        return nullcontext() if self._noted is None else self._noted.working(records)

    def _carry_out(
        self,
        window: SpanWindow,
        halves: Bisection,
        actions: list[Action],
        error: PenstockError | None,
    ) -> None:
        """`error`: of the run that has just failed."""
        running = False
        for action in actions:
            if isinstance(action, Refuse):
                assert error is not None
                with self._lock:
                    window.refused.setdefault(window.rows.record_of(action.item), error)
            else:
                running = True
                run = partial(self._run_part, window, halves, action)
                self._lanes.add((run,), first=True)
        if not running:
            self._over(window)

    def _over(self, window: SpanWindow) -> None:
        """A batch of the window has ended, with all its results."""
        with self._lock:
            window.left -= 1
            done = not window.left
            ran = len(window.records) * (window.batches - window.left) // window.batches
            self._progress.records += ran - window.counted
            window.counted = ran
        if done:
            window.ran.set()

    # Writing, on a thread of its own

    def _write_all(self, writer: PartWriter) -> None:
        scheduling.compute()
        while (window := self._read.get()) is not None:
            window.ran.wait()
            if not self._progress.ended:
                try:
                    self._write(window, writer)
                except Exception as error:
                    self._progress.end(replies.as_error(error, "writing the answers"))
            self._room.release()

    def _write(self, window: SpanWindow, writer: PartWriter) -> None:
        answers = window.rows.answers(window.refused.keys())
        run: list[bytes] = []
        for at, answer in enumerate(answers):
            output = window.refused.get(at) or self._output(window, at, answer)
            if isinstance(output, bytes):
                run.append(output)
                continue
            if run:
                writer.write(run)
                run = []
            writer.refuse(window.first + at, window.offset_of(at), output.to_dict())
            self._progress.refused += 1
        if run:
            writer.write(run)
        if not window.batches:  # nothing of it could be read
            with self._lock:
                self._progress.records += len(window.records)

    def _output(
        self, window: SpanWindow, at: int, answer: bytes | PenstockError
    ) -> bytes | PenstockError:
        """The output for a record: the answer to a request with it alone, whatever else its batch
        had."""
        if not isinstance(answer, bytes) or self._processing.is_plain:
            return answer
        try:
            made = self._call.output(window.first + at, window.records[at], answer)
            return made.removesuffix(b"\n")
        except PenstockError as error:
            return error
