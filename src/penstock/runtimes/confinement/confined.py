"""A process gives up rights for good: files, capabilities, the network. The kernel enforces it.

`python -m penstock.runtimes.confinement.confined FD MODULE ARG...` runs MODULE in the sandbox. The
rules are read from FD (JSON of `walls.Walls`). They are applied before any import that starts
threads: such threads would be outside. `python confined.py FD -- PROGRAM ARG...` becomes another
program in the sandbox: the Python of a model's environment runs code of that environment as soon as
it starts, so it must not be the process that makes the sandbox. `python confined.py` (no arguments)
only leaves the network: its exit status says whether this machine can do that.

* *The model's folder* is also /opt/ml/model, where SageMaker's containers have it: in a mount
  namespace of the process a small file system lies over /opt, with what is there already and that
  folder, read-only. The machine's own /opt is never touched. Where the kernel allows no such
  namespace the process goes on without, and `PENSTOCK_NO_CONTAINER_PATHS` says why.
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


# The model's folder as a container has it

_NEWUSER, _NEWNS = 0x10000000, 0x00020000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 1 << 5, 1 << 12, 1 << 14, 1 << 18
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH = 2
_KEPT_FLAGS = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC  #: the same bits in statvfs
_OPT, _ML = "/opt", "ml"
_ENTRIES_MAX = 1000
#: Set where /opt/ml/model is not the model's folder: the reason.
NO_CONTAINER_PATHS = "PENSTOCK_NO_CONTAINER_PATHS"


def show_as_container(model_dir: str) -> None:
    """Shows `model_dir` as /opt/ml/model to this process and its children. Raises OSError.

    What /opt holds stays visible. Call it before the first thread, and before `restrict`: Landlock
    forbids mounts.
    """
    if not os.path.isdir(_OPT) or os.path.islink(_OPT):
        raise OSError(errno.ENOTDIR, f"the machine has no folder {_OPT}")
    _leave(_NEWNS)
    _checked("mount", b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
    # Opened in this namespace, before anything covers them
    opt, model = _opened(_OPT), _opened(model_dir)
    try:
        _checked("mount", b"penstock", _OPT.encode(), b"tmpfs", 0, b"size=1m,mode=755")
        try:
            _bind_entries(opt, _OPT, but=(_ML,))
            _make_ml(opt, model)
            _read_only(f"{_OPT}/{_ML}/model")
            _read_only(_OPT)
        except BaseException:
            _checked("umount2", _OPT.encode(), _MNT_DETACH)
            raise
    finally:
        os.close(opt)
        os.close(model)


def _opened(folder: str) -> int:
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _make_ml(opt: int, model: int) -> None:
    """/opt/ml with the model, its code under the older name, and what the machine has there."""
    ml = f"{_OPT}/{_ML}"
    os.mkdir(ml)
    with contextlib.suppress(OSError):  # the machine has no such folder
        own = os.open(_ML, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opt)
        try:
            _bind_entries(own, ml, but=("model", "code"))
        finally:
            os.close(own)
    os.mkdir(f"{ml}/model")
    _bind(f"/proc/self/fd/{model}", f"{ml}/model")
    os.symlink("model/code" if os.path.isdir(f"{ml}/model/code") else "model", f"{ml}/code")


def _bind_entries(folder: int, place: str, *, but: tuple[str, ...]) -> None:
    """Shows the entries of an open folder below `place`."""
    names = [name for name in os.listdir(folder) if name not in but]
    if len(names) > _ENTRIES_MAX:
        raise OSError(errno.E2BIG, f"{place} has more than {_ENTRIES_MAX} entries")
    for name in names:
        target = f"{place}/{name}"
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(name, dir_fd=folder), target)
            continue
        if stat.S_ISDIR(mode):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        _bind(f"/proc/self/fd/{folder}/{name}", target)


def _bind(source: str, target: str) -> None:
    flags = _MS_BIND | _MS_REC
    _checked("mount", os.fsencode(source), os.fsencode(target), None, flags, None)


def _read_only(place: str) -> None:
    """In a user namespace a mount's other restrictions have to stay as they are."""
    kept = os.statvfs(place).f_flag & _KEPT_FLAGS
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept
    _checked("mount", None, os.fsencode(place), None, flags, None)


def _leave(kind: int) -> None:
    """Gets namespaces of its own, as an ordinary user inside of a user namespace. Raises
    OSError."""
    user, group = os.geteuid(), os.getegid()
    try:
        _checked("unshare", kind)
    except PermissionError:
        _checked("unshare", _NEWUSER | kind)
        maps = {"uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in ({"setgroups": "deny"} | maps).items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


# The network

_NEWNET = 0x40000000
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
    _leave(_NEWNET)
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


def show_or_say_why(model_dir: str) -> None:
    """As `show_as_container`; where it is impossible, a variable says why."""
    try:
        show_as_container(model_dir)
    except OSError as error:
        os.environ[NO_CONTAINER_PATHS] = f"this machine does not allow it ({error.strerror})"
        return
    if os.environ.get("SAGEMAKER_BASE_DIR") == model_dir:  # not a value of the model's own
        os.environ["SAGEMAKER_BASE_DIR"] = f"{_OPT}/{_ML}"


def main() -> None:
    told, module, *arguments = sys.argv[1:]
    with open(int(told), "rb") as file:
        walls = json.load(file)
    if walls["container_model"]:
        show_or_say_why(walls["container_model"])
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
