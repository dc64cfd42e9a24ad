"""Linux's Landlock: a process gives up access to all files that it does not name, with its
children.

It also drops capabilities, of which a root process has all: some of them would get around Landlock
(CAP_PERFMON reads the memory of any process) or undo it.

Imports the standard library alone, so that it can be loaded by its path, in any interpreter, before
anything else. The rules hold for the calling thread and those that it starts, so call `restrict`
before the first thread. Source: the kernel's documentation, userspace-api/landlock.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_RULE_PATH = 1
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

_EXECUTE, _WRITE, _READ, _READ_DIR = 1, 2, 4, 8
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
#: Rights that apply to a file; all others can only be granted below a directory.
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL
#: Version of the interface -> all rights that it can refuse.
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_ALL_NEWEST = (1 << 16) - 1  #: from version 5 on: also ioctl on devices
#: From version 6 on: no abstract Unix sockets and no signals out of the domain.
_SCOPED = 3

READ = _EXECUTE | _READ | _READ_DIR
EVERYTHING = _ALL_NEWEST


def version() -> int:
    """The version of the kernel's interface; 0 where it is missing or switched off."""
    try:
        number = _syscall(_CREATE, None, 0, _VERSION_FLAG)
    except (OSError, AttributeError):
        return 0
    return int(number)


def restrict(read: Iterable[str], write: Iterable[str]) -> bool:
    """Restricts this thread to what is below `read` (to read and execute) and below `write`
    (everything).

    Ignores paths that do not exist. False where the kernel lacks Landlock: then nothing has
    changed. Raises OSError where the kernel has it and it fails.
    """
    known = version()
    if not known:
        return False
    handled = _ALL.get(known, _ALL_NEWEST)
    attributes = struct.pack("=QQQ", handled, 0, _SCOPED if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = _syscall(_CREATE, attributes, size, 0)
    try:
        for paths, allowed in ((read, READ), (write, EVERYTHING)):
            for path in paths:
                _allow(rules, path, allowed & handled)
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _syscall(_RESTRICT, rules, 0)
    finally:
        os.close(rules)
    return True


def drop_capabilities(numbers: Iterable[int]) -> None:
    """Drops capabilities for good. Has no effect on a process without any."""
    library = ctypes.CDLL(None, use_errno=True)
    dropped = 0
    for number in numbers:
        dropped |= 1 << number
        library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for a process without capabilities
    head = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    sets = ctypes.create_string_buffer(24)
    if library.capget(head, sets):
        raise OSError(ctypes.get_errno(), "capget failed")
    # Effective, permitted and inheritable sets of capabilities 0 to 31, then of those from 32 on.
    words = struct.unpack("=6I", sets.raw)
    kept = [
        word & ~(dropped >> (0 if at < 3 else 32)) & 0xFFFFFFFF for at, word in enumerate(words)
    ]
    library.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    if library.capset(head, struct.pack("=6I", *kept)):
        raise OSError(ctypes.get_errno(), "capset failed")


def everything_but(private: Iterable[str], below: str = "/") -> list[str]:
    """Paths that together contain all below `below`, except what is below `private`, as it is now.

    Files made later directly in a directory on the way to a private one are not included.
    """
    closed = {os.path.realpath(path) for path in private}
    found: list[str] = []
    on_the_way = [below]
    while on_the_way:
        folder = on_the_way.pop()
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            path = os.path.join(folder, name)
            if path in closed or os.path.islink(path):
                continue  # the target of a link is handled at its own place
            if any(each.startswith(path + "/") for each in closed):
                on_the_way.append(path)
            else:
                found.append(path)
    return found


def _allow(rules: int, path: str, allowed: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            allowed &= _OF_FILES
        try:
            _syscall(_ADD_RULE, rules, _RULE_PATH, struct.pack("=Qi", allowed, place), 0)
        except OSError:
            return  # a kind of file that has no rules, such as a pipe
    finally:
        os.close(place)


def _syscall(number: int, *arguments: int | bytes | None) -> int:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    given = [
        ctypes.c_char_p(each) if isinstance(each, bytes) else ctypes.c_long(each or 0)
        for each in arguments
    ]
    result = call(ctypes.c_long(number), *given)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
