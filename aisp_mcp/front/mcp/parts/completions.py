"""Values for arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import mcp_types as types

from aisp_mcp.assist.ask import pages
from aisp_mcp.front.mcp.parts.base import Caller, Part
from aisp_mcp.store.artifacts import list_artifacts

MAX_VALUES = 100
KEPT = 200  # ids are offered from the latest so many

Given = Mapping[str, str]


class Completions(Part):
    """Targets, chapters, ids, files and pages, as far as the caller may see them."""

    def complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion | None:
        """Completions that begin with the text typed so far, then what contains it."""
        values = _VALUES.get(params.argument.name)
        if values is None:
            return None
        given = (params.context.arguments if params.context else None) or {}
        typed = params.argument.value.casefold()
        found = list(dict.fromkeys(value for value in values(caller, given) if typed in value.casefold()))
        found.sort(key=lambda value: not value.casefold().startswith(typed))  # stable: the newest stays first
        return types.Completion(values=found[:MAX_VALUES], total=len(found), has_more=len(found) > MAX_VALUES)


def _targets(caller: Caller, _: Given) -> Iterable[str]:
    from aisp_mcp.suites.discovery import find_targets, full_name

    for target in find_targets(caller.ctx.settings.bench_roots):
        yield target.name
        yield from (full_name(target, variant) for variant in target.variants)


def _chapters_and_targets(caller: Caller, given: Given) -> Iterable[str]:
    from aisp_mcp.suites.discovery import find_targets

    yield from dict.fromkeys(target.chapter for target in find_targets(caller.ctx.settings.bench_roots))
    yield from _targets(caller, given)


def _jobs(caller: Caller, _: Given) -> Iterable[str]:
    jobs, _cursor = caller.ctx.store.list_jobs(limit=KEPT, principal=caller.ctx.sees)
    return [job.id for job in jobs]


def _runs(caller: Caller, given: Given) -> Iterable[str]:
    """Those named already are left out: nobody compares a run with itself."""
    return [run for run in caller.ctx.store.run_ids(KEPT, caller.ctx.sees) if run not in given.values()]


def _files(caller: Caller, given: Given) -> Iterable[str]:
    if "job_id" not in given:
        return []
    job = caller.ctx.jobs.get(given["job_id"], caller.ctx.sees)
    return [file.name for file in list_artifacts(caller.ctx.store.run_dir(job.id))]


def _pages(_: Caller, __: Given) -> Iterable[str]:
    return pages.titles()


_VALUES: dict[str, Callable[[Caller, Given], Iterable[str]]] = {
    "target": _targets,
    "suspect": _chapters_and_targets,
    "job_id": _jobs,
    "run_id": _runs,
    "against": _runs,
    "name": _files,
    "page": _pages,
}
