"""When a frame that has begun takes too long to come: its head was torn, or its sender has stopped.

A torn head that looks like a whole one makes its reader take all that follows for its payload: the
connection would be deaf for as long as that takes. Bytes that still come prove nothing, they may be
the frames that are swallowed; so a frame has a time in which all of it must be there.

Time is counted in looks, about one a second, and not in seconds: a process that was stopped itself
(its machine slept, a debugger held it) takes one look when it goes on, reads what has come
meanwhile, and blames nobody.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.frames import FrameDecoder

#: Between two looks.
LOOK_S: Final = 1.0
#: A frame is written in one go: where nothing of its rest comes for this long, nothing will.
LOOKS_MAX: Final = 10
#: Far below what a socket between two processes carries; the largest frame gets 64 s more, and
#: that is later than any answer may be.
BYTES_PER_LOOK: Final = 16 << 20


class StallWatch:
    """Watches the incomplete frame of one decoder."""

    __slots__ = ("_begun", "_decoder", "_looks", "_looks_max")

    def __init__(self, decoder: FrameDecoder) -> None:
        self._decoder = decoder
        self._begun = 0
        self._looks = 0
        self._looks_max = 0

    def look(self) -> bool:
        """True: the connection is to be dropped. Call it every `LOOK_S` while a frame is cut."""
        decoder = self._decoder
        if decoder.between_frames:
            return False
        if decoder.begun != self._begun:
            self._begun = decoder.begun
            self._looks = 0
            self._looks_max = LOOKS_MAX + decoder.awaited_bytes // BYTES_PER_LOOK
        self._looks += 1
        return self._looks > self._looks_max
