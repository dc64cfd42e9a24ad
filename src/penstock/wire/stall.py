"""Detects a frame that takes too long to arrive: its head was broken, or its sender has stopped.

A broken head that looks valid makes its reader take all that follows for its payload, so the
connection would be deaf for that long. Arriving bytes prove nothing, since they may be the frames
that are swallowed. So each frame has a time limit.

Time is counted in looks, about one per second, and not in seconds. After a stop of this process
itself (its machine slept, a debugger held it) there is one look; the process then reads what has
arrived, and drops no connection for it.
"""

from __future__ import annotations

from typing import Final

from penstock.wire.frames import FrameDecoder

#: s between two looks.
LOOK_S: Final = 1.0
#: A frame is written at once: if nothing of its rest arrives for this long, nothing will.
LOOKS_MAX: Final = 10
#: Far below the speed of a socket between two processes; the largest frame gets 64 s more, which
#: is longer than any answer may take.
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
        """True: drop the connection. Call it every `LOOK_S` while a frame is incomplete."""
        decoder = self._decoder
        if decoder.between_frames:
            return False
        if decoder.begun != self._begun:
            self._begun = decoder.begun
            self._looks = 0
            self._looks_max = LOOKS_MAX + decoder.awaited_bytes // BYTES_PER_LOOK
        self._looks += 1
        return self._looks > self._looks_max
