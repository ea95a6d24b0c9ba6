// A browser that is signed in has the page under a path of its own; only this origin, port included, can read it here.
"use strict";
const home = localStorage.getItem("llmc home");
const asked = new URLSearchParams(location.search);
if (home && !asked.has("link") && !asked.has("out")) location.replace(home + (asked.get("next") || "/"));
