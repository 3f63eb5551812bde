// Live parts, sliders and keys. Without this script every page still works: forms are sent, links are followed.
"use strict";

const WAIT_MS = 150;
let due = null;

// Fetch the page again and exchange its parts marked data-live. What is being typed into stays.
async function refresh(address, remember) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
  if (!answer.ok && answer.status !== 404) return;
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const fresh = page.getElementById(part.id);
    if (!fresh || fresh.innerHTML === part.innerHTML || part.contains(document.activeElement)) continue;
    const open = [...part.querySelectorAll("details")].map((one) => one.open);
    part.replaceChildren(...fresh.childNodes);
    part.querySelectorAll("details").forEach((one, index) => { one.open = open[index] || one.open; });
  }
  if (remember) history.replaceState(null, "", address);
}

function soon(address, remember) {
  clearTimeout(due);
  due = setTimeout(() => refresh(address, remember).catch(() => {}), WAIT_MS);
}

function listen() {
  const jobs = document.querySelector("[data-live] [data-job], [data-live][data-job], #active, #rows, #last");
  if (!jobs || location.protocol === "file:" || !document.querySelector("meta[name=csrf]")) return;
  const events = new EventSource("/api/events");
  events.addEventListener("open", () => soon(location.href, false)); // what changed since the page was made
  events.addEventListener("job", (event) => {
    const only = document.querySelector("[data-live][data-job]");
    if (!only || only.dataset.job === JSON.parse(event.data).id) soon(location.href, false);
  });
  addEventListener("pagehide", () => events.close());
}

// A slider over powers of ten beside its number; moving it sends the form without leaving the page.
function slide(form) {
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
  const send = () => soon(`${form.getAttribute("action")}?${new URLSearchParams(new FormData(form))}`, true);
  form.addEventListener("change", send);
}

// Perfetto's window answers PING once it listens, and then takes the file from this page.
const PERFETTO = "https://ui.perfetto.dev";

async function perfetto(button) {
  const viewer = open(PERFETTO);
  const answer = await fetch(button.dataset.perfetto, { credentials: "same-origin" });
  if (!viewer || !answer.ok) return;
  const buffer = await answer.arrayBuffer();
  const asking = setInterval(() => (viewer.closed ? end() : viewer.postMessage("PING", PERFETTO)), 50);
  function end() {
    clearInterval(asking);
    removeEventListener("message", listen);
  }
  function listen(event) {
    if (event.source !== viewer || event.origin !== PERFETTO || event.data !== "PONG") return;
    end();
    viewer.postMessage({ perfetto: { buffer, title: button.dataset.title } }, PERFETTO);
  }
  addEventListener("message", listen);
}

// The timeline's window is in the address; dragging and keys ask for another one.
const axis = document.getElementById("timeline");

function look(begin, end) {
  const address = new URL(location.href);
  address.searchParams.set("from", Math.max(Math.round(begin), 0));
  address.searchParams.set("to", Math.round(end));
  soon(address.href, true);
}

function shown() {
  const now = new URL(location.href).searchParams;
  const first = axis.dataset.window.split(" ").map(Number);
  return [now.has("from") ? Number(now.get("from")) : first[0], now.has("to") ? Number(now.get("to")) : first[1]];
}

function drag(down) {
  const chart = down.target.closest("svg");
  if (!chart) return;
  down.preventDefault();
  const box = chart.getBoundingClientRect();
  const at = (event) => Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1);
  const from = at(down);
  addEventListener("pointerup", (up) => {
    const [begin, end] = shown(), size = end - begin, to = at(up);
    if (Math.abs(to - from) > 0.005) look(begin + size * Math.min(from, to), begin + size * Math.max(from, to));
  }, { once: true });
}

function move(event) {
  const [begin, end] = shown(), size = end - begin;
  const steps = { "+": [size / 4, -size / 4], "-": [-size / 2, size / 2], ArrowLeft: [-size / 2, -size / 2], ArrowRight: [size / 2, size / 2] };
  const step = steps[event.key];
  if (!step) return;
  event.preventDefault();
  look(begin + step[0], end + step[1]);
}

let last = "";
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (axis) move(event);
  if (event.key === "/") {
    const field = document.querySelector("[role=search] input");
    if (field) { event.preventDefault(); field.focus(); }
  } else if (last === "g") {
    const to = [...document.querySelectorAll(".top nav a")].find((one) => one.textContent[0].toLowerCase() === event.key);
    if (to) to.click();
  }
  last = event.key;
}

document.addEventListener("keydown", key);
document.querySelectorAll("[data-auto]").forEach(slide);
document.querySelectorAll("[data-perfetto]").forEach((one) => one.addEventListener("click", () => perfetto(one)));
if (axis) axis.addEventListener("pointerdown", drag);
listen();
