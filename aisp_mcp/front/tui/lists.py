"""Lists that keep their cursor while what they show changes."""

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


class Rows(DataTable[Text]):
    """A table with a cursor over whole rows."""

    def __init__(self, columns: Sequence[tuple[str, int]]) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True)
        self._shown: list[Row] = []
        self._headings = columns

    def on_mount(self) -> None:
        """Columns need a running screen."""
        for name, width in self._headings:
            self.add_column(name, key=name, width=width)

    @property
    def selected(self) -> str | None:
        """Key of the row under the cursor."""
        return self._shown[self.cursor_row].key if self._shown else None

    @property
    def active(self) -> bool:
        """True where the row under the cursor is of something that goes on."""
        return bool(self._shown) and self._shown[self.cursor_row].active

    def show(self, rows: Sequence[Row]) -> bool:
        """Replace the rows; only cells that differ are drawn. True where rows came or went."""
        before, after = [row.key for row in self._shown], [row.key for row in rows]
        old, self._shown = self._shown, list(rows)
        if before != after:
            kept = before[self.cursor_row] if before else None
            self.clear()
            for row in rows:
                self.add_row(*row.cells, key=row.key)
            if kept in after:
                self.move_cursor(row=after.index(kept))
            return True
        for number, (was, row) in enumerate(zip(old, rows, strict=True)):
            for column, (one, other) in enumerate(zip(was.cells, row.cells, strict=True)):
                if one != other:
                    self.update_cell_at((number, column), other)  # type: ignore[arg-type]
        return False

    def select(self, key: str) -> None:
        """Move the cursor to a row."""
        keys = [row.key for row in self._shown]
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
        """The name under the cursor."""
        return self.cursor_node.data if self.cursor_node else None

    def show(self, targets: list[Target], verdicts: Mapping[str, Text]) -> None:
        """Build the tree once, then only change what stands beside the names."""
        if not self.targets:
            self.targets = targets
            self._grow()
        for name, leaf in self._leaves.items():
            verdict = verdicts.get(name, Text("not measured", style="bright_black"))
            leaf.set_label(Text.assemble(_bare(name), "  ", verdict))

    def _grow(self) -> None:
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
    """A name without its chapter, under which it stands."""
    return Text(terminal_text.escape(name.partition(":")[2]))
