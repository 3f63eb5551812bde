"""Complete arguments of prompts and resource templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import mcp_types as types

from aisp_mcp.assist.ask import pages
from aisp_mcp.front.mcp.parts.base import Caller, Part
from aisp_mcp.store.artifacts import list_artifacts

MAX_VALUES = 100
RECENT = 200  # latest jobs and runs whose ids are offered

Arguments = Mapping[str, str]


class Completions(Part):
    """Completes targets, chapters, ids, files and pages that the caller may see."""

    def complete(self, params: types.CompleteRequestParams, caller: Caller) -> types.Completion | None:
        """Return values that start with the typed text, then values that contain it."""
        values = _VALUES.get(params.argument.name)
        if values is None:
            return None
        arguments = (params.context.arguments if params.context else None) or {}
        typed = params.argument.value.casefold()
        matches = list(dict.fromkeys(value for value in values(caller, arguments) if typed in value.casefold()))
        matches.sort(key=lambda value: not value.casefold().startswith(typed))  # stable: the newest stays first
        return types.Completion(values=matches[:MAX_VALUES], total=len(matches), has_more=len(matches) > MAX_VALUES)


def _targets(caller: Caller, _: Arguments) -> Iterable[str]:
    from aisp_mcp.suites.discovery import find_targets, full_name

    for target in find_targets(caller.ctx.settings.bench_roots):
        yield target.name
        yield from (full_name(target, variant) for variant in target.variants)


def _chapters_and_targets(caller: Caller, arguments: Arguments) -> Iterable[str]:
    from aisp_mcp.suites.discovery import find_targets

    yield from dict.fromkeys(target.chapter for target in find_targets(caller.ctx.settings.bench_roots))
    yield from _targets(caller, arguments)


def _jobs(caller: Caller, _: Arguments) -> Iterable[str]:
    jobs, _cursor = caller.ctx.store.list_jobs(limit=RECENT, principal=caller.ctx.sees)
    return [job.id for job in jobs]


def _runs(caller: Caller, arguments: Arguments) -> Iterable[str]:
    """Runs that no other argument names, since comparing a run with itself is pointless."""
    return [run for run in caller.ctx.store.run_ids(RECENT, caller.ctx.sees) if run not in arguments.values()]


def _files(caller: Caller, arguments: Arguments) -> Iterable[str]:
    if "job_id" not in arguments:
        return []
    job = caller.ctx.jobs.get(arguments["job_id"], caller.ctx.sees)
    return [file.name for file in list_artifacts(caller.ctx.store.run_dir(job.id))]


def _pages(_: Caller, __: Arguments) -> Iterable[str]:
    return pages.titles()


_VALUES: dict[str, Callable[[Caller, Arguments], Iterable[str]]] = {
    "target": _targets,
    "suspect": _chapters_and_targets,
    "job_id": _jobs,
    "run_id": _runs,
    "against": _runs,
    "name": _files,
    "page": _pages,
}
