"""A signed archive: a tar file followed by the 64 bytes of an Ed25519 signature (RFC 8032) over all of it.

Every byte is covered, including headers and padding, and `tar` still opens the file. manifest.json is the first member:
it contains the size and SHA-256 of every other member, and the public key.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable, Mapping
from typing import Any

from aisp_mcp.errors import Refused
from aisp_mcp.store.signing import SIGNATURE_BYTES, is_signed

FORMAT = 1
MANIFEST = "manifest.json"
MAX_BYTES = 1 << 30


def pack(
    files: Mapping[str, bytes], facts: Mapping[str, Any], public_key: bytes, sign: Callable[[bytes], bytes]
) -> bytes:
    """The archive. facts: further fields of the manifest; sign: from data to the owner's signature of it."""
    listed = {name: {"bytes": len(data), "sha256": sha256(data)} for name, data in sorted(files.items())}
    manifest = {**facts, "format": FORMAT, "key": public_key.hex(), "files": listed}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        _add(archive, MANIFEST, json.dumps(manifest, indent=1, allow_nan=False).encode())
        for name in listed:
            _add(archive, name, files[name])
    data = buffer.getvalue()
    return data + sign(data)


def unpack(raw: bytes) -> tuple[dict[str, Any], dict[str, bytes]]:
    """(manifest, files by name) of an archive that is unchanged since it was signed. Raises Refused NO_BUNDLE,
    BUNDLE_ALTERED.
    """
    data, signature = raw[:-SIGNATURE_BYTES], raw[-SIGNATURE_BYTES:]
    files = _members(data)
    try:
        manifest = json.loads(files.pop(MANIFEST))
        key, written = bytes.fromhex(manifest["key"]), manifest["format"]
        listed = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _no_bundle("it has no manifest that can be read") from error
    if not is_signed(key, signature, data):
        raise Refused("BUNDLE_ALTERED", "The bundle was changed after it was signed.", "Do not trust it.")
    if written != FORMAT:
        raise _no_bundle(f"its format is {written}, this version reads {FORMAT}")
    if listed != {name: (len(content), sha256(content)) for name, content in files.items()}:
        raise Refused("BUNDLE_ALTERED", "Its files differ from its manifest.", "Do not trust it.")
    return manifest, files


def sha256(data: bytes) -> str:
    """In hexadecimal, 64 digits."""
    return hashlib.sha256(data).hexdigest()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o444
    archive.addfile(member, io.BytesIO(data))


def _members(data: bytes) -> dict[str, bytes]:
    """Plain files by name; nothing is written to the disk. Raises Refused NO_BUNDLE."""
    contents: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
            for member in archive:
                reader = archive.extractfile(member) if member.isreg() and not member.issparse() else None
                if reader is None or member.name in contents:
                    raise _no_bundle(f"{member.name[:120]!r} does not belong in one")
                contents[member.name] = reader.read()
    except (tarfile.TarError, ValueError, OSError, EOFError, OverflowError) as error:
        raise _no_bundle(f"it cannot be read ({error})") from error
    return contents


def _no_bundle(why: str) -> Refused:
    return Refused("NO_BUNDLE", f"This is not a bundle, or a damaged one: {why}.", "A bundle's name ends in .aisp.tar.")
