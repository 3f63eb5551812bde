// The page's own script, run on the page's own boxes in a document of this size: no browser is needed.
// node flame_dom.js PAGE ACTIONS: prints what the document says after each action as a line of JSON.
"use strict";
const fs = require("fs"), vm = require("vm");
const [page, actions] = [fs.readFileSync(process.argv[2], "utf8"), JSON.parse(process.argv[3])];

class Element {
  constructor(dataset = {}, text = "", title = "") {
    Object.assign(this, {dataset, textContent: text, title, style: {}, hidden: false, value: "", disabled: false, heard: {}});
    const names = this.names = new Set();
    this.classList = {toggle: (name, on) => on ? names.add(name) : names.delete(name)};
  }
  addEventListener(name, call) { (this.heard[name] ||= []).push(call); }
  tell(name, event = {}) { for (const call of this.heard[name] || []) call({preventDefault() {}, ...event}); }
  focus() {}
}

const plain = text => text.replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&#x27;/g, "'").replace(/&amp;/g, "&");
const shape = /<button type="button" data-depth="(\d+)" data-left="([^"]+)" data-width="([^"]+)" title="([^"]*)" style="[^"]*"(?: class="[^"]*")?>([^<]*)<\/button>/g;
const boxes = [...page.matchAll(shape)].map(m => new Element({depth: m[1], left: m[2], width: m[3]}, plain(m[5]), plain(m[4])));
const parts = Object.fromEntries(["#search", "#about", "#said", "#reset", "form"].map(name => [name, new Element()]));
const document = new Element();
document.querySelectorAll = () => boxes;
document.querySelector = name => parts[name];
vm.runInNewContext(page.match(/<script>([\s\S]*)<\/script>/)[1], {document});

for (const [kind, text] of actions) {
  if (kind === "click") boxes.find(box => box.textContent === text).tell("click");
  if (kind === "search") { parts["#search"].value = text; parts["#search"].tell("input"); }
  if (kind === "key") document.tell("keydown", {key: text});
  if (kind === "reset") parts["#reset"].tell("click");
  console.log(JSON.stringify({
    said: parts["#said"].textContent, reset: !parts["#reset"].disabled,
    shown: Object.fromEntries(boxes.filter(box => !box.hidden).map(box => [box.textContent, parseFloat(box.style.width)])),
    found: boxes.filter(box => box.names.has("found")).map(box => box.textContent),
  }));
}
