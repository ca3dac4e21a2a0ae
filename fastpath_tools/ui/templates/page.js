"use strict";
// Takes changed lines of sections from the server, and changes only the nodes that differ: what is focused,
// selected or opened stays so. A hidden tab holds no connection.

const live = document.getElementById("live");
const problem = document.getElementById("problem");
const RETRY = 5000; // milliseconds, where the server refused
let address = document.body.dataset.events;
let events = null;
const lines = {}; // of each section as they were sent last; one that it had before comes as its place

function morph(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.nodeType !== Node.ELEMENT_NODE) {
    old.replaceWith(fresh);
    return;
  }
  const opened = old.nodeName === "DETAILS" ? "open" : "";
  for (const { name } of [...old.attributes]) {
    if (name !== opened && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== opened && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const before = [...old.childNodes];
  const after = [...fresh.childNodes];
  after.forEach((node, place) => (place < before.length ? morph(before[place], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

function show(section) {
  const old = document.getElementById(section.name);
  if (!old) return location.reload();
  const known = lines[section.name];
  lines[section.name] = section.lines.map((line) => (typeof line === "string" ? line : known[line]));
  const fresh = old.cloneNode(false);
  fresh.innerHTML = lines[section.name].join("\n");
  morph(old, fresh);
  old.querySelectorAll("input[id]").forEach(readOut);
}

// What stands beside an input has its value while it is moved, and is not turned back by a section that comes.
function readOut(input) {
  const output = document.querySelector(`output[for="${input.id}"]`);
  if (!output) return;
  const isOn = input.checked ? "on" : "off";
  output.textContent =
    input.type === "checkbox" ? isOn : output.textContent.replace(/\d+/, input.value);
}

function report(text) {
  problem.textContent = text;
  problem.hidden = !text;
}

function open() {
  events = new EventSource(address);
  address = address.replace(/&seen=.*/, ""); // only for the page as it was loaded
  events.onopen = () => (live.textContent = "live");
  events.onerror = () => {
    live.textContent = "not connected";
    if (events.readyState !== EventSource.CLOSED) return; // the browser connects again by itself
    events = null;
    setTimeout(follow, RETRY);
  };
  events.addEventListener("sections", (event) => JSON.parse(event.data).forEach(show));
  events.addEventListener("problem", (event) => report(JSON.parse(event.data)));
}

function follow() {
  if (document.hidden && events) {
    events.close();
    events = null;
  } else if (!document.hidden && !events) {
    open();
  }
}

document.addEventListener("visibilitychange", follow);
document.addEventListener("input", (event) => readOut(event.target));
follow();
