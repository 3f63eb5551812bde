"""Small screens on top: a preset to choose, a yes to give, the keys."""

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
Tab         list, details, tabs
F4  /       filter verdicts; Escape shows all again
F5  r       run what the tree has selected
F9  k       end the selected job
F10 q       quit; jobs go on"""
FRAME = "align: center middle; & > Vertical { width: 60; height: auto; border: round $primary; padding: 0 1; }"


class ChoosePreset(ModalScreen[str | None]):
    """One of the presets, or nothing."""

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
        """Give the preset back."""
        self.dismiss(PRESETS[event.option_index])


class Confirm(ModalScreen[bool]):
    """A question that y answers with yes and everything else with no."""

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
    """The keys."""

    CSS = f"Help {{ {FRAME} }}"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,f1,q,question_mark", "dismiss", "Back")]

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(KEYS, markup=False)
