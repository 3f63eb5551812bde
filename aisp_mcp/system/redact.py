"""Remove secrets from text before it leaves the machine.

Three filters, because each alone misses some: known token formats, values of revealing names, and credentials in URLs
and headers. When in doubt, redaction removes text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

MASK = "[redacted]"

_FORMATS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",  # PEM, OpenSSH, PGP
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",  # AWS access key ids
    r"\bgh[pousr]_[A-Za-z0-9]{20,}\b|\bgithub_pat_[A-Za-z0-9_]{20,}\b",  # GitHub
    r"\bglpat-[A-Za-z0-9_-]{16,}",  # GitLab
    r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"\bhooks\.slack\.com/services/[A-Za-z0-9/]+",
    r"\bsk-[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic (sk-ant-)
    r"\bhf_[A-Za-z0-9]{16,}\b",  # Hugging Face
    r"\bnvapi-[A-Za-z0-9_-]{16,}",  # NVIDIA NGC
    r"\bAIza[0-9A-Za-z_-]{30,}",  # Google
    r"\bya29\.[0-9A-Za-z_-]{16,}",
    r"\bnpm_[A-Za-z0-9]{20,}\b",
    r"\bpypi-[A-Za-z0-9_-]{16,}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{10,}\b",  # Stripe
    r"\bSG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",  # SendGrid
    r"\bdckr_pat_[A-Za-z0-9_-]{16,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web tokens
)
_NAMED = re.compile(
    r"""(?ix)
    (?P<name>["']?[\w.-]*
      (?:secret|token(?!iz)|passw(?:or)?d|passphrase|pwd|api[_-]?key|access[_-]?key|account[_-]?key|private[_-]?key
        |credential|auth(?:orization)?|cookie|session[_-]?id|webhook|[_-]key(?![\w]))
    [\w.-]*["']?)
    (?P<between>\s*[=:]\s*(?!=)|\s+)
    (?P<value>(?:bearer|basic|token)\s+\S+|"[^"\n]*"|'[^'\n]*'|[^\s,;"'}\]]+)
    """
)
# A blank between name and value separates only after an option: "--token abc", but not "token counts are".
_OPTION = re.compile(r"^-{1,2}")
_NETRC = re.compile(r"(?i)\b(login\s+\S+\s+password)\s+\S+")
_URL = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+@|\b([a-z][a-z0-9+.-]*://)[^\s/@:]{12,}@")
_HEADER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9+/=._~-]{8,}")
_KNOWN = re.compile("|".join(f"(?:{pattern})" for pattern in _FORMATS), re.DOTALL)


def redact(text: str, hostnames: tuple[str, ...] = ()) -> str:
    """The text without anything that looks like a secret; given host names are replaced by HOST."""
    clean = _KNOWN.sub(MASK, text)
    clean = _URL.sub(lambda m: f"{m[1] or m[2]}{MASK}@", clean)
    clean = _NETRC.sub(lambda m: f"{m[1]} {MASK}", clean)
    clean = _NAMED.sub(_named, clean)
    clean = _HEADER.sub(lambda m: f"{m[1]} {MASK}", clean)
    for name in hostnames:
        if len(name) > 1:
            clean = re.sub(rf"(?i)(?<![\w-]){re.escape(name)}(?![\w-])", "HOST", clean)
    return clean


def _named(match: re.Match[str]) -> str:
    name, between, value = match["name"], match["between"], match["value"]
    if not between.strip() and not _OPTION.match(name):
        return match[0]
    if MASK in value:
        return match[0]
    return f"{name}{between}{MASK}"


def redact_tree(value: Any, hostnames: tuple[str, ...] = ()) -> Any:
    """The same for every text in a JSON-like value; a value under a revealing key is removed entirely."""
    if isinstance(value, str):
        return redact(value, hostnames)
    if isinstance(value, Mapping):
        return {key: _entry(str(key), item, hostnames) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_tree(item, hostnames) for item in value]
    return value


def _entry(key: str, item: Any, hostnames: tuple[str, ...]) -> Any:
    if isinstance(item, str) and item and redact(f"{key}={item}") != f"{key}={item}":
        return redact(f"{key}={item}", hostnames).partition("=")[2]
    return redact_tree(item, hostnames)


def own_hostnames() -> tuple[str, ...]:
    """The names of this machine, longest first."""
    import socket

    full = socket.gethostname()
    names = {full, full.partition(".")[0], os.environ.get("HOSTNAME", "")}
    return tuple(sorted((name for name in names if name and name != "localhost"), key=len, reverse=True))
