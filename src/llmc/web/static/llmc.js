// What the page does besides htmx: ages, the title, typed text that survives, what must not move, and keys.
"use strict";

const units = [[86400, "d"], [3600, "h"], [60, "m"]];

function age(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  for (const [size, unit] of units) if (whole >= size) return `${Math.floor(whole / size)}${unit}`;
  return `${whole}s`;
}

function refresh() {
  hear();
  if (document.body.classList.contains("lost")) return; // an age would claim that the state is still known
  const now = Date.now() / 1000;
  for (const one of document.querySelectorAll("time[data-since]")) {
    const text = age(now - Number(one.dataset.since));
    if (one.textContent !== text) one.textContent = text;
  }
  const need = Number(document.getElementById("nav")?.dataset.need || 0);
  document.title = need ? `(${need}) llmc` : "llmc";
}

// Where this browser finds the page again: login.js reads it.
const home = document.body.dataset.home;
localStorage.setItem("llmc home", home);

function prepare() {
  for (const field of document.querySelectorAll("[data-keep]")) keep(field);
  forgetWhatArrived();
  putAway();
  placeComments();
  refresh();
}

document.addEventListener("DOMContentLoaded", () => {
  prepare();
  setInterval(refresh, 1000);
});
document.addEventListener("htmx:after:swap", prepare);

// A live change leaves alone what the user opened, and an age that is right already.
htmx.registerExtension("llmc", {
  htmx_before_morph_attr: (element, { attrName }) => !(element.tagName === "DETAILS" && attrName === "open"),
  htmx_before_morph_node: (element, { oldNode, newNode }) =>
    !(oldNode.tagName === "TIME" && oldNode.dataset.since && oldNode.dataset.since === newNode.dataset?.since),
});

// Typed text stays in this browser until the order that carries it has ended well: over a reload, when its form is gone for a
// moment, and when the order is refused.
const kept = new WeakSet();
const SENT = "llmc sent ";

function keep(field) {
  const key = `llmc ${location.pathname.slice(home.length)} ${field.dataset.keep}`;
  if (!kept.has(field)) {
    kept.add(field);
    const known = localStorage.getItem(key);
    if (known !== null && known !== field.value) field.value = known;
    field.addEventListener("input", () => localStorage.setItem(key, field.value));
  }
  return key;
}

document.addEventListener("htmx:after:request", (event) => {
  const form = event.target.closest?.("form");
  if (!form || event.detail?.ctx?.response?.status !== 202) return;
  const job = event.detail.ctx.response.headers.get("x-job");
  const texts = [...form.querySelectorAll("[data-keep]")].map((field) => [keep(field), field.value]);
  if (job && texts.length) sessionStorage.setItem(SENT + job, JSON.stringify(texts));
  forgetWhatArrived();
});

function forgetWhatArrived() {
  for (const job of document.getElementById("said")?.dataset.done?.split(" ") ?? []) {
    const texts = new Map(JSON.parse(sessionStorage.getItem(SENT + job) ?? "[]"));
    sessionStorage.removeItem(SENT + job);
    for (const [key, text] of texts) if (localStorage.getItem(key) === text) localStorage.removeItem(key);
    for (const field of document.querySelectorAll("[data-keep]")) {
      if (texts.get(keep(field)) === field.value) field.value = "";
    }
  }
}

// The line of the last order can be put away; another order, or more of this one, brings it back.
function putAway() {
  const said = document.getElementById("said");
  if (said) said.hidden = Boolean(said.dataset.job) && sessionStorage.getItem("llmc away") === said.dataset.job;
}

document.addEventListener("click", (event) => {
  if (!event.target.closest?.("#said .away")) return;
  sessionStorage.setItem("llmc away", document.getElementById("said").dataset.job);
  putAway();
  document.getElementById("main").focus({ preventScroll: true });
});

// An order that could not be sent, or that the server did not take, says so where its outcome would be.
function say(text) {
  const line = document.createElement("p");
  line.className = "bad";
  line.textContent = text;
  const said = document.getElementById("said");
  delete said?.dataset.job; // it is about no order, and so not put away with one
  said?.replaceChildren(line);
  putAway();
}

