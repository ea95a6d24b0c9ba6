// The terminal of a worker: what the pane shows is drawn, what is typed is sent.
"use strict";
const place = document.getElementById("terminal");
const state = document.getElementById("state");
const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const socket = new WebSocket(`${scheme}//${location.host}${place.dataset.socket}`);
socket.binaryType = "arraybuffer";
let terminal = null;

// The view is fitted to the window of the browser by its letters: the pane keeps its size, for everybody else.
const fit = document.getElementById("fit");
const LETTERS = 15;

function draw() {
  terminal.options.fontSize = LETTERS;
  if (fit.ariaPressed === "true") requestAnimationFrame(shrink);
}

function shrink() {
  const shown = place.querySelector(".xterm-screen").getBoundingClientRect();
  const room = place.getBoundingClientRect();
  const share = Math.min(room.width / shown.width, (innerHeight - room.top - 8) / shown.height);
  const letters = terminal.options.fontSize;
  // A cell has whole pixels, so the first guess may be too large.
  if (fit.ariaPressed !== "true" || share >= 1 || letters <= 1) return;
  terminal.options.fontSize = Math.max(1, Math.min(letters - 0.1, letters * share));
  requestAnimationFrame(shrink);
}

fit.addEventListener("click", () => {
  fit.ariaPressed = String(fit.ariaPressed !== "true");
  draw();
  terminal.focus();
});
addEventListener("resize", () => terminal && draw());

socket.onmessage = (event) => {
  if (terminal === null) {
    const { columns, lines } = JSON.parse(event.data);
    terminal = new Terminal({ cols: columns, rows: lines, screenReaderMode: true, scrollback: 0 });
    terminal.open(place);
    terminal.onData((text) => socket.send(text));
    fit.disabled = false;
    draw();
    terminal.focus();
    state.textContent = "connected";
    hold(true);
    return;
  }
  terminal.write(new Uint8Array(event.data));
};
socket.onclose = (event) => {
  const why = event.reason || "the connection was closed";
  state.textContent = terminal ? `Given back: ${why}` : `Not taken: ${why}`;
  hold(false);
};

function hold(isHeld) {
  document.getElementById("held").hidden = !isHeld;
  document.body.classList.toggle("taken", isHeld);
}
