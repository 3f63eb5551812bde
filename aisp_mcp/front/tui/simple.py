"""A plain menu for simple terminals, scripts and screen readers: lines in, lines out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table

from aisp_mcp.envelope import Progress
from aisp_mcp.errors import AispError
from aisp_mcp.front import terminal_text
from aisp_mcp.front.cli.render import console
from aisp_mcp.front.tui.rows import JOB_COLUMNS, PRESETS, VERDICT_COLUMNS, ListRow
from aisp_mcp.front.tui.source import ListSource

MENU = "j jobs   t targets   v verdicts [filter]   d NUMBER details   r TARGET [preset] run   c NUMBER cancel   q quit"


class Menu:
    """The menu's commands. NUMBER counts the lines of the list that was printed last."""

    def __init__(self, source: ListSource, out: Console) -> None:
        self._source = source
        self._out = out
        self._listed: list[str] = []
        self._describe: Callable[[str], RenderableType] = source.describe_job
        self.commands: dict[str, Callable[[str], None]] = {
            "j": self._jobs,
            "t": self._targets,
            "v": self._verdicts,
            "d": lambda number: self._out.print(self._describe(self._key(number))),
            "r": self._run,
            "c": lambda number: self._out.print(self._source.cancel(self._key(number))),
        }

    def machine(self) -> None:
        self._out.print(self._source.machine())

    def _jobs(self, _: str) -> None:
        self._describe = self._source.describe_job
        self._list([name for name, _ in JOB_COLUMNS], self._source.jobs())

    def _verdicts(self, filter_text: str) -> None:
        self._describe = self._source.describe_verdict
        self._list([name for name, _ in VERDICT_COLUMNS], self._source.verdicts(filter_text))

    def _targets(self, _: str) -> None:
        latest, targets = self._source.latest(), self._source.targets()
        self._describe = lambda name: self._source.describe_target(name, targets)
        self._listed = []
        for target in targets:
            for variant in target.variants:
                name = f"{target.name}_{variant.name}" if variant.name else target.name
                self._listed.append(name)
                self._out.print(
                    f"{len(self._listed):3}", terminal_text.escape(name), latest.get(name, ""), markup=False
                )

    def _list(self, names: Sequence[str], rows: Sequence[ListRow]) -> None:
        self._listed = [row.key for row in rows]
        table = Table(*(["", *names]), box=None, header_style="bold dim", pad_edge=False)
        for number, row in enumerate(rows, 1):
            table.add_row(str(number), *row.cells)
        self._out.print(table if rows else "none")

    def _key(self, number: str) -> str:
        if not number.isdecimal() or not 1 <= int(number) <= len(self._listed):
            raise AispError("BAD_NUMBER", f"Give the number of a line in the last list, 1 to {len(self._listed)}.")
        return self._listed[int(number) - 1]

    def _run(self, arguments: str) -> None:
        name, _, preset = arguments.partition(" ")
        if not name or (preset and preset not in PRESETS):
            raise AispError("BAD_RUN", f"Usage: r TARGET [{'|'.join(PRESETS)}], such as: r ch07:row_sum quick")
        job_id = self._source.start(name, preset or "default")
        self._out.print(f"{job_id}: Ctrl-C stops watching, the job keeps running", markup=False)
        last_message = ""

        def show(progress: Progress) -> None:
            nonlocal last_message
            if progress.message and progress.message != last_message:
                last_message = progress.message
                message = terminal_text.escape(progress.message)
                self._out.print(f"[{round(progress.done, 2):g}/{progress.total or 0:g}] {message}", markup=False)

        try:
            self._source.follow(job_id, show)
        except KeyboardInterrupt:
            return
        self._out.print(self._source.describe_job(job_id))


def run(source: ListSource) -> int:
    """Read commands until q or the end of the input."""
    out = console()
    menu = Menu(source, out)
    menu.machine()
    while True:
        out.print(f"\n{MENU}", markup=False)
        try:
            word, _, rest = input("> ").strip().partition(" ")
        except EOFError:
            return 0
        if word == "q":
            return 0
        try:
            if word in menu.commands:
                menu.commands[word](rest.strip())
        except AispError as error:
            out.print(f"error {error.code}: {terminal_text.escape(error.message)}", error.hint or "", markup=False)
