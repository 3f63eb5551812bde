"""The screen: machine status, tabs of jobs, targets and verdicts, details of the selection, keys as in htop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, TypeVar

from rich.console import RenderableType
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane, Tree
from textual.worker import Worker

from aisp_mcp.errors import AispError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.tui.rows import JOB_COLUMNS, VERDICT_COLUMNS
from aisp_mcp.front.tui.widgets import ChoosePreset, Confirm, Help, RowList, Targets

if TYPE_CHECKING:
    from aisp_mcp.front.tui.source import ListSource

T = TypeVar("T")
JOBS_S, VERDICTS_S, MACHINE_S = 1.0, 2.0, 5.0  # polling intervals


class Tui(App[None]):
    """The application. It reads the store in threads, so that keys work while the store is busy.

    open_source: called in a thread after the first frame, since its imports take as long as the frame.
    """

    TITLE = "aisp"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #machine { height: 1; background: $panel; padding: 0 1; }
    TabbedContent { height: 1fr; }
    TabPane { padding: 0; }
    #filter { display: none; height: 1; border: none; }
    #detail { height: 1fr; border-top: solid $primary; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f1,question_mark", "help", "Help", key_display="F1"),
        Binding("1", "show('jobs')", "Jobs", show=False),
        Binding("2", "show('targets')", "Targets", show=False),
        Binding("3", "show('verdicts')", "Verdicts", show=False),
        Binding("f4,slash", "filter", "Filter", key_display="F4"),
        Binding("f5,r", "run", "Run", key_display="F5"),
        Binding("f9,k", "cancel", "Cancel job", key_display="F9"),
        Binding("f10,q", "quit", "Quit", key_display="F10"),
        Binding("escape", "leave_filter", "Back", show=False),
    ]

    def __init__(self, open_source: Callable[[], ListSource]) -> None:
        super().__init__()
        self._open = open_source
        self._source: ListSource | None = None
        self._opening = Lock()
        self._filter = ""
        self._described: tuple[str, str] | None = None  # kind and key of the record in the details
        self._line = Static("reading the machine …", id="machine")
        self._jobs, self._verdicts = RowList(JOB_COLUMNS), RowList(VERDICT_COLUMNS)
        self._tree = Targets("benchmarks")
        self._filter_input = Input(placeholder="chapter:ch07 verdict:faster since:7d row_sum", id="filter")
        self._detail = Static("Select a line to see its details here. F1 lists the keys.")

    def compose(self) -> ComposeResult:
        yield self._line
        with TabbedContent(initial="jobs"):
            with TabPane("1 Jobs", id="jobs"):
                yield self._jobs
            with TabPane("2 Targets", id="targets"):
                yield self._tree
            with TabPane("3 Verdicts", id="verdicts"):
                yield self._verdicts
        yield self._filter_input
        with VerticalScroll(id="detail"):
            yield self._detail
        yield Footer()

    def on_mount(self) -> None:
        """Start polling after the first frame."""
        self._jobs.focus()
        self.call_after_refresh(self._start_polling)

    def _start_polling(self) -> None:
        self._poll(self._update_jobs, JOBS_S)
        self._poll(self._update_verdicts, VERDICTS_S)
        self._poll(self._update_machine, MACHINE_S)

    def _poll(self, update: Callable[[], Awaitable[None]], interval_s: float) -> Worker[None]:
        """Update now and after every interval."""

        async def work() -> None:
            while True:
                await self._guarded(update)
                await asyncio.sleep(interval_s)

        return self.run_worker(work)

    def _start(self, group: str, work: Callable[..., Awaitable[None]], *arguments: str) -> Worker[None]:
        """Run work in the background; in a group it replaces earlier work."""

        async def guarded() -> None:
            await self._guarded(work, *arguments)

        return self.run_worker(guarded, exclusive=bool(group), group=group or "default")

    async def _guarded(self, work: Callable[..., Awaitable[None]], *arguments: str) -> None:
        """Show an error as a notification."""
        try:
            await work(*arguments)
        except AispError as error:
            message = f"{error.code}: {error.message} {error.hint or ''}"
            self.notify(terminal_text.escape(message), severity="error", markup=False)

    async def _read(self, read: Callable[[ListSource], T]) -> T:
        def work() -> T:
            with self._opening:
                self._source = self._source or self._open()
            return read(self._source)

        return await asyncio.to_thread(work)

    async def _update_machine(self) -> None:
        self._line.update(await self._read(lambda source: source.machine()))

    async def _update_jobs(self) -> None:
        self._jobs.show(await self._read(lambda source: source.jobs()))
        if self._described and self._described[0] == "job":
            await self._describe("job", self._described[1])

    async def _update_verdicts(self) -> None:
        text = self._filter
        changed = self._verdicts.show(await self._read(lambda source: source.verdicts(text)))
        if changed or not self._tree.targets:
            targets = self._tree.targets or await self._read(lambda source: source.targets())
            self._tree.show(targets, await self._read(lambda source: source.latest()))

    @on(DataTable.RowHighlighted)
    def _selected_row(self, event: DataTable.RowHighlighted) -> None:
        kind = "job" if event.data_table is self._jobs else "verdict"
        if event.row_key.value is not None:
            self._select(kind, event.row_key.value)

    @on(Tree.NodeHighlighted)
    def _selected_node(self, event: Tree.NodeHighlighted[str]) -> None:
        if event.node.data is not None:
            self._select("target", event.node.data)

    def _select(self, kind: str, key: str) -> None:
        if self.query_one(TabbedContent).active == f"{kind}s" and self._described != (kind, key):
            self._described = kind, key
            self.query_one("#detail").scroll_home(animate=False)
            self._start("detail", self._describe, kind, key)

    async def _describe(self, kind: str, key: str) -> None:
        targets = self._tree.targets
        read: dict[str, Callable[[ListSource], RenderableType]] = {
            "job": lambda source: source.describe_job(key),
            "verdict": lambda source: source.describe_verdict(key),
            "target": lambda source: source.describe_target(key, targets),
        }
        detail = await self._read(read[kind])
        if self._described == (kind, key):
            self._detail.update(detail)

    @on(TabbedContent.TabActivated)
    def _opened(self, event: TabbedContent.TabActivated) -> None:
        """Focus the list of the tab, and show the details of its selected line."""
        lists: dict[str, RowList | Targets] = {"jobs": self._jobs, "targets": self._tree, "verdicts": self._verdicts}
        tab = event.pane.id or "jobs"
        opened = lists[tab]
        if not self._filter_input.display:  # else the user is typing
            opened.focus()
        if opened.selected is not None:
            self._select(tab.removesuffix("s"), opened.selected)

    def action_show(self, tab: str) -> None:
        self.query_one(TabbedContent).active = tab

    def action_help(self) -> None:
        """List the keys."""
        self.push_screen(Help())

    def action_filter(self) -> None:
        """Open the input line for the filter of verdicts."""
        self.action_show("verdicts")
        self._filter_input.display = True
        self._filter_input.focus()

    def action_leave_filter(self) -> None:
        """Close the input line and show all verdicts again."""
        if self._filter_input.display:
            self._filter_input.value = ""
            self._apply_filter("")

    @on(Input.Submitted, "#filter")
    async def _submitted(self, event: Input.Submitted) -> None:
        await self._guarded(self._submit_filter, event.value)

    async def _submit_filter(self, text: str) -> None:
        """Apply a filter; one that cannot be parsed changes nothing."""
        from aisp_mcp.front.rest.filters import parse

        parse(text)
        self._apply_filter(text)

    def _apply_filter(self, text: str) -> None:
        self._filter = text
        self._filter_input.display = bool(text)
        self._verdicts.focus()
        self._start("filter", self._update_verdicts)

    def action_run(self) -> None:
        """Ask for a preset and run the tree's selection."""
        name = self._tree.selected
        if self.query_one(TabbedContent).active != "targets" or name is None:
            self.action_show("targets")
            self.notify("Select a chapter, target or variant, then press F5.")
            return
        self.push_screen(ChoosePreset(name), partial(self._run, name))

    def _run(self, name: str, preset: str | None) -> None:
        if preset is not None:
            self._start("", self._submit_run, name, preset)

    async def _submit_run(self, name: str, preset: str) -> None:
        job_id = await self._read(lambda source: source.start(name, preset))
        self.action_show("jobs")
        await self._update_jobs()
        self._jobs.select(job_id)

    def action_cancel(self) -> None:
        """Ask for confirmation, then cancel the selected job."""
        job_id = self._jobs.selected
        if self.query_one(TabbedContent).active != "jobs" or job_id is None:
            self.notify("Select a job on the first tab, then press F9.")
        elif not self._jobs.active:
            self.notify("This job has ended.")
        else:
            self.push_screen(
                Confirm(f"Cancel job {job_id} and end every process it started?"), partial(self._cancel, job_id)
            )

    def _cancel(self, job_id: str, confirmed: bool | None) -> None:
        if confirmed:
            self._start("", self._submit_cancel, job_id)

    async def _submit_cancel(self, job_id: str) -> None:
        state = await self._read(lambda source: source.cancel(job_id))
        self.notify(f"{job_id} is {state}.", markup=False)
        await self._update_jobs()