document.addEventListener("htmx:response:error", (event) => {
  if (event.target.id === "live") return connectAgain(event.detail.ctx.response.status);
  const answer = new DOMParser().parseFromString(event.detail.ctx.text ?? "", "text/html");
  say(answer.body.textContent.trim().slice(0, 400) || `refused: ${event.detail.ctx.response.status}`);
});
document.addEventListener("htmx:error", (event) => {
  if (event.target.id === "live") connectAgain(0);
  else say("Not sent: the server cannot be reached.");
});

// The answer to an order may arrive after the stream has told how it ended: what is older is not drawn.
document.addEventListener("htmx:before:swap", (event) => {
  const tasks = event.detail.tasks;
  const shown = document.getElementById("said")?.dataset;
  for (const task of [...tasks]) {
    const next = task.fragment.querySelector?.("#said")?.dataset;
    if (!next?.started || !shown?.started) continue;
    const later = next.started - shown.started || next.progress - shown.progress;
    if (later < 0) tasks.splice(tasks.indexOf(task), 1);
  }
});

// The connection. htmx renews one that was there; the first one is tried again here.
const AGAIN_MS = 5000;
document.addEventListener("htmx:sse:error", (event) => lost(event.detail?.status === 401 ? "signed out" : "lost"));
document.addEventListener("htmx:sse:after:connection", (event) => {
  connection = event.detail.connection;
  heard = Date.now();
  lost("");
});

// A line that was cut somewhere on its way looks open from here, but the server says something every 20 seconds.
const QUIET_MS = 45000;
let connection = null;
let heard = 0;
document.addEventListener("htmx:sse:before:message", () => (heard = Date.now()));
addEventListener("offline", () => hear(0));

function hear(most = QUIET_MS) {
  if (!connection?.reader || document.hidden || Date.now() - heard < most) return;
  lost("lost");
  connection.reader.cancel(); // htmx connects again
}

function connectAgain(status) {
  lost(status === 401 ? "signed out" : "lost");
  const live = document.getElementById("live");
  if (status !== 401) {
    setTimeout(() => htmx.ajax("GET", live.getAttribute("hx-sse:connect"), { source: live }), AGAIN_MS);
  }
}

function lost(how) {
  const was = document.body.classList.contains("lost");
  document.body.classList.toggle("lost", how !== "");
  for (const one of document.querySelectorAll("#health p.lost")) {
    one.hidden = how === "";
    if (how === "signed out") one.textContent = "This browser was signed out. Run llmc web --link for a new link.";
    else if (how && !was) one.textContent = `Connection lost at ${new Date().toTimeString().slice(0, 5)}; reconnecting.`;
  }
  if (!how) for (const form of document.querySelectorAll("form[data-drafts]")) saveDraft(form);
}

// A list does not move while the pointer is on one of its cards; it catches up when the pointer leaves.
const held = new Map();
const hovers = matchMedia("(hover: hover)");

document.addEventListener("htmx:before:swap", (event) => {
  const tasks = event.detail.tasks;
  for (const task of [...tasks]) {
    const list = typeof task.target === "string" ? document.querySelector(task.target) : task.target;
    if (!["attention", "board"].includes(list?.id)) continue;
    held.delete(list.id);
    if (!hovers.matches || !list.querySelector(".card:hover") || order(list) === order(task.fragment)) continue;
    held.set(list.id, [...task.fragment.children].map((one) => one.outerHTML).join(""));
    for (const card of list.querySelectorAll(".card")) {
      card.inert = !task.fragment.querySelector(`#${CSS.escape(card.id)}`); // dealt with: it stays, greyed
    }
    tasks.splice(tasks.indexOf(task), 1);
  }
});
document.addEventListener("pointerout", (event) => {
  const list = event.target.closest?.("#attention, #board");
  if (!list || !held.has(list.id) || list.contains(event.relatedTarget)) return;
  const text = held.get(list.id);
  held.delete(list.id);
  htmx.swap({ sourceElement: document.getElementById("live"), target: `#${list.id}`, swap: "outerMorph", text });
});

function order(list) {
  return [...list.querySelectorAll(".card")].map((card) => card.id).join(" ");
}

// Comments: drafts are on the server half a second after the last key. A draft that was changed elsewhere in the
// meantime stays, and this one becomes another draft.
const timers = new WeakMap();
const PAUSE_MS = 500;

