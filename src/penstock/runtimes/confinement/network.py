"""A process leaves the machine's network, for itself and all that it starts.

It gets a network namespace of its own, which has only a loopback device: no other machine, no port
of this one, no abstract Unix socket of others. A filter of system calls forbids kinds of sockets
that ignore namespaces (vsock, which reaches the host of a virtual machine), and io_uring, which
could open them in spite of the filter.

Still possible: sockets that it was given, and Unix sockets with a path that its user may open.

Imports the standard library alone: it runs in any interpreter, before the first thread. As a
program (`python network.py`) its exit status says whether this machine can do it. Sources: the
pages network_namespaces(7) and user_namespaces(7), the kernel's userspace-api/seccomp_filter.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
import sys

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 38, 22
_MODE_FILTER = 2

#: Machine -> (audit architecture, numbers of the calls socket and io_uring_setup).
_MACHINES = {"x86_64": (0xC000003E, 41, 425), "aarch64": (0xC00000B7, 198, 425)}
_X32 = 0x40000000  #: marks calls of x86_64's x32 interface in their number
#: Socket families that a namespace isolates: Unix, IPv4, IPv6, netlink.
_FAMILIES = (1, 2, 10, 16)

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000


def leave() -> None:
    """Applies for good, to this process and all that it starts from now on. Raises OSError."""
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(_NEWNET)
    except PermissionError:  # an ordinary user may do it in a user namespace of its own
        _unshare(_NEWUSER | _NEWNET)
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
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, 0)
    _prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(head))


def _unshare(flags: int) -> None:
    if ctypes.CDLL(None, use_errno=True).unshare(flags):
        _raise()


def _prctl(option: int, value: int, pointer: int) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(pointer), 0, 0):
        _raise()


def _raise() -> None:
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    try:
        leave()
    except OSError as error:
        sys.exit(str(error))
