"use strict";
// Boxes are in the page already; this moves them (zoom) and marks them (search). Nothing is fetched or stored.
const boxes = [...document.querySelectorAll(".row button")].map(box => ({
  box, left: +box.dataset.left, width: +box.dataset.width, depth: +box.dataset.depth, name: box.textContent.toLowerCase(),
}));
const search = document.querySelector("#search"), about = document.querySelector("#about");
const said = document.querySelector("#said"), reset = document.querySelector("#reset");

function zoom(target) {
  const {left, width, depth} = target || {left: 0, width: 1, depth: -1};
  for (const one of boxes) {
    const from = Math.max(one.left, left), to = Math.min(one.left + one.width, left + width);
    const around = one.depth < depth;
    one.box.hidden = to - from <= 1e-12 || (to - from) / width < 0.0005;
    one.box.style.left = `${100 * (from - left) / width}%`;
    one.box.style.width = `${100 * (to - from) / width}%`;
    one.box.classList.toggle("around", around);
    one.box.tabIndex = (to - from) / width < 0.01 ? -1 : 0;
  }
  reset.disabled = !target;
}

function find() {
  const wanted = search.value.trim().toLowerCase();
  let covered = [], share = 0, count = 0;
  for (const one of boxes) {
    const hit = wanted !== "" && one.name.includes(wanted);
    one.box.classList.toggle("found", hit);
    if (!hit) continue;
    count += 1;
    // A match inside a match is already counted.
    if (covered.some(([from, to]) => from <= one.left + 1e-12 && one.left + one.width <= to + 1e-12)) continue;
    covered.push([one.left, one.left + one.width]);
    share += one.width;
  }
  said.textContent = wanted === "" ? "" : `${count} boxes, ${(100 * share).toPrecision(3)} % of all`;
}

for (const one of boxes) {
  one.box.addEventListener("click", () => zoom(one));
  for (const event of ["mouseenter", "focus"]) {
    one.box.addEventListener(event, () => { about.textContent = one.box.title; });
  }
}
search.addEventListener("input", find);
reset.addEventListener("click", () => zoom(null));
document.querySelector("form").addEventListener("submit", event => event.preventDefault());
document.addEventListener("keydown", event => {
  if (event.key === "Escape") { search.value = ""; find(); zoom(null); }
  if (event.key === "/" && document.activeElement !== search) { event.preventDefault(); search.focus(); }
});
zoom(null);
