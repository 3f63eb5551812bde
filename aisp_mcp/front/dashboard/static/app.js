// Live updates, sliders and keyboard shortcuts. Every page also works without this script.
"use strict";

const WAIT_MS = 150;
let due = null;

// Fetch the page again and replace its parts marked data-live, except the one with the focus.
async function refresh(address, remember) {
  const response = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!response.ok && response.status !== 404) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
    const open = [...part.querySelectorAll("details")].map((details) => details.open);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((details, index) => { details.open = open[index] || details.open; });
  }
  if (remember) history.replaceState(null, "", address);
}

function refreshSoon(address, remember) {
  clearTimeout(due);
  due = setTimeout(() => refresh(address, remember).catch(() => {}), WAIT_MS);
}

function listen() {
  const jobs = document.querySelector("[data-live] [data-job], [data-live][data-job], #active, #rows, #last");
  if (!jobs || location.protocol === "file:" || !document.querySelector("meta[name=csrf]")) return;
  const events = new EventSource("/api/events");
  events.addEventListener("open", () => refreshSoon(location.href, false)); // catch up on changes since the page was rendered
  events.addEventListener("job", (event) => {
    const only = document.querySelector("[data-live][data-job]");
    if (!only || only.dataset.job === JSON.parse(event.data).id) refreshSoon(location.href, false);
  });
  addEventListener("pagehide", () => events.close());
}

// A logarithmic slider next to its number field; moving it submits the form without leaving the page.
function setUpSliders(form) {
  for (const slider of form.querySelectorAll("[data-log]")) {
    const field = form.elements[slider.dataset.for];
    const low = Math.log10(slider.min), high = Math.log10(slider.max);
    const start = Math.log10(field.value || slider.getAttribute("value"));
    Object.assign(slider, { min: 0, max: 1000, step: 1 });
    slider.value = ((start - low) / (high - low)) * 1000;
    slider.addEventListener("input", () => {
      field.value = Number((10 ** (low + (slider.value / 1000) * (high - low))).toPrecision(3));
      send();
    });
  }
  const send = () => refreshSoon(`${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`, true);
  form.addEventListener("change", send);
}

// Perfetto's window answers PING once it is ready, and then receives the file from this page.
const PERFETTO = "https://ui.perfetto.dev";

async function openInPerfetto(button) {
  const viewer = open(PERFETTO);
  const response = await fetch(button.dataset.perfetto, { credentials: "same-origin" });
  if (!viewer || !response.ok) return;
  const buffer = await response.arrayBuffer();
  const timer = setInterval(() => (viewer.closed ? end() : viewer.postMessage("PING", PERFETTO)), 50);
  function end() {
    clearInterval(timer);
    removeEventListener("message", listen);
  }
  function listen(event) {
    if (event.source !== viewer || event.origin !== PERFETTO || event.data !== "PONG") return;
    end();
    viewer.postMessage({ perfetto: { buffer, title: button.dataset.title } }, PERFETTO);
  }
  addEventListener("message", listen);
}

// The menu of a narrow screen.
const menu = document.querySelector(".menu");
if (menu) {
  menu.hidden = false;
  menu.setAttribute("aria-expanded", "false");
  menu.addEventListener("click", () => menu.setAttribute("aria-expanded", menu.getAttribute("aria-expanded") !== "true"));
}

// What a shape of a chart says, next to the pointer.
const tip = Object.assign(document.createElement("div"), { id: "tip", hidden: true });
tip.setAttribute("aria-hidden", "true");
document.body.append(tip);

function point(event) {
  const shape = event.target.closest?.(".chart *");
  for (let part = shape; part && !part.classList.contains("chart"); part = part.parentNode) {
    const title = part.querySelector(":scope > title");
    if (title) { // the browser's own tooltip would cover ours
      part.dataset.tip = title.textContent;
      title.remove();
    }
    if (!part.dataset.tip) continue;
    tip.textContent = part.dataset.tip;
    tip.hidden = false;
    const box = tip.getBoundingClientRect(), left = event.clientX + 14, below = event.clientY + 18;
    tip.style.left = `${Math.max(Math.min(left, innerWidth - box.width - 8), 4)}px`;
    tip.style.top = `${below + box.height > innerHeight ? event.clientY - box.height - 12 : below}px`;
    return;
  }
  tip.hidden = true;
}

// A click on a box of a flame graph makes it as wide as the graph; a click on the lowest row shows the whole again.
function zoomInto(event) {
  const cell = event.target.closest("svg svg"), graph = event.currentTarget.querySelector("svg");
  const cells = cell ? [...graph.querySelectorAll("svg")] : [];
  for (const other of cells) other.dataset.at ??= `${parseFloat(other.getAttribute("x"))} ${parseFloat(other.getAttribute("width"))}`;
  if (!cell) return;
  const [left, width] = cell.dataset.at.split(" ").map(Number);
  for (const other of cells) {
    const [from, size] = other.dataset.at.split(" ").map(Number);
    const begin = Math.max(from, left), end = Math.min(from + size, left + width);
    other.style.display = end - begin > width * 1e-4 ? "" : "none";
    other.setAttribute("x", `${(100 * (begin - left)) / width}%`);
    other.setAttribute("width", `${(100 * Math.max(end - begin, 0)) / width}%`);
  }
}

// The timeline's window is in the address; dragging and keys change it.
const axis = document.getElementById("timeline");

function showWindow(begin, end) {
  const address = new URL(location.href);
  address.searchParams.set("from", Math.max(Math.round(begin), 0));
  address.searchParams.set("to", Math.round(end));
  refreshSoon(address.href, true);
}

function currentWindow() {
  const query = new URL(location.href).searchParams;
  const initial = axis.dataset.window.split(" ").map(Number);
  return [query.has("from") ? Number(query.get("from")) : initial[0], query.has("to") ? Number(query.get("to")) : initial[1]];
}

function drag(down) {
  const chart = down.target.closest("svg");
  if (!chart) return;
  down.preventDefault();
  const box = chart.getBoundingClientRect();
  const at = (event) => Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  const from = at(down);
  addEventListener("pointerup", (up) => {
    const [begin, end] = currentWindow(), size = end - begin, to = at(up);
    if (Math.abs(to - from) > 0.005) showWindow(begin + size * Math.min(from, to), begin + size * Math.max(from, to));
  }, { once: true });
}

function move(event) {
  const [begin, end] = currentWindow(), size = end - begin;
  const steps = { "+": [size / 4, -size / 4], "-": [-size / 2, size / 2], ArrowLeft: [-size / 2, -size / 2], ArrowRight: [size / 2, size / 2] };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  showWindow(begin + step[0], end + step[1]);
}

let last = "";
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (axis) move(event);
  if (event.key === "/") {
    const field = document.querySelector("[role=search] input");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (last === "g") {
    const target = [...document.querySelectorAll("[data-key]")].find((link) => link.dataset.key === event.key);
    if (target) target.click();
  }
  last = event.key;
}

document.addEventListener("keydown", key);
document.addEventListener("pointermove", point);
document.querySelectorAll(".zoomable").forEach((graph) => graph.addEventListener("click", zoomInto));
document.querySelectorAll("[data-auto]").forEach(setUpSliders);
document.querySelectorAll("[data-perfetto]").forEach((button) => button.addEventListener("click", () => openInPerfetto(button)));
if (axis) axis.addEventListener("pointerdown", drag);
listen();
