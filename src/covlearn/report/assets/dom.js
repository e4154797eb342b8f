"use strict";
// Helpers that build the page. Text is set as text and never as markup: what files and labels are
// called cannot run anything.

const DATA = JSON.parse(document.getElementById("data").textContent);

function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const whole = (value) => value.toLocaleString("en-GB");
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}\u00a0%`;
const signed = (value) => (value > 0 ? `+${whole(value)}` : value < 0 ? `−${whole(-value)}` : "0");
const short = (text, most = 60) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function say(text) {
  document.getElementById("said").textContent = text;
}

// A section with a heading, listed in the contents.
function section(id, title, ...children) {
  document.getElementById("contents").append(el("a", { href: `#${id}` }, title));
  const made = el("section", { id, "aria-labelledby": `${id}-title` },
    el("h2", { id: `${id}-title` }, title), ...children);
  document.getElementById("main").append(made);
  return made;
}

// Wide tables scroll inside of their own box, which the keyboard can reach.
function scrolling(label, child) {
  return el("div", { class: "scrolling", role: "region", "aria-label": label, tabindex: "0" }, child);
}

function table(head, rows, caption) {
  return el("table", {},
    caption ? el("caption", {}, caption) : null,
    el("thead", {}, el("tr", {}, head.map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, place) =>
      place === 0 ? el("th", { scope: "row" }, cell) : el("td", {}, cell))))));
}

function pairs(lines) {
  return el("dl", { class: "pairs" },
    lines.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

// What a browser keeps for a page is not always allowed, for a file on the disk least of all.
const kept = {
  get(key) {
    try { return localStorage.getItem(key); } catch { return null; }
  },
  set(key, value) {
    try { localStorage.setItem(key, value); return true; } catch { return false; }
  },
};

function themeButton() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  };
  const show = () => { button.textContent = dark() ? "☀ Light" : "☾ Dark"; };
  const before = kept.get("covlearn-theme");
  if (before === "dark" || before === "light") document.documentElement.dataset.theme = before;
  button.addEventListener("click", () => {
    const next = dark() ? "light" : "dark";
    document.documentElement.dataset.theme = next;
    kept.set("covlearn-theme", next);
    show();
    say(`${next} colours`);
  });
  system.addEventListener("change", show);
  show();
}
