"""The names that pairs written by earlier versions import from here."""

from aisp_mcp.judge.candidate.adapted import Buffer, Slot

__all__ = ["Buffer", "Slot"]