document.addEventListener("input", (event) => {
  const form = event.target.closest?.("form[data-drafts]");
  if (!form) return;
  clearTimeout(timers.get(form));
  timers.set(form, setTimeout(() => saveDraft(form), PAUSE_MS));
});
document.addEventListener("submit", async (event) => {
  const form = event.target.closest?.("form[data-drafts]");
  if (!form) return;
  event.preventDefault();
  if (await saveDraft(form)) finish(form, form.made);
});
document.addEventListener("visibilitychange", () => {
  if (document.hidden) for (const form of document.querySelectorAll("form[data-drafts]")) saveAtOnce(form);
});
addEventListener("pagehide", () => {
  for (const form of document.querySelectorAll("form[data-drafts]")) saveAtOnce(form);
});

// One form for each place: a second click goes to the one that is open.
document.addEventListener("htmx:before:request", (event) => {
  const path = event.target.matches?.(".plus, #overall .add button") && event.target.getAttribute("hx-get");
  if (!path) return;
  const row = new URL(path, location).searchParams.get("row");
  const line = event.target.closest("tr");
  let open = line ? null : document.querySelector("#overall > form[data-drafts]");
  for (let next = line?.nextElementSibling; next?.matches("tr.notes"); next = next.nextElementSibling) {
    if (next.dataset.row === row) open ??= next.querySelector("form[data-drafts]");
  }
  if (!open) return;
  event.preventDefault();
  open.querySelector("textarea").focus();
});

async function saveDraft(form) {
  clearTimeout(timers.get(form));
  while (form.saving) await form.saving;
  const text = form.querySelector("textarea").value;
  if (!text.trim() || text === form.dataset.saved) return true;
  form.saving = sendDraft(form, text);
  try {
    return await form.saving;
  } finally {
    form.saving = null;
    placeComments();
  }
}

// The page may be gone in a moment: a save that is on its way is not waited for. The server orders them.
function saveAtOnce(form) {
  const text = form.querySelector("textarea").value;
  if (!form.saving) saveDraft(form);
  else if (text.trim() && text !== form.sending) put(form, text);
}

function put(form, text) {
  const known = form.dataset.comment;
  form.sending = text;
  return ask(form, known ? "PUT" : "POST", known, { text, rev: form.dataset.rev ?? "", ...place(form) });
}

async function sendDraft(form, text) {
  const known = form.dataset.comment;
  let answer = await put(form, text);
  let note = "saved as a draft";
  if (known && [404, 409].includes(answer?.status)) {
    answer = await ask(form, "POST", "", { text, ...place(form) });
    note = "saved as another draft: the first one was changed elsewhere";
  }
  const shown = form.querySelector("[data-note]");
  if (!answer?.ok) {
    const problem = answer ? parsed(await answer.text())?.textContent.trim() : "the server cannot be reached";
    shown.textContent = `not saved: ${problem}`;
    return false;
  }
  form.made = parsed(await answer.text());
  Object.assign(form.dataset, { comment: form.made.dataset.comment, rev: form.made.dataset.rev, saved: text });
  shown.textContent = note;
  return true;
}

async function ask(form, method, id, fields) {
  const url = form.dataset.drafts + (id ? `/${id}` : "");
  form.key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
  form.step = (form.step ?? 0) + 1;
  const body = new URLSearchParams({ ...fields, form: form.key, step: form.step });
  try {
    return await fetch(url, { method, body, headers: { "HX-Request": "true" }, keepalive: true });
  } catch {
    return null;
  }
}

function parsed(html) {
  const made = document.createElement("template");
  made.innerHTML = html;
  return made.content.firstElementChild;
}

// Where a form stands: the row before it, in its file.
function place(form) {
  const file = form.closest(".file");
  let row = form.closest("tr.notes");
  const asked = row?.dataset.row;
  while (row && !row.id) row = row.previousElementSibling;
  return { path: file?.dataset.path ?? "", diff: file?.dataset.diff ?? "", row: asked ?? row?.id.split("r").at(-1) ?? "" };
}

