"""System calls that Python does not wrap, for the launcher of isolated programs. Linux; numbers are the same on all
architectures of the generic table (x86-64, arm64). Each raises OSError.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import socket
import struct

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
MS_BIND, MS_REC, MS_PRIVATE, MS_RDONLY, MS_NOSUID, MS_NODEV = 0x1000, 0x4000, 1 << 18, 1, 2, 4
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION = 0x20080522
_SYS_MOUNT_SETATTR, _SYS_CREATE_RULESET, _SYS_ADD_RULE, _SYS_RESTRICT_SELF = 442, 444, 445, 446
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 1

# Landlock's rights to change files; reading, executing and ioctl are not restricted.
_WRITE_FILE = 1 << 1
_CHANGE = sum(1 << bit for bit in (1, *range(4, 13)))
_REFER, _TRUNCATE, _RESOLVE_UNIX = 1 << 13, 1 << 14, 1 << 16
_NET_BIND_CONNECT = 0b11
_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL = 0b11

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        errno = ctypes.get_errno()
        raise OSError(errno, f"{what}: {os.strerror(errno)}")
    return result


def unshare(flags: int) -> None:
    """Move this process to new namespaces, named by flags; a new pid namespace begins with the next child."""
    _check(_libc.unshare(flags), "unshare")


def prctl(option: int, value: int) -> None:
    """One prctl(2) call."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl {option}")


def syscall(name: str, number: int, *arguments: object) -> int:
    """A system call that neither Python nor the C library names. name: for the message of the OSError."""
    return _check(int(_libc.syscall(number, *arguments)), name)


def socket_option(fd: int, level: int, option: int, size: int) -> bytes:
    """getsockopt(2) of a descriptor, without a socket object, which would query the kernel for its kind first."""
    value, length = ctypes.create_string_buffer(size), ctypes.c_uint(size)
    _check(_libc.getsockopt(fd, level, option, value, ctypes.byref(length)), "getsockopt")
    return value.raw


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2)."""
    encoded = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
    _check(_libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3]), f"mount {target}")


def set_read_only(path: str, on: bool, recursive: bool) -> None:
    """Make a mount, or all mounts below path, read-only or writable. Since Linux 5.12."""
    attributes = ctypes.create_string_buffer(
        struct.pack("QQQQ", *((_MOUNT_ATTR_RDONLY, 0) if on else (0, _MOUNT_ATTR_RDONLY)), 0, 0)
    )
    flags = _AT_RECURSIVE if recursive else 0
    _check(
        _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(path), flags, attributes, ctypes.c_size_t(32)),
        f"mount_setattr {path}",
    )


def raise_loopback() -> None:
    """Switch on the loopback interface of this network namespace: in a new one it is the only interface, and off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def landlock_abi() -> int:
    """Version of Landlock in this kernel; 0 if it is missing or switched off."""
    return max(0, int(_libc.syscall(_SYS_CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def landlock(writable: list[str], network: bool) -> None:
    """Permanently allow this process and its children to change files only below writable, and no TCP or outward
    signals.

    TCP is refused from ABI 4 on, signals and abstract sockets to processes outside from ABI 6 on, and sockets with a
    path from ABI 9 on, except those created by the program itself.
    """
    abi = landlock_abi()
    changes = _CHANGE | (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0)
    fields = [changes | (_RESOLVE_UNIX if abi >= 9 else 0)]
    if abi >= 4:
        fields.append(0 if network else _NET_BIND_CONNECT)
    if abi >= 6:
        fields.append(_SCOPE_ABSTRACT_SOCKET_AND_SIGNAL)
    attributes = ctypes.create_string_buffer(struct.pack(f"{len(fields)}Q", *fields))
    size = ctypes.c_size_t(8 * len(fields))
    ruleset = _check(_libc.syscall(_SYS_CREATE_RULESET, attributes, size, 0), "landlock_create_ruleset")
    for path in writable:
        _allow(ruleset, path, changes)
    for path in ("/dev", "/proc"):  # device nodes; one's own entries
        _allow(ruleset, path, _WRITE_FILE)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _check(_libc.syscall(_SYS_RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, folder))
        _check(_libc.syscall(_SYS_ADD_RULE, ruleset, 1, rule, 0), f"landlock_add_rule {path}")
    finally:
        os.close(folder)


def drop_capabilities() -> None:
    """Drop all capabilities of this process and the programs it executes, even for root; it cannot regain any."""
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:  # beyond the kernel's last one, or an ordinary user with none to drop
            break
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION, 0))
    _check(_libc.capset(header, ctypes.create_string_buffer(24)), "capset")  # effective, permitted, inheritable: none


def close_private() -> None:
    """Close the descriptors that execve() would close: for a program that runs without it."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them
            if fcntl.fcntl(int(name), fcntl.F_GETFD) & fcntl.FD_CLOEXEC:
                os.close(int(name))
