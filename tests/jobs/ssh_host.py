"""An sshd of one's own on the loopback, and an `ssh` that knows nothing but its keys."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from waiting import PATIENCE_S, until

INSTALL = "apt-get install -y --no-install-recommends openssh-server openssh-client"
SSHD, SSH = shutil.which("sshd") or "/usr/sbin/sshd", shutil.which("ssh")


def missing() -> str | None:
    """The reason why no sshd can be started here, with the command that helps; None if one can."""
    lacking = [name for name in (SSHD, "ssh", "ssh-keygen") if shutil.which(name) is None]
    return f"no {', '.join(lacking)}: {INSTALL}" if lacking else None


class Host:
    """This machine as another one: its own home folder, keys and port. prefix: the command that starts it there."""

    def __init__(
        self, folder: Path, address: str = "127.0.0.1", user: str | None = None, prefix: Sequence[str] = ()
    ) -> None:
        self.folder, self.address, self.user, self.prefix = folder, address, user, prefix
        self.there = folder / "there"  # HOME of what runs there
        self.there.mkdir(parents=True)
        if user:
            shutil.chown(self.there, user)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]
        self.url = f"ssh://{user}@{address}:{self.port}" if user else f"ssh://{address}:{self.port}"
        self._daemon: subprocess.Popen[bytes] | None = None
        for name in ("host_key", "user_key", "wrong_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(words, check=True, stdin=subprocess.DEVNULL)
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
        key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[{address}]:{self.port} {key}")
        self.use_key("user_key")
        program = folder / "bin" / "ssh"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {SSH} -F {folder}/config "$@"\n')
        program.chmod(0o700)

    def use_key(self, name: str) -> None:
        """Write the configuration that this ssh reads, and no other one."""
        lines = {
            "IdentityFile": self.folder / name,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.folder / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null",
        }
        (self.folder / "config").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))

    def start(self) -> None:
        """Start sshd, which forks for each connection."""
        lines = {
            "Port": self.port,
            "ListenAddress": self.address,
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": self.folder / "authorized_keys",
            "PidFile": "none",
            "UsePAM": "no",
            "StrictModes": "no",
            "PasswordAuthentication": "no",
            "PermitRootLogin": "prohibit-password",
            "SetEnv": f"HOME={self.there} XDG_CACHE_HOME={self.there}/.cache XDG_DATA_HOME={self.there}/.local",
            "MaxStartups": 100,
        }
        (self.folder / "sshd_config").write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where it separates privileges
        with open(self.folder / "sshd.log", "ab") as out:
            words = [*self.prefix, SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self._daemon = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        until(self._listens)

    @property
    def pid(self) -> int:
        """The daemon's."""
        assert self._daemon
        return self._daemon.pid

    def stop(self) -> None:
        """End the daemon and every connection."""
        if self._daemon:
            self.cut()
            self._daemon.terminate()
            self._daemon.wait(PATIENCE_S)
            self._daemon = None

    def cut(self) -> int:
        """End every connection, as a network that goes away does; returns how many there were."""
        assert self._daemon
        sessions = [
            int(pid) for pid in Path(f"/proc/{self._daemon.pid}/task/{self._daemon.pid}/children").read_text().split()
        ]
        for pid in sessions:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)
        return len(sessions)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.address, self.port)) == 0
