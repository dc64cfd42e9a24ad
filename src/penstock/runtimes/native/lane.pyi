class NativeLane:
    """A thread that runs C functions one after the other, without the interpreter.

    `wake`: an eventfd, which becomes readable when `results` has something new. Raises OSError
    where no thread can be started.
    """

    def __init__(self, wake: int) -> None: ...
    def submit(self, id: int, function: int, argument: int, /) -> None:
        """`function`: the address of an `int (*)(void *)`; `argument`: the pointer that it gets,
        which must stay valid until `results` returns `id`. Raises RuntimeError when 16 runs are
        open, and after `close`."""

    def results(self) -> list[tuple[int, int]]:
        """(id, what the function returned) of all runs that have ended, in order. The caller reads
        the eventfd first."""

    def close(self) -> None:
        """Returns when all runs have ended; `results` has them still. Idempotent."""

    @property
    def native_id(self) -> int:
        """The kernel's number of the thread."""
