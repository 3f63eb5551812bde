"""Records of an optimisation session and of bundles: candidates for one target within a budget."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from aisp_mcp.judge.records.measurement import Interval
from aisp_mcp.judge.records.verdict import Comparison, Verdict
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


Stop = Literal["candidates", "minutes", "patience", "finished"]
State = Literal["measuring", "judged", "provisional", "failed", "not_confirmed", "confirmed"]
LOG, SPEC, CANDIDATES, WARM = "log.jsonl", "spec", "candidates", "warm"  # in an optimisation's folder of the store


class Budget(Record):
    """Limits of an optimisation. patience: consecutive submissions that do not improve on the best beyond noise."""

    candidates: int
    minutes: float
    patience: int


class Started(Record):
    """Its fixed facts, the first record of its log. hidden: folders that no candidate may read."""

    id: str
    principal: str
    target: str
    at: float = Field(description="UTC seconds.")
    budget: Budget
    preset: str
    margin: float | None
    baseline: str = Field(description="Name of the specification's file.")
    baseline_sha256: str
    workspace: str
    temporary: bool = Field(description="The workspace was created for it, and is moved into the store at the end.")
    hidden: list[str]
    known: dict[str, str] = Field(description="Earlier solutions: a fingerprint of the code, and its name.")


class Begun(Record):
    """An optimisation as shown to its agent, without the locations of earlier solutions. walls: who may read them."""

    session: str
    target: str
    workspace: str
    budget: Budget
    walls: str


class Submission(Record):
    """One candidate. comparison: the first judgement; again: the second one, only for the best."""

    number: int
    sha256: str
    fingerprint: str = Field(default="", description="Of its code, regardless of comments and names of imports.")
    at: float
    run_id: str
    copied_from: str | None = None
    failure: str | None = None
    comparison: Comparison | None = None
    again: Comparison | None = None
    again_run_id: str | None = None
    confirmed: bool | None = Field(default=None, description="None: not measured again.")


class BoardRow(Record):
    """One candidate in a line. ratio and interval are from the second measurement, if there is one."""

    number: int
    state: State
    verdict: Verdict | None = None
    ratio: float | None = None
    interval: Interval | None = None
    noise_floor: float | None = None
    of_peak: float | None = None
    headroom: float | None = None
    improved: bool = Field(default=False, description="On the best before it, beyond noise.")
    copied_from: str | None = Field(default=None, description="An earlier solution with the same code.")
    sentence: str
    sha256: str
    run_id: str


class Board(Record):
    """The state of an optimisation. Rows: the most proven gain first."""

    session: str
    target: str
    workspace: str
    rows: list[BoardRow]
    best: int | None = Field(description="Number of the candidate that was confirmed; None until one is.")
    provisional: int | None = Field(description="The leader by first measurements, possibly by luck.")
    stop: Stop | None = Field(description="Why no more candidates are accepted.")
    candidates_left: int
    seconds_left: float
    note: str


class Judged(Record):
    """The answer to a submission. passed: it did not fail, and is not slower, incorrect or invalid; null: inconclusive,
    so not known.
    """

    passed: bool | None
    row: BoardRow
    stop: Stop | None
    candidates_left: int
    seconds_left: float


class Finished(Record):
    """The end. passed: a candidate was confirmed."""

    passed: bool
    board: Board
    bundle: Bundle
