"""A page that plays the client's side of MCP Apps, run in a headless browser: what a view sends and what it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.runs.export import pdf

_HOST = """<!doctype html><meta charset="utf-8"><body style="margin:0"><pre hidden></pre>
<script>
const views = VIEWS, done = [];
const finish = (number, frame, heard) => {
  const view = frame.contentDocument;
  done[number] = { heard, text: view.body.innerText, html: view.body.outerHTML, ran: frame.contentWindow.ran ?? null,
    scheme: getComputedStyle(view.documentElement).colorScheme, back: getComputedStyle(view.body).backgroundColor,
    wide: view.documentElement.scrollWidth > view.documentElement.clientWidth };
  if (Object.keys(done).length === views.length)
    document.querySelector("pre").textContent = JSON.stringify(done);
};
const play = (given, number) => {
  const frame = document.createElement("iframe"), heard = [], results = given.results;
  const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
  addEventListener("message", ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    heard.push(data);
    if (data.method === "ui/initialize")
      send({ id: data.id, result: { protocolVersion: "2026-01-26", hostInfo: { name: "stub", version: "1" },
        hostCapabilities: { serverTools: {} }, hostContext: { theme: given.theme } } });
    if (data.method === "ui/notifications/initialized") {
      send({ method: "ui/notifications/tool-input", params: { arguments: {} } });
      send({ method: "ui/notifications/tool-result", params: results.shift() });
      send({ id: "a", method: "ping" });
      send({ id: "b", method: "nonsense" });
      if (given.click) setTimeout(() => frame.contentDocument.getElementById("wait").click(), 100);
      setTimeout(() => { send({ id: "c", method: "ui/resource-teardown", params: { reason: "end" } }); }, 900);
      setTimeout(finish, 1000, number, frame, heard);
    }
    if (data.method === "tools/call") send({ id: data.id, result: results.shift() });
    if (data.method === "ui/notifications/size-changed") frame.style.height = data.params.height + "px";
  });
  frame.sandbox = "allow-scripts allow-same-origin";
  frame.style = "display:block;border:0;height:60px;width:" + given.width + "px";
  frame.srcdoc = given.page;
  document.body.append(frame);
};
views.forEach(play);
</script>
"""
_FLAGS = (
    *("--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"),
    *("--disable-component-update", "--disable-extensions", "--hide-scrollbars", "--enable-logging=stderr"),
)


def find_browser() -> str | None:
    """A Chromium on PATH, as the product looks for it."""
    try:
        return pdf.find_browser()
    except Unavailable:
        return None


def view(page: str, results: list[Any], width: int = 700, theme: str = "light", click: bool = False) -> dict[str, Any]:
    """A view of these results in turn, as show() takes it. click: on the button that waits for a job."""
    return {"page": page, "results": results, "width": width, "theme": theme, "click": click}


def show(folder: Path, views: Mapping[str, dict[str, Any]]) -> dict[str, Seen]:
    """Show all views side by side in one browser, for a second of its own time."""
    file = folder / "host.html"
    given = json.dumps([*views.values()]).replace("<", "\\u003c")  # what is between script tags must not end them
    file.write_text(_HOST.replace("VIEWS", given), encoding="utf-8")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = find_browser()
    assert browser is not None
    argv = [browser, *_FLAGS, *sandbox, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000"]
    done = subprocess.run([*argv, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=50, check=True)
    match = re.search(r"<pre[^>]*>(.*?)</pre>", done.stdout, re.DOTALL)
    assert match is not None, done.stderr
    assert match[1], done.stderr
    return {name: Seen(data, done.stderr) for name, data in zip(views, json.loads(unescape(match[1])), strict=True)}


class Seen:
    """Result of showing a view. heard: messages of the view; console: what the browser logged of all views."""

    def __init__(self, data: dict[str, Any], console: str) -> None:
        self.heard: list[dict[str, Any]] = data["heard"]
        self.text: str = data["text"]
        self.html: str = data["html"]
        self.ran = data["ran"]
        self.scheme: str = data["scheme"]
        self.back: str = data["back"]
        self.wide: bool = data["wide"]
        self.console = console

    def methods(self) -> list[str]:
        return [message["method"] for message in self.heard if "method" in message]

    def answer(self, number: str) -> dict[str, Any]:
        return next(message for message in self.heard if message.get("id") == number and "method" not in message)
