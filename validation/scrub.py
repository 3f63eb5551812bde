"""Take out of a document what tells one machine from another: it may be published."""

from __future__ import annotations

import json
import re
from typing import Any

_MARKS = (
    (re.compile(r"(?:GPU|MIG)-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "GPU"),
    (re.compile(r"\b(?:[0-9a-fA-F]{4}){1,2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9]"), "BUS"),
    (re.compile(r"/(?:root|home/[^/\"]+)/[^\"\s]*"), "PATH"),
)


def text(document: dict[str, Any]) -> str:
    """The document as JSON without UUIDs, PCI addresses and paths of home folders."""
    scrubbed = json.dumps(document, indent=1)
    for pattern, mark in _MARKS:
        scrubbed = pattern.sub(mark, scrubbed)
    return scrubbed + "\n"
