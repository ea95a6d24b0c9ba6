// The terminal of a worker: what the pane shows is drawn, what is typed is sent.
"use strict";
const place = document.getElementById("terminal");
const state = document.getElementById("state");
const scheme = location.protocol === "https:" ? "wss:" : "ws:";
const socket = new WebSocket(`${scheme}//${location.host}${place.dataset.socket}`);
socket.binaryType = "arraybuffer";
let terminal = null;
socket.onmessage = (event) => {
  if (terminal === null) {
    const { columns, lines } = JSON.parse(event.data);
    terminal = new Terminal({ cols: columns, rows: lines, screenReaderMode: true, scrollback: 0 });
    terminal.open(place);
    terminal.onData((text) => socket.send(text));
    terminal.focus();
    state.textContent = "connected";
    return;
  }
  terminal.write(new Uint8Array(event.data));
};
socket.onclose = (event) => {
  state.textContent = `closed ${event.reason || ""}: ${place.dataset.socket.split("/").at(-2)} was given back`;
};
