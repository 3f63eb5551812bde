"""Modal screens: choose a preset, confirm, list the keys."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static

from aisp_mcp.front import terminal_text
from aisp_mcp.front.tui.rows import PRESETS

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
