"""A process gives up rights for good: files, capabilities, the network. The kernel enforces it.

`python -m penstock.runtimes.confinement.confined FD MODULE ARG...` runs MODULE in the sandbox. The
rules are read from FD (JSON of `walls.Walls`). They are applied before any import that starts
threads: such threads would be outside. `python confined.py FD -- PROGRAM ARG...` becomes another
program in the sandbox: the Python of a model's environment runs code of that environment as soon as
it starts, so it must not be the process that makes the sandbox. `python confined.py` (no arguments)
only leaves the network: its exit status says whether this machine can do that.

* *Files*, by Landlock: all that the process does not name, for its children too. The rules hold for
  the calling thread and those that it starts, so call `restrict` before the first thread.
* *Capabilities*, of which a root process has all: some of them would get around Landlock
  (CAP_PERFMON reads the memory of any process) or undo it.
* *The network*: the process gets a network namespace of its own, which has only a loopback device:
  no other machine, no port of this one, no abstract Unix socket of others. A filter of system calls
  forbids kinds of sockets that ignore namespaces (vsock, which reaches the host of a virtual
  machine), and io_uring, which could open them in spite of the filter. Still possible: sockets that
  it was given, and Unix sockets with a path that its user may open.

Imports the standard library alone: it runs in any interpreter, also loaded by its path. Sources:
the kernel's userspace-api/landlock and userspace-api/seccomp_filter, the pages
network_namespaces(7) and user_namespaces(7).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import platform
import runpy
import socket
import stat
import struct
import sys
from collections.abc import Iterable

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 38, 22
_PR_CAPBSET_DROP = 24
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4

# Files and capabilities

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_VERSION_FLAG = 1
_RULE_PATH = 1
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


def landlock_version() -> int:
    """The version of the kernel's interface; 0 where it is missing or switched off."""
    try:
        return _checked("syscall", _CREATE, None, 0, _VERSION_FLAG)
    except (OSError, AttributeError):
        return 0


def restrict(read: Iterable[str], write: Iterable[str]) -> bool:
    """Restricts this thread to what is below `read` (to read and execute) and below `write`
    (everything).

    Ignores paths that do not exist. False where the kernel lacks Landlock: then nothing has
    changed. Raises OSError where the kernel has it and it fails.
    """
    known = landlock_version()
    if not known:
        return False
    handled = _ALL.get(known, _ALL_NEWEST)
    attributes = struct.pack("=QQQ", handled, 0, _SCOPED if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = _checked("syscall", _CREATE, attributes, size, 0)
    try:
        for paths, allowed in ((read, READ), (write, EVERYTHING)):
            for path in paths:
                _allow(rules, path, allowed & handled)
        _checked("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _checked("syscall", _RESTRICT, rules, 0)
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
            _checked("syscall", _ADD_RULE, rules, _RULE_PATH, struct.pack("=Qi", allowed, place), 0)
        except OSError:
            return  # a kind of file that has no rules, such as a pipe
    finally:
        os.close(place)


# The network

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_MODE_FILTER = 2

#: Machine -> (audit architecture, numbers of the calls socket and io_uring_setup).
_MACHINES = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
_X32 = 0x40000000  #: marks calls of x86_64's x32 interface in their number
#: Socket families that a namespace isolates: Unix, IPv4, IPv6, netlink.
_FAMILIES = (1, 2, 10, 16)

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000


def leave_network() -> None:
    """For this process and all that it starts from now on. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    try:
        _checked("unshare", _NEWNET)
    except PermissionError:  # an ordinary user may do it in a user namespace of its own
        _checked("unshare", _NEWUSER | _NEWNET)
        maps = {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in ({"setgroups": "deny"} | maps).items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    # Without the loopback device, a model only can't connect to itself by TCP.
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_one:
        fcntl.ioctl(any_one, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", _IFF_UP))
    _filter_families()


def _filter_families() -> None:
    """Refuses sockets of other families as if the kernel did not have them."""
    machine = _MACHINES.get(platform.machine())
    if machine is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    architecture, make_socket, io_uring = machine
    refuse = [(_RETURN, 0, 0, _REFUSE | errno.EAFNOSUPPORT)]
    allow = [(_RETURN, 0, 0, _ALLOW)]
    families = [(_EQUAL, len(_FAMILIES) - at, 0, family) for at, family in enumerate(_FAMILIES)]
    program = [
        (_LOAD, 0, 0, 4),  # the architecture
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_LOAD, 0, 0, 0),  # the call's number
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_EQUAL, 0, 1, io_uring),
        (_RETURN, 0, 0, _REFUSE | errno.ENOSYS),
        (_EQUAL, 0, len(_FAMILIES) + 2, make_socket),
        (_LOAD, 0, 0, 16),  # its first argument
        *families, *refuse, *allow,
    ]  # fmt: skip
    code = b"".join(struct.pack("=HBBI", *step) for step in program)
    held = ctypes.create_string_buffer(code, len(code))
    head = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(held))
    )
    _checked("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _checked("prctl", _PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(head), 0, 0)


def _checked(function: str, *arguments: int | bytes | None) -> int:
    """Calls a function of the C library. Raises OSError with its errno."""
    call = getattr(ctypes.CDLL(None, use_errno=True), function)
    given = [
        ctypes.c_char_p(each) if isinstance(each, bytes) else ctypes.c_long(each or 0)
        for each in arguments
    ]
    result = int(call(*given))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def main() -> None:
    told, module, *arguments = sys.argv[1:]
    with open(int(told), "rb") as file:
        walls = json.load(file)
    try:
        if not walls["network"]:
            leave_network()  # must come first: it needs capabilities
        drop_capabilities(walls["drop"])
        if walls["files"]:
            restrict(walls["read"], walls["write"])
    except OSError as error:
        sys.stderr.write(f"the model's process can't be confined: {error}\n")
        sys.exit(1)
    if module == "--":
        try:
            os.execv(arguments[0], arguments)  # noqa: S606 - no shell is wanted
        except OSError as error:
            sys.exit(f"{arguments[0]} can't be run: {error.strerror or error}")
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main()
    else:
        try:
            leave_network()
        except OSError as error:
            sys.exit(str(error))