// A form becomes its comment, or nothing; the focus goes where the form came from.
function finish(form, comment) {
  const line = form.closest("tr.notes");
  const opener = line?.previousElementSibling?.querySelector(".plus") ?? document.querySelector("#overall .add button");
  if (comment) {
    form.replaceWith(comment);
    htmx.process(comment);
  } else {
    (line ?? form).remove();
    placeComments(); // a draft that was not changed is shown again
  }
  (comment?.querySelector("button") ?? opener)?.focus();
}

document.addEventListener("click", async (event) => {
  const form = event.target.closest?.("[data-discard]")?.closest("form");
  if (!form) return;
  clearTimeout(timers.get(form));
  while (form.saving) await form.saving;
  if (form.dataset.comment) await ask(form, "DELETE", form.dataset.comment);
  finish(form, null);
});

// The stream has every comment in #notes; here they go to their lines. A comment that is being edited stays as it is.
function placeComments() {
  const notes = document.getElementById("notes");
  if (!notes || [...document.querySelectorAll("form[data-drafts]")].some((form) => form.saving)) return;
  const wanted = new Map([...notes.children].map((one) => [one.firstElementChild.dataset.comment, one]));
  for (const shown of document.querySelectorAll("#overall [data-comment], .file [data-comment]")) {
    const now = wanted.get(shown.dataset.comment);
    wanted.delete(shown.dataset.comment);
    if (shown.matches("form")) continue;
    if (!now) shown.remove();
    else if (now.firstElementChild.dataset.state !== shown.dataset.state) shown.replaceWith(copy(now));
  }
  for (const one of wanted.values()) insert(one);
  for (const line of document.querySelectorAll("tr.notes")) if (!line.querySelector(".comment")) line.remove();
}

function copy(note) {
  const made = note.firstElementChild.cloneNode(true);
  queueMicrotask(() => htmx.process(made));
  return made;
}

function insert(note) {
  const { file, row } = note.dataset;
  if (file === "") return document.querySelector("#overall .add, #overall")?.before(copy(note));
  const section = document.getElementById(`file-${file}`);
  if (row === "-1") return section?.querySelector(".above")?.append(copy(note));
  const line = document.getElementById(`f${file}r${row}`) ?? section?.querySelector(`[data-beside="${CSS.escape(row)}"]`);
  if (!line) return; // a file that was not loaded yet brings its own
  let last = line;
  while (last.nextElementSibling?.matches("tr.notes")) last = last.nextElementSibling;
  const made = document.createElement("tr");
  made.className = "notes";
  made.insertCell().colSpan = line.closest("table").matches(".split") ? 4 : 3;
  made.cells[0].append(copy(note));
  last.after(made);
}

// On a touch screen the line itself opens the form; a file marked as viewed folds.
document.addEventListener("click", (event) => {
  if (hovers.matches || event.target.closest("button, a, form, .comment") || String(getSelection())) return;
  event.target.closest("table.diff td.code, table.diff td.n")?.closest("tr").querySelector(".plus")?.click();
});
document.addEventListener("change", (event) => {
  const file = event.target.closest(".viewed")?.closest(".file");
  if (file) file.querySelector("details").open = !event.target.checked;
  if (event.target.id === "single-keys") localStorage.setItem("llmc keys", event.target.checked ? "on" : "off");
});

// The keys of the terminal's screen that make sense here; none act while a field has the focus.
const pages = { b: "board", t: "tasks", g: "goals", N: "night", e: "events" };

document.addEventListener("keydown", (event) => {
  const sends = event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches("textarea");
  const closes = event.key === "Escape" && event.target.closest("form[data-drafts]");
  if (sends || closes) return event.target.form?.requestSubmit();
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select")) return;
  const dialog = document.getElementById("keys");
  if (event.key === "?" && dialog && !dialog.open) {
    document.getElementById("single-keys").checked = localStorage.getItem("llmc keys") !== "off";
    dialog.showModal();
    return;
  }
  if (localStorage.getItem("llmc keys") === "off" || dialog?.open) return;
  if (event.key in pages) document.querySelector(`#nav a.${pages[event.key]}`)?.click();
  if (event.key === " " && !event.target.closest("button, summary, a.button")) nextCard(event);
});

function nextCard(event) {
  const links = [...document.querySelectorAll("#attention .card")].map((card) => card.querySelector("a")).filter(Boolean);
  if (!links.length) return;
  links[(links.indexOf(document.activeElement) + 1) % links.length].focus();
  event.preventDefault();
}
