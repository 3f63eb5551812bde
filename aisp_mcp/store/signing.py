"""The Ed25519 key of this store: created at first use, readable only by its owner, and never copied into anything."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from aisp_mcp.errors import StoreError
from aisp_mcp.store.files import write_once

KEY_FILE = "signing-key"  # 32 raw bytes
SEED_BYTES, SIGNATURE_BYTES = 32, 64


def private_key(home: Path) -> Ed25519PrivateKey:
    """The key of the store in `home`. Raises StoreError KEY_UNSAFE for one that others may read or that is damaged."""
    path = home / KEY_FILE
    if not path.exists():
        with contextlib.suppress(FileExistsError):
            write_once(path, os.urandom(SEED_BYTES))
    about = path.stat()
    if about.st_mode & 0o077 or about.st_uid != os.geteuid():
        raise StoreError(
            "KEY_UNSAFE",
            f"The signing key {path} can be read by others (mode {stat.S_IMODE(about.st_mode):04o}).",
            "Others may have signed with it: delete it to get a new one, and tell all who trust the old fingerprint.",
        )
    seed = path.read_bytes()
    if len(seed) != SEED_BYTES:
        raise StoreError("KEY_UNSAFE", f"{path} is not a signing key.", "Delete it, and a new one is created.")
    return Ed25519PrivateKey.from_private_bytes(seed)


def public_bytes(key: Ed25519PrivateKey) -> bytes:
    """The public key, 32 bytes."""
    return key.public_key().public_bytes_raw()


def fingerprint(public: bytes) -> str:
    """Name of a public key for people: SHA-256 in hexadecimal, 64 digits."""
    return hashlib.sha256(public).hexdigest()


def is_signed(public: bytes, signature: bytes, data: bytes) -> bool:
    """Verify the signature over the data by the owner of a public key."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True
