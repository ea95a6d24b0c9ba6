// What the page does besides htmx: ages, the title, typed text that survives a reload, and keys.
"use strict";

const units = [[86400, "d"], [3600, "h"], [60, "m"]];

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, unit] of units) if (whole >= size) return `${Math.floor(whole / size)}${unit}`;
  return `${whole}s`;
}

function refresh() {
  const now = Date.now() / 1000;
  for (const one of document.querySelectorAll("time[data-since]")) {
    const text = age(now - Number(one.dataset.since));
    if (one.textContent !== text) one.textContent = text;
  }
  const need = Number(document.getElementById("nav")?.dataset.need || 0);
  document.title = need ? `(${need}) llmc` : "llmc";
}

// Text that was typed and not sent is kept in this browser, too: a reload in the middle of a sentence loses nothing.
function keep(field) {
  const key = `llmc ${location.pathname} ${field.dataset.keep}`;
  if (!field.dataset.kept) {
    field.dataset.kept = "yes";
    const known = localStorage.getItem(key);
    if (known !== null && known !== field.value) field.value = known;
    field.addEventListener("input", () => localStorage.setItem(key, field.value));
  }
  return key;
}

function prepare() {
  for (const field of document.querySelectorAll("[data-keep]")) keep(field);
  refresh();
}

document.addEventListener("DOMContentLoaded", () => {
  prepare();
  setInterval(refresh, 1000);
});
document.addEventListener("htmx:after:swap", prepare);

document.addEventListener("htmx:after:request", (event) => {
  const form = event.target.closest?.("form");
  const status = event.detail?.ctx?.response?.status ?? 0;
  if (!form || status >= 400 || status === 0) return;
  for (const field of form.querySelectorAll("[data-keep]")) localStorage.removeItem(keep(field));
  if ("reset" in form.dataset && status === 202) form.reset();
});

document.addEventListener("htmx:sse:error", () => lost(true));
document.addEventListener("htmx:sse:after:message", () => lost(false));

function lost(is) {
  document.body.classList.toggle("lost", is);
  for (const one of document.querySelectorAll("#health .lost")) one.hidden = !is;
}

document.addEventListener("click", (event) => {
  const cancel = event.target.closest?.("[data-cancel]");
  if (!cancel) return;
  const form = cancel.closest("form");
  for (const field of form.querySelectorAll("[data-keep]")) localStorage.removeItem(keep(field));
  (form.closest("tr.notes") || form).remove();
});

// The keys of the terminal's screen that make sense here; none act while a field has the focus.
const pages = { b: "board", t: "tasks", g: "goals", N: "night", e: "events" };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select, button, summary, a")) return;
  const link = event.key in pages && document.querySelector(`#nav a.page[href$="/${pages[event.key]}"]`);
  if (link) link.click();
  if (event.key === " " && document.querySelector("#attention .card a")) {
    document.querySelector("#attention .card a").focus();
    event.preventDefault();
  }
});
