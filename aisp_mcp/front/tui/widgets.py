"""Lists that keep their cursor while their content changes, and modal screens: choose a preset, confirm, show keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import DataTable, Tree
from textual.widgets.tree import TreeNode

from aisp_mcp.front import terminal_text
from aisp_mcp.front.tui.rows import ListRow

if TYPE_CHECKING:
    from aisp_mcp.suites.records import Target
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from aisp_mcp.front.tui.rows import PRESETS

MOST_SPARE = 60  # columns of a wide screen that names get beyond their least width


class RowList(DataTable[Text]):
    """A table with a cursor over whole rows."""

    def __init__(self, columns: Sequence[tuple[str, int]]) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._rows: list[ListRow] = []
        self._headings = columns

    def on_mount(self) -> None:
        """Add the columns, which needs a running screen; names in the second one get the remaining width."""
        used = sum(width + 2 * self.cell_padding for _, width in self._headings)
        spare = min(max(0, self.app.size.width - used), MOST_SPARE)
        for number, (name, width) in enumerate(self._headings):
            self.add_column(name, key=name, width=width + (spare if number == 1 else 0))

    @property
    def selected(self) -> str | None:
        """Key of the row under the cursor, if any."""
        return self._rows[self.cursor_row].key if self._rows else None

    @property
    def active(self) -> bool:
        """True if the row under the cursor is of a job that has not ended."""
        return bool(self._rows) and self._rows[self.cursor_row].active

    def show(self, rows: Sequence[ListRow]) -> bool:
        """Replace the rows, drawing only cells that changed. Returns True if rows were added, removed or moved."""
        old_keys, keys = [row.key for row in self._rows], [row.key for row in rows]
        old_rows, self._rows = self._rows, list(rows)
        if old_keys != keys:
            selected = old_keys[self.cursor_row] if old_keys else None
            self.clear()
            for row in rows:
                self.add_row(*row.cells, key=row.key)
            if selected in keys:
                self.move_cursor(row=keys.index(selected))
            return True
        for number, (old_row, row) in enumerate(zip(old_rows, rows, strict=True)):
            for column, (old_cell, cell) in enumerate(zip(old_row.cells, row.cells, strict=True)):
                if old_cell != cell:
                    self.update_cell_at((number, column), cell)  # type: ignore[arg-type]
        return False

    def select(self, key: str) -> None:
        keys = [row.key for row in self._rows]
        if key in keys:
            self.move_cursor(row=keys.index(key))


class Targets(Tree[str]):
    """Chapters, targets and variants; a node's data is the name that a run takes."""

    def __init__(self, label: str) -> None:
        super().__init__(label)
        self.show_root = False
        self.targets: list[Target] = []
        self._leaves: dict[str, TreeNode[str]] = {}

    @property
    def selected(self) -> str | None:
        """Name of the node under the cursor, if any."""
        return self.cursor_node.data if self.cursor_node else None

    def show(self, targets: list[Target], verdicts: Mapping[str, Text]) -> None:
        """Build the tree once, then only update the verdicts."""
        if not self.targets:
            self.targets = targets
            self._add_nodes()
        for name, leaf in self._leaves.items():
            verdict = verdicts.get(name, Text("not measured", style="bright_black"))
            leaf.set_label(Text.assemble(_bare(name), "  ", verdict))

    def _add_nodes(self) -> None:
        chapters: dict[str, TreeNode[str]] = {}
        for target in self.targets:
            if target.chapter not in chapters:
                chapters[target.chapter] = self.root.add(
                    terminal_text.escape(target.chapter), target.chapter, expand=True
                )
            node = chapters[target.chapter].add(_bare(target.name), target.name, expand=True)
            for variant in target.variants:
                name = f"{target.name}_{variant.name}" if variant.name else target.name
                self._leaves[name] = node.add_leaf("", name)


def _bare(name: str) -> Text:
    """A name without its chapter, which is the parent node."""
    return Text(terminal_text.escape(name.partition(":")[2]))


KEYS = """\
1 2 3       jobs, targets, verdicts
arrows      move; Enter opens and closes a chapter
Tab         switch between list, details and tabs
F4  /       filter verdicts; Escape shows all again
F5  r       run the selected target
F9  k       cancel the selected job
F10 q       quit; jobs keep running"""
FRAME = "align: center middle; & > Vertical { width: 60; height: auto; border: round $primary; padding: 0 1; }"


class ChoosePreset(ModalScreen[str | None]):
    """Choose one of the presets, or none."""

    CSS = f"ChoosePreset {{ {FRAME} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, name: str) -> None:
        super().__init__()
        self._target = name

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"Run {terminal_text.escape(self._target)} with which preset?", markup=False)
            yield OptionList(*PRESETS)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the chosen preset."""
        self.dismiss(PRESETS[event.option_index])


class Confirm(ModalScreen[bool]):
    """A yes/no question; only y means yes."""

    CSS = f"Confirm {{ {FRAME} }}"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "Yes"),
        Binding("n,escape,enter", "dismiss(False)", "No"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(f"{terminal_text.escape(self._question)}\n\ny yes   n no", markup=False)


class Help(ModalScreen[None]):
    """The list of keys."""

    CSS = f"Help {{ {FRAME} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,f1,q,question_mark", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(KEYS, markup=False)
