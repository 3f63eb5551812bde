"""Workflows as prompts: one message that lists the calls to make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import mcp_types as types

from aisp_mcp.errors import UsageError
from aisp_mcp.front.mcp.parts.base import Caller, Part
from aisp_mcp.front.mcp.parts.workflows import WORKFLOWS, Step, Workflow

MAX_VALUE = 500
_HEAD = "Work through these calls of the aisp server, in order. Read each answer before the next call:"
_FOOT = (
    "<name> stands for a value from an earlier answer. Skip the wait if an answer is already complete. To call a tool "
    "that is not listed, use aisp_call_tool: its name as tool, its arguments as args. If a tool returns an error, "
    "follow its hint and next_steps, and tell the user what could not be done."
)


class Prompts(Part):
    """Serves the workflows of workflows.py."""

    def list_prompts(self) -> Sequence[types.Prompt]:
        """List all workflows in a fixed order."""
        return [_entry(workflow) for workflow in WORKFLOWS]

    def get_prompt(self, name: str, arguments: dict[str, str], caller: Caller) -> types.GetPromptResult | None:
        """Return a workflow filled in. Raises UsageError MISSING_ARGUMENT, UNKNOWN_ARGUMENT or INVALID_ARGUMENT."""
        workflow = next((workflow for workflow in WORKFLOWS if workflow.name == name), None)
        if workflow is None:
            return None
        _check(workflow, arguments)
        content = types.TextContent(type="text", text=text(workflow, arguments))
        message = types.PromptMessage(role="user", content=content)
        return types.GetPromptResult(description=workflow.description, messages=[message])


def text(workflow: Workflow, arguments: Mapping[str, str]) -> str:
    """Return the prompt's message."""
    task, steps, end = workflow.filled(arguments)
    calls = [_call(number, step) for number, step in enumerate(steps, 1)]
    return "\n".join([task, "", _HEAD, "", *calls, "", _FOOT, "", end])


def _call(number: int, step: Step) -> str:
    return f"{number}. {step.tool} {json.dumps(step.args, ensure_ascii=False)}\n   {step.look}"


def _entry(workflow: Workflow) -> types.Prompt:
    arguments = [
        types.PromptArgument(name=argument.name, description=argument.description, required=argument.default is None)
        for argument in workflow.arguments
    ]
    return types.Prompt(name=workflow.name, title=workflow.title, description=workflow.description, arguments=arguments)


def _check(workflow: Workflow, values: Mapping[str, str]) -> None:
    names = [argument.name for argument in workflow.arguments]
    expected = f"{workflow.name} takes {', '.join(names)}."
    if unknown := [name for name in values if name not in names]:
        raise UsageError("UNKNOWN_ARGUMENT", f"{workflow.name} has no argument '{unknown[0][:60]}'.", expected)
    required = [argument.name for argument in workflow.arguments if argument.default is None]
    if missing := [name for name in required if not values.get(name)]:
        raise UsageError("MISSING_ARGUMENT", f"'{missing[0]}' is required.", expected)
    if bad := [name for name, value in values.items() if len(value) > MAX_VALUE or not value.isprintable()]:
        raise UsageError("INVALID_ARGUMENT", f"'{bad[0]}' must be one line of at most {MAX_VALUE} characters.")
