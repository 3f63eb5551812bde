"""Files and folders that no isolated program may read: the store, and the usual locations of a user's secrets."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Iterator, Mapping

# Locations of keys and tokens that an ordinary user, or root as the user of a container, can read.
_SYSTEM = (
    *("/run/secrets", "/var/run/secrets", "/run/credentials", "/run/user", "/etc/shadow", "/etc/gshadow", "/etc/ssh"),
    *("/etc/kubernetes", "/etc/ssl/private", "/var/lib/cloud", "/var/lib/docker", "/var/lib/kubelet"),
)
# Variables that name a file or folder with secrets; lists are separated like PATH.
_NAMED = (
    *("AISP_HOME", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AZURE_CONFIG_DIR", "CLOUDSDK_CONFIG"),
    *("DOCKER_CONFIG", "GIT_CONFIG_GLOBAL", "GNUPGHOME", "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN_PATH"),
    *("KUBECONFIG", "NETRC", "NPM_CONFIG_USERCONFIG", "PGPASSFILE", "PIP_CONFIG_FILE", "SSH_AUTH_SOCK"),
    *("XDG_CONFIG_HOME", "XDG_DATA_HOME"),
)
# Folders that every program needs: a link to one of them hides nothing.
_TOP = "bin dev etc home lib lib64 nix opt proc root run sbin sys tmp usr var"
_NEVER = ("/", *(f"/{name}" for name in _TOP.split()), "/dev/shm", "/var/tmp", "/dev/null")


def secret_paths(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Existing paths with links resolved, outermost only: the store, dot-files of the home folder, system locations."""
    homes = _homes(environ)
    never_hidden = {*_NEVER, *homes, *(os.path.dirname(home) for home in homes)}
    candidates = {os.path.realpath(path) for path in _candidates(homes, environ) if os.path.lexists(path)}
    return _outermost(path for path in candidates if path not in never_hidden and os.path.exists(path))


def _homes(environ: Mapping[str, str]) -> list[str]:
    """The home folder according to the environment and to the system; either may be missing."""
    homes = [environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a container may run as a user without an entry
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    return sorted({os.path.realpath(path) for path in homes if path.startswith("/") and os.path.isdir(path)})


def _candidates(homes: list[str], environ: Mapping[str, str]) -> Iterator[str]:
    yield from _SYSTEM
    for name in _NAMED:
        yield from (os.path.abspath(path) for path in environ.get(name, "").split(os.pathsep) if path)
    for name in ("token", "stored_tokens"):
        yield os.path.join(environ.get("HF_HOME") or "/nowhere", name)
    for home in homes:
        try:
            yield from (os.path.join(home, name) for name in os.listdir(home) if name.startswith("."))
        except OSError:  # a folder that we cannot list, the program cannot list either
            continue


def _outermost(paths: Iterator[str]) -> list[str]:
    outermost: list[str] = []
    for path in sorted(paths):
        if not any(path.startswith(above + "/") for above in outermost):
            outermost.append(path)
    return outermost
