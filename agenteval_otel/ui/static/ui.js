// What is new on the overview, and keys of the label page and of an answer. No other script runs on these pages.
"use strict";

const EVERY_MS = 2000;
let isPaused = false;

document.addEventListener("change", (event) => {
  if (event.target.id === "pause") {
    isPaused = event.target.checked;
  }
});

// While somebody reads how a figure was estimated, or is in the page with the keyboard, it stays as it is.
function isRead(live) {
  const focused = document.activeElement;
  return live.querySelector("details[open]") || (live.contains(focused) && focused.id !== "pause");
}

async function update() {
  const live = document.querySelector("[data-update]");
  if (!live || isPaused || document.hidden || isRead(live)) {
    return;
  }
  const response = await fetch(live.dataset.update, { headers: { "x-update": "true" } });
  if (response.status !== 200 || isPaused || isRead(live)) {
    return; // 204: nothing is new
  }
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = page.getElementById(live.id);
  if (!fresh) {
    return;
  }
  const wasOnPause = document.activeElement.id === "pause";
  live.replaceWith(fresh);
  if (wasOnPause) {
    document.getElementById("pause")?.focus();
  }
}

async function updateForever() {
  try {
    await update();
  } catch {
    // The server has ended, or is busy: the next time shows it.
  }
  setTimeout(updateForever, EVERY_MS);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") {
      event.target.blur();
    }
    return;
  }
  const element = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (element) {
    event.preventDefault();
    element.matches("textarea") ? element.focus() : element.click();
  }
});

if (document.querySelector("[data-update]")) {
  setTimeout(updateForever, EVERY_MS);
}
