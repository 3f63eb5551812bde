"""The one definition of a tool, from which every front is rendered. No I/O."""

from __future__ import annotations

import difflib
import inspect
import threading
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field

from aisp_mcp.errors import UnknownTool
from aisp_mcp.records import Params, Record
from aisp_mcp.server.context import Context
from aisp_mcp.store.records.job import Job

if TYPE_CHECKING:
    from aisp_mcp.server.charts.answers import Chart


class Effect(StrEnum):
    """Effect of a call on the world. destroys: something that existed is gone; any: that of the tool it calls."""

    READS = "reads"
    RUNS = "runs"
    WRITES = "writes"
    DESTROYS = "destroys"
    ANY = "any"


class Cost(StrEnum):
    """Time that a call takes until it answers or returns a ticket."""

    MS = "ms"
    S = "s"
    MIN = "min"


READS, RUNS, WRITES = Effect.READS, Effect.RUNS, Effect.WRITES
DESTROYS, ANY = Effect.DESTROYS, Effect.ANY
MS, S, MIN = Cost.MS, Cost.S, Cost.MIN

Need = Literal["gpu", "multi_gpu", "ncu", "nsys", "network", "torch"]
# The smallest set of tools that lists a tool to a model. Every listed tool costs context in every conversation.
Listed = Literal["lite", "default", "all"]


@dataclass(frozen=True)
class JobSpec:
    """This tool runs as a job. measures: it holds the measuring lock of the GPUs it uses, or of the CPU.

    timeout_s is the default of the parameter of that name; at that time, the whole process tree is ended. here: the
    reason why it cannot run on another machine.
    """

    timeout_s: float
    measures: bool = False
    here: str = ""


class JobParams(Params):
    """Parameters of every job tool. Explained once, in the server's instructions."""

    wait_s: float = Field(default=20, ge=0, le=45)
    timeout_s: float | None = Field(default=None, gt=0, le=86_400)
    dry_run: bool = False
    confirm: bool = False


class ReadingParams(Params):
    """Parameters of a tool that parses files of any size. A server runs each call in a process, because parsing would
    block it.
    """


class Plan(Record):
    """Answer of a dry run: the command, its limits and its expected cost."""

    argv: list[str]
    timeout_s: float
    resources: list[str]
    estimate_s: float | None = None
    details: dict[str, Any] = Field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """Returned by a tool that waits for jobs: the front waits, without holding a thread. finish(jobs) → result."""

    job_ids: tuple[str, ...]
    timeout_s: float
    finish: Callable[[list[Job]], Any]
    until: Literal["any", "all"] = "all"


@dataclass(frozen=True)
class Ask:
    """Returned by a tool that has had no effect yet and needs a person's consent.

    A front that can ask does, and calls again with confirm=true; otherwise result is the answer, with the question.
    """

    question: str
    result: Any


@dataclass(frozen=True)
class Call:
    """Returned by a tool whose answer is that of another tool. job_env: variables for the job that this creates."""

    tool: str
    args: dict[str, Any]
    job_env: dict[str, str] = field(default_factory=dict)

    def context(self, ctx: Context) -> Context:
        """The context of that call."""
        return ctx.under(ctx.principal, {**ctx.job_env, **self.job_env}) if self.job_env else ctx


@dataclass(frozen=True)
class Tool:
    """One tool. Every front renders it from these fields."""

    fn: Callable[..., Any]
    cli: str
    effect: Effect
    cost: Cost
    job: JobSpec | None
    needs: tuple[Need, ...]
    next: tuple[str, ...]
    aliases: Mapping[str, Mapping[str, Any]]
    estimate: Callable[[Any, Context], Plan] | None
    verdict: bool
    listed: Listed
    chart: Chart | Literal["job"] | None

    @property
    def name(self) -> str:
        return self.fn.__name__

    @property
    def family(self) -> str:
        """The smallest toolset: the folder that contains the tool's tools.py, or a user's own module."""
        return self.toolsets[-1]

    @property
    def toolsets(self) -> tuple[str, ...]:
        """The folders that its tools.py is in, from the feature down; of a user's own tool, its module."""
        *folders, module = self.fn.__module__.split(".")
        return tuple(folders[1:]) if module == "tools" and len(folders) > 1 else (module,)

    @cached_property
    def summary(self) -> str:
        return (inspect.getdoc(self.fn) or "").partition("\n")[0]

    @cached_property
    def title(self) -> str:
        return self.name.removeprefix("aisp_").replace("_", " ").capitalize()

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return typing.get_type_hints(self.fn)

    @cached_property
    def params(self) -> type[Params]:
        """The arguments' model: the annotation of the first parameter."""
        first = next(iter(inspect.signature(self.fn).parameters))
        model = self._hints[first]
        assert isinstance(model, type)
        assert issubclass(model, Params)
        return model

    @cached_property
    def result(self) -> type[BaseModel]:
        """The result's model: the return annotation (the record inside `X | Wait`)."""
        annotation = self._hints["return"]
        options = [a for a in typing.get_args(annotation) or (annotation,) if a not in (Wait, Ask, Call)]
        model = options[0]
        assert isinstance(model, type)
        assert issubclass(model, BaseModel)
        return model


