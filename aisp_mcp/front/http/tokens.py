"""Bearer tokens (RFC 6750), created here or read from a private file. Only their digests stay in memory."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from pathlib import Path

from mcp.server.auth.provider import AccessToken

from aisp_mcp.errors import Refused, UsageError

MIN_CHARS = 32
MAX_FILE = 65_536
PRINCIPAL = "http"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_RECIPE = "(umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(32))' > FILE)"


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


class Tokens:
    """Principals by the SHA-256 digest of their token: a `TokenVerifier` of the protocol library."""

    def __init__(self, tokens: dict[str, str]) -> None:
        """tokens: token to principal."""
        self._principals = {_digest(token): principal for token, principal in tokens.items()}

    def principal(self, token: str) -> str | None:
        """Return the token's principal. Compares every digest in constant time, so that timing reveals nothing."""
        match = None
        digest = _digest(token)
        for known_digest, principal in self._principals.items():
            if hmac.compare_digest(known_digest, digest):
                match = principal
        return match

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the library's record of the token, without the token itself."""
        principal = self.principal(token)
        return None if principal is None else AccessToken(token="", client_id=principal, scopes=[])


def read_tokens(path: Path) -> dict[str, str]:
    """Read principals by token from lines `TOKEN` or `NAME TOKEN`; # begins a comment.

    A named token has the principal `http:NAME`, the one without a name `http`. Raises Refused TOKEN_FILE_OPEN if
    other users may read the file, and UsageError BAD_TOKEN_FILE.
    """
    tokens: dict[str, str] = {}
    for number, line in enumerate(_private_text(path).splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        name, token = ("", words[0]) if len(words) == 1 else (words[0], words[-1])
        principal = f"{PRINCIPAL}:{name}" if name else PRINCIPAL
        if len(words) > 2 or (name and not _NAME.fullmatch(name)):
            raise _bad(path, f"line {number} is not 'TOKEN' or 'NAME TOKEN'")
        if len(token) < MIN_CHARS or not _TOKEN.fullmatch(token):
            raise _bad(path, f"the token in line {number} is not {MIN_CHARS} or more letters, digits and -._~+/")
        if token in tokens or principal in tokens.values():
            raise _bad(path, f"line {number} repeats a name or a token")
        tokens[token] = principal
    if not tokens:
        raise _bad(path, "it contains no token")
    return tokens


def _private_text(path: Path) -> str:
    """Read the file through the same descriptor that was checked, so that it cannot be replaced in between."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise _bad(path, "it is not a regular file")
            if status.st_mode & 0o077 or status.st_uid not in (os.geteuid(), 0):
                raise Refused(
                    "TOKEN_FILE_OPEN",
                    f"Other users may read or own {path} (mode {stat.S_IMODE(status.st_mode):04o}).",
                    f"chmod 600 {path}, and replace the tokens if someone may have read them.",
                )
            return file.read(MAX_FILE).decode("ascii")
    except OSError as error:
        raise _bad(path, f"{error.strerror}") from None
    except UnicodeDecodeError:
        raise _bad(path, "it is not plain ASCII text") from None


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _bad(path: Path, reason: str) -> UsageError:
    return UsageError("BAD_TOKEN_FILE", f"--token-file {path}: {reason}.", f"Create one with {_RECIPE}")
