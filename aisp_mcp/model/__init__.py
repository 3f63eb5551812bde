"""Frozen records that all rooms share. No I/O here."""
