"""Lists that keep their cursor while their content changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.text import Text
from textual.widgets import DataTable, Tree
from textual.widgets.tree import TreeNode

from aisp_mcp.front import terminal_text
from aisp_mcp.front.tui.rows import Row

if TYPE_CHECKING:
    from aisp_mcp.suites.records import Target


MOST_SPARE = 60  # columns of a wide screen that names get beyond their least width


class Rows(DataTable[Text]):
    """A table with a cursor over whole rows."""

    def __init__(self, columns: Sequence[tuple[str, int]]) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._rows: list[Row] = []
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

    def show(self, rows: Sequence[Row]) -> bool:
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
        """Move the cursor to a row."""
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
