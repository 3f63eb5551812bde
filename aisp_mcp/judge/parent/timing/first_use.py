"""Modules that a candidate imports at its first call, found in a process of its own before anything is measured.

Where memory decides, modules of a first use are no memory of a call: a hundred megabytes of a compiler's, say. All
workers import these modules before they are ready, so that the prepared program holds them in every role. Their size is
measured, not believed. The names are disclosed.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.protocol.roles import Role
from aisp_mcp.judge.protocol.words import TRACE

REHEARSAL = -2  # index of that replicate, which uses the memory of the first one
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def note_imports(session: Session) -> None:
    """Leave the names in the disclosed facts, as "imports". Raises ComparisonAborted."""
    driver = Driver(session, REHEARSAL)
    try:
        driver.start()
        driver.attach()
        driver.prepare()
        driver.wait_ready()
        driver.fill({Role.CANDIDATE: 1})
        driver.run_round(Role.CANDIDATE, 1, TRACE)
        with suppress(ValueError):
            said = json.loads(driver.workers[Role.CANDIDATE].control.read_text())
            names = [name for name in said if isinstance(name, str) and MODULE.fullmatch(name)]
            session.opened["facts"]["imports"] = names
        session.log.append("imports", names=session.opened["facts"].get("imports", []))
    finally:
        driver.close()
