"""System calls that an isolated program may not make, refused by a seccomp filter that cannot be removed.

Some things that the kernel does for a program can be neither limited nor seen from outside: leaving its cores, memory
that belongs to no process, keys that outlive it. Here such calls fail as they do in a kernel that lacks them.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

from aisp_mcp.process import kernel

# Cores: on cores other than its own, a program computes more than it declared.
PLACEMENT = ("sched_setaffinity",)
# Keys in a keyring that existed before the program remain when it ends.
KEYRINGS = ("add_key", "request_key", "keyctl")
# Memory that no process or descriptor reveals: segments and queues, secret memory, buffers registered with a
# ring, descriptor tables of a single thread, files whose descriptor was sent and not received, and what an inode holds
# beside its content: the target of a link, and attributes.
UNACCOUNTED = (
    *("symlink", "symlinkat", "setxattr", "lsetxattr", "fsetxattr", "setxattrat"),
    *("shmget", "msgget", "mq_open", "memfd_secret", "io_uring_setup", "unshare", "clone3"),
    *("sendmsg", "sendmmsg"),  # they carry descriptors: a file in transit belongs to nobody
)

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _FAIL, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data
_CLONE_THREAD, _CLONE_FILES = 0x10000, 0x400
_X32 = 0x40000000  # a second table of calls on x86-64
_SET_MODE_FILTER, _KEEP_SPECULATION = 1, 4


class SyscallArchitecture(NamedTuple):
    """Number of the architecture, and of its system calls."""

    audit: int
    seccomp: int
    clone: int
    numbers: dict[str, int]


_NEW = {"io_uring_setup": 425, "memfd_secret": 447, "clone3": 435, "setxattrat": 463}
_X86 = {"sched_setaffinity": 203, "shmget": 29, "msgget": 68, "mq_open": 240, "unshare": 272, "add_key": 248}
_X86 |= {"request_key": 249, "keyctl": 250, "sendmsg": 46, "sendmmsg": 307, "symlink": 88, "symlinkat": 266}
_X86 |= {"setxattr": 188, "lsetxattr": 189, "fsetxattr": 190}
_ARM = {"sched_setaffinity": 122, "shmget": 194, "msgget": 186, "mq_open": 180, "unshare": 97, "add_key": 217}
_ARM |= {"request_key": 218, "keyctl": 219, "sendmsg": 211, "sendmmsg": 269, "symlinkat": 36}
_ARM |= {"setxattr": 5, "lsetxattr": 6, "fsetxattr": 7}
_ARCHITECTURES = {
    "x86_64": SyscallArchitecture(0xC000003E, 317, 56, _X86 | _NEW),
    "aarch64": SyscallArchitecture(0xC00000B7, 277, 220, _ARM | _NEW),
}


def has_filter() -> bool:
    """True if calls can be forbidden on this architecture."""
    return platform.machine() in _ARCHITECTURES


def forbid(names: Iterable[str]) -> None:
    """Make these calls fail from now on, in this process and everything it starts. Raises OSError.

    Placement fails with EPERM, all others with ENOSYS, to which libraries respond with an alternative. With `unshare`,
    threads that do not share their descriptors are also refused.
    """
    names = list(names)
    about = _ARCHITECTURES.get(platform.machine())
    if not names:
        return
    if about is None:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    program = _program(about, names)
    code = ctypes.create_string_buffer(b"".join(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.syscall("seccomp", about.seccomp, _SET_MODE_FILTER, _KEEP_SPECULATION, header)


def _program(about: SyscallArchitecture, names: list[str]) -> list[bytes]:
    """The filter's instructions: a call of another architecture ends the process, a listed call fails."""
    code = [_load(_ARCHITECTURE), _jump(_EQUAL, about.audit, 1, 0), _return(_KILL), _load(_NUMBER)]
    if about.clone == _ARCHITECTURES["x86_64"].clone:
        code += [_jump(_ANY_BIT, _X32, 0, 1), _return(_KILL)]
    for name in filter(about.numbers.__contains__, names):  # aarch64 has no symlink
        code += [_jump(_EQUAL, about.numbers[name], 0, 1), _return(_FAIL | _error(name))]
    if "unshare" in names:
        code += [_jump(_EQUAL, about.clone, 0, 4), _load(_FIRST_ARGUMENT), _jump(_ANY_BIT, _CLONE_THREAD, 0, 2)]
        code += [_jump(_ANY_BIT, _CLONE_FILES, 1, 0), _return(_FAIL | errno.EPERM)]
    return [*code, _return(_ALLOW)]


def _error(name: str) -> int:
    return errno.EPERM if name in (*PLACEMENT, "unshare") else errno.ENOSYS


def _load(offset: int) -> bytes:
    return struct.pack("HBBI", _LOAD, 0, 0, offset)


def _jump(kind: int, value: int, if_true: int, if_false: int) -> bytes:
    return struct.pack("HBBI", kind, if_true, if_false, value)


def _return(value: int) -> bytes:
    return struct.pack("HBBI", _RETURN, 0, 0, value)
