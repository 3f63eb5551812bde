"""Wall time of a comparison by phase."""

from __future__ import annotations

import pytest

from aisp_mcp.judge.parent import session
from aisp_mcp.judge.parent.session import PhaseTimer


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> PhaseTimer:
    """One whose clock goes on by a second at each look."""
    now = iter(range(100))
    monkeypatch.setattr(session.time, "monotonic", lambda: next(now))
    return PhaseTimer()


def test_a_phase_within_another_is_part_of_it(account: PhaseTimer) -> None:
    with account.phase("start"):
        with account.phase("end"), account.phase("check"):
            pass
        with account.phase("measure"):
            pass
    with account.phase("check"):
        pass
    assert account.seconds == {"start": 1, "check": 1}


def test_what_ends_with_an_error_is_booked_and_closed(account: PhaseTimer) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="no"), account.phase("start"), account.phase("check"):
            raise ValueError("no")
    assert account.seconds == {"start": 2}
