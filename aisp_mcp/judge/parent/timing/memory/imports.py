"""Modules that a first call imports, found and measured in separate processes before the comparison.

In memory benchmarks, modules imported at first use, such as a compiler of a hundred megabytes, do not count as memory
of a call. Each program's workers import those of its first call before they are ready. The baseline's are part of the
specification. Of the candidate's, only modules of the standard library or an installed package count, and they are
never imported into a measured baseline, because an import can change other modules. Their size is measured in a
separate baseline process. The names are disclosed.
"""

from __future__ import annotations

import json
import re
import site
import sys
import sysconfig
from collections.abc import Iterable
from contextlib import suppress
from importlib.machinery import PathFinder

from aisp_mcp.judge.parent.session import Session
from aisp_mcp.judge.parent.timing.driver import Driver
from aisp_mcp.judge.protocol.messages import TRACE
from aisp_mcp.judge.protocol.roles import BASELINES, Role

REHEARSAL, WEIGHING = -2, -4  # indices of these replicates, which use the memory of the first one
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def note_imports(session: Session) -> None:
    """Find the names, and store them in the session and in the disclosed facts. Raises ComparisonAborted."""
    names = _traced(session)
    imports = session.imports
    imports.baseline = names[Role.BASELINE]
    more = [name for name in of_libraries(names[Role.CANDIDATE]) if name not in imports.baseline]
    imports.candidate = [*imports.baseline, *more]
    if more:
        imports.added_bytes = _weighed(session)
    session.opened["facts"]["imports"] = imports.candidate
    session.log.append("imports", baseline=imports.baseline, names=imports.candidate, bytes=imports.added_bytes)


def of_libraries(names: Iterable[str]) -> list[str]:
    """The modules of the standard library and of installed packages."""
    folders = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()]

    def installed(name: str) -> bool:
        top = name.partition(".")[0]
        return top in sys.stdlib_module_names or PathFinder.find_spec(top, folders) is not None

    return [name for name in names if installed(name)]


def _traced(session: Session) -> dict[Role, list[str]]:
    """The modules that a first call of each program imports."""
    driver, modules = Driver(session, REHEARSAL), dict[Role, list[str]]()
    try:
        driver.start()
        driver.attach()
        driver.prepare()
        driver.wait_ready()
        driver.fill({Role.BASELINE: 1, Role.CANDIDATE: 1})
        for role in (Role.BASELINE, Role.CANDIDATE):
            driver.run_round(role, 1, TRACE)
            modules[role] = []
            with suppress(ValueError):
                names = json.loads(driver.workers[role].control.read_text())
                modules[role] = [name for name in names if isinstance(name, str) and MODULE.fullmatch(name)]
        return modules
    finally:
        driver.close()


def _weighed(session: Session) -> int:
    """Bytes that the candidate's modules add to a prepared baseline."""
    driver = Driver(session, WEIGHING)
    bare, laden = BASELINES
    try:
        driver.start()
        driver.attach()
        driver.setup(laden)["imports"] = session.imports.candidate
        driver.prepare()
        driver.wait_ready()
        return max(driver.result.host_peak[laden] - driver.result.host_peak[bare], 0)
    finally:
        driver.close()