NO_ALIASES: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
_TOOLS: dict[str, Tool] = {}
_ALIASES: dict[str, str] = {}
_load: Callable[[str | None], None] | None = None
_COMPLETING = threading.RLock()


def tool(
    *,
    cli: str,
    effect: Effect,
    cost: Cost,
    job: JobSpec | None = None,
    needs: tuple[Need, ...] = (),
    next: tuple[str, ...] = (),
    aliases: Mapping[str, Mapping[str, Any]] = NO_ALIASES,
    estimate: Callable[[Any, Context], Plan] | None = None,
    verdict: bool = False,
    listed: Listed = "all",
    chart: Chart | Literal["job"] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a tool.

    cli: the words after `aisp`, "group verb". next: names of tools worth calling afterwards, checked to exist. aliases:
    other names, each with the arguments that it stands for where the caller gives none.
    estimate: for job tools, additions to the generic plan in a dry run. verdict: the CLI exits with 3 when the result's
    `passed` is false, and 4 when it is null. listed: the smallest set of tools that lists it, see
    dispatch/selection.py. chart: how a front draws the result; job: as for the tool whose job this is. The function
    takes (params, context) and returns a record or raises AispError.
    """

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        record = Tool(fn, cli, effect, cost, job, needs, next, aliases, estimate, verdict, listed, chart)
        if record.name in _TOOLS or record.name in _ALIASES:
            raise ValueError(f"two tools named {record.name}")
        _TOOLS[record.name] = record
        for alias in aliases:
            _ALIASES[alias] = record.name
        return fn

    return register


def load_others(load: Callable[[str | None], None]) -> None:
    """Set the loader that registers a missing tool by name, or all tools (None)."""
    global _load
    _load = load


def _complete() -> None:
    global _load
    with _COMPLETING:  # a server's threads must not see a partial set of tools
        if _load is not None:
            _load(None)
            _load = None


def is_loaded(name: str) -> bool:
    """Return True if the name or alias is already registered."""
    return name in _TOOLS or name in _ALIASES


def is_complete() -> bool:
    """Return True if no tool remains to be loaded."""
    return _load is None


def loaded() -> list[Tool]:
    """The tools that are already registered, by family and name."""
    return sorted(_TOOLS.values(), key=lambda t: (t.family, t.name))


def tools() -> list[Tool]:
    """All tools by family and name: the order every front shows."""
    _complete()
    return loaded()


def names() -> list[str]:
    """Every name a caller may use, aliases included."""
    _complete()
    return sorted([*_TOOLS, *_ALIASES])


def get(name: str) -> Tool:
    """The tool of that name or alias. Raises UnknownTool with a did-you-mean."""
    if not is_loaded(name) and _load is not None:
        _load(name)
    tool = _TOOLS.get(_ALIASES.get(name, name))
    if tool is None:
        matches = difflib.get_close_matches(name, names(), n=1, cutoff=0.5)
        hint = f"Did you mean '{matches[0]}'?" if matches else "tools/list or `aisp --list` names all tools."
        raise UnknownTool("UNKNOWN_TOOL", f"No tool is named '{name[:80]}'.", hint)
    return tool


def implied(name: str) -> Mapping[str, Any]:
    """The arguments that a name stands for: those of an alias, none otherwise. Raises UnknownTool."""
    return get(name).aliases.get(name, {})
