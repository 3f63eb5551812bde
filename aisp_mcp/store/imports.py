"""Result files of other tools: measured elsewhere, and separate from runs, which were judged here.

The store knows an import's id, owner and time. The rest of the document is up to the caller's record class.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from aisp_mcp.store.connection import Database, corrupt

AnyImport = TypeVar("AnyImport", bound=BaseModel)


class Document(Protocol):
    """A record that can be stored as an import."""

    @property
    def id(self) -> str: ...
    @property
    def imported_at(self) -> float: ...
    def model_dump_json(self) -> str: ...


class ImportsTable:
    """Part of the store. Every method raises StoreError."""

    db: Database

    def save_import(self, document: Document, principal: str) -> None:
        """Store an import; the same id of the same owner replaces the earlier one."""
        self.db.change(
            "INSERT OR REPLACE INTO imports (id, principal, imported_at, body) VALUES (?, ?, ?, ?)",
            *(document.id, principal, document.imported_at, document.model_dump_json()),
        )

    def list_imports(self, record: type[AnyImport], limit: int = 200, principal: str | None = None) -> list[AnyImport]:
        """Newest first; principal: the owner, None for everybody's."""
        sql = "SELECT id, body FROM imports WHERE (? IS NULL OR principal = ?) ORDER BY seq DESC LIMIT ?"
        imports = []
        for row in self.db.all(sql, principal, principal, limit):
            try:
                imports.append(record.model_validate_json(row["body"]))
            except ValidationError as error:
                raise corrupt(self.db.path, f"import {row['id']!r} is unreadable") from error
        return imports
