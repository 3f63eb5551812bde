"""Records of bundles."""

from __future__ import annotations

from pydantic import Field

from aisp_mcp.records import Record


class Claim(Record):
    """One verdict in a bundle. confirmed: the best of an optimisation, measured again; None for a run."""

    target: str
    verdict: str
    sentence: str
    run_id: str
    confirmed: bool | None = None


class Bundle(Record):
    """A written bundle. fingerprint: send it to readers separately from the bundle."""

    path: str
    bytes: int
    files: int
    fingerprint: str = Field(description="SHA-256 of the public key that verifies it.")
    claims: list[Claim]
    missing: list[str] = Field(default_factory=list, description="Evidence that was cleaned before.")


class BundleReport(Record):
    """A bundle whose bytes are all as they were signed. The signature shows who vouches for it, not that they measured
    honestly.
    """

    passed: bool
    kind: str = Field(description="run or optimization.")
    fingerprint: str
    key_expected: bool = Field(description="True: the key is the required one. False: any key.")
    created_at: float
    version: str = Field(description="Of aisp, when it was written.")
    machine: str
    files: int
    chains: int = Field(description="Logs whose records each follow from the one before.")
    claims: list[Claim]
    missing: list[str] = Field(default_factory=list)
    note: str
