"""A page that plays the client's side of MCP Apps, run in a headless browser: what a view sends and what it shows."""

from __future__ import annotations

import json
import os
import re
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

from aisp_mcp.errors import Unavailable
from aisp_mcp.runs.export import pdf

_HOST = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe sandbox="allow-scripts allow-same-origin" style="border:0;width:WIDTHpx;height:60px"></iframe><pre hidden></pre>
<script>
const given = GIVEN;
const frame = document.querySelector("iframe"), heard = [], results = given.results;
const send = (message) => frame.contentWindow.postMessage({ jsonrpc: "2.0", ...message }, "*");
const finish = () => {
  const view = frame.contentDocument;
  const seen = { heard, text: view.body.innerText, html: view.body.outerHTML, ran: frame.contentWindow.ran ?? null,
    scheme: getComputedStyle(view.documentElement).colorScheme, back: getComputedStyle(view.body).backgroundColor,
    wide: view.documentElement.scrollWidth > view.documentElement.clientWidth };
  document.querySelector("pre").textContent = JSON.stringify(seen);
};
addEventListener("message", ({ source, data }) => {
  if (source !== frame.contentWindow) return;
  heard.push(data);
  if (data.method === "ui/initialize")
    send({ id: data.id, result: { protocolVersion: "2026-01-26", hostInfo: { name: "stub", version: "1" },
      hostCapabilities: given.capabilities, hostContext: given.context } });
  if (data.method === "ui/notifications/initialized") {
    send({ method: "ui/notifications/tool-input", params: { arguments: {} } });
    send({ method: "ui/notifications/tool-result", params: results.shift() });
    send({ id: "a", method: "ping" });
    send({ id: "b", method: "nonsense" });
    if (given.click) setTimeout(() => frame.contentDocument.getElementById("wait").click(), 100);
    setTimeout(() => { send({ id: "c", method: "ui/resource-teardown", params: { reason: "end" } }); }, 900);
    setTimeout(finish, 1000);
  }
  if (data.method === "tools/call") send({ id: data.id, result: results.shift() });
  if (data.method === "ui/notifications/size-changed") frame.style.height = data.params.height + "px";
});
frame.srcdoc = given.page;
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


def host_page(page: str, results: list[Any], context: dict[str, Any], width: int, **more: Any) -> str:
    """The stub with everything in it; what is between script tags must not end them."""
    given = {"page": page, "results": results, "context": context, "capabilities": {"serverTools": {}}, **more}
    return _HOST.replace("WIDTH", str(width)).replace("GIVEN", json.dumps(given).replace("<", "\\u003c"))


def show(folder: Path, page: str, results: list[Any], width: int = 700, dark: bool = False, **more: Any) -> Seen:
    """Open the page in the stub for a second of the browser's own time."""
    context = {"theme": "dark" if dark else "light"}
    file = folder / "host.html"
    file.write_text(host_page(page, results, context, width, **more), encoding="utf-8")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    browser = find_browser()
    assert browser is not None
    argv = [browser, *_FLAGS, *sandbox, f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=4000"]
    done = subprocess.run([*argv, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=50, check=True)
    match = re.search(r"<pre[^>]*>(.*?)</pre>", done.stdout, re.DOTALL)
    assert match is not None, done.stderr
    assert match[1], done.stderr
    return Seen(json.loads(unescape(match[1])), done.stderr)


class Seen:
    """Result of showing a view. heard: messages of the view; console: what the browser logged."""

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
