// What is new on the overview, keys of the label page, of an answer and of the list, and dragging in a chart. No
// other script runs on these pages.
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

function isOpen(choice) {
  return !choice.querySelector("input:checked");
}

// Several criteria on the label page: a digit goes to one, p and f give its verdict, and the last verdict sends the form.
function answersChoice(key) {
  const choices = [...document.querySelectorAll("[data-choice]")];
  const numbered = choices[Number(key) - 1];
  if (numbered) {
    numbered.querySelector("input[type=radio]").focus();
    return true;
  }
  if (choices.length === 0 || !["p", "f"].includes(key)) {
    return false;
  }
  const focused = document.activeElement.closest("[data-choice]");
  const choice = focused ?? choices.find(isOpen) ?? choices[0];
  choice.querySelector(`input[value=${key === "p" ? "pass" : "fail"}]`).checked = true;
  const next = choices.find(isOpen);
  if (next) {
    next.querySelector("input[type=radio]").focus();
  } else {
    choice.closest("form").requestSubmit();
  }
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (event.target.closest("input:not([type=radio], [type=checkbox]), textarea, select")) {
    if (event.key === "Escape") {
      event.target.blur();
    }
    return;
  }
  if (answersChoice(event.key.toLowerCase())) {
    event.preventDefault();
    return;
  }
  const element = document.querySelector(`[data-key="${CSS.escape(event.key.toLowerCase())}"]`);
  if (element) {
    event.preventDefault();
    element.matches("textarea, [type=search]") ? element.focus() : element.click();
  }
});

if (document.querySelector("[data-update]")) {
  setTimeout(updateForever, EVERY_MS);
}

// Dragging in a chart over time chooses a part of it. The form at the top of the page does the same by keyboard.
const LEAST_DRAG_PX = 6;

function chooseRange(chart) {
  const plot = chart.querySelector(".plot");
  let startX = null;
  let chosen = null;
  let isDragged = false;

  function edges(x) {
    const box = plot.getBoundingClientRect();
    const at = (place) => Math.min(Math.max(place, box.left), box.right);
    return [Math.min(at(startX), at(x)), Math.max(at(startX), at(x))];
  }

  function end() {
    startX = null;
    chosen?.remove();
    chosen = null;
  }

  // Each step that is touched is in the range as a whole.
  function touched(left, right) {
    return [...plot.querySelectorAll(".step")].filter((step) => {
      const box = step.querySelector(".column").getBoundingClientRect();
      return box.right > left && box.left < right;
    });
  }

  // The link below the pointer is neither dragged away nor focused. A click still follows it.
  plot.addEventListener("mousedown", (event) => event.button === 0 && event.preventDefault());
  plot.addEventListener("pointerdown", (event) => {
    if (event.isPrimary && event.button === 0) {
      startX = event.clientX;
      isDragged = false;
    }
  });
  document.addEventListener("pointermove", (event) => {
    if (startX === null || !event.isPrimary || (!chosen && Math.abs(event.clientX - startX) < LEAST_DRAG_PX)) {
      return;
    }
    isDragged = true;
    if (!chosen) {
      chosen = document.createElement("div");
      chosen.className = "chosen";
      chart.append(chosen);
    }
    const [left, right] = edges(event.clientX);
    chosen.style.left = `${left - chart.getBoundingClientRect().left}px`;
    chosen.style.width = `${right - left}px`;
    chosen.style.height = `${plot.getBoundingClientRect().height}px`;
  });
  document.addEventListener("pointerup", (event) => {
    if (isDragged) {
      // The click that follows would open the answers of one step, also where the drag was given up.
      const refuse = (click) => click.preventDefault();
      addEventListener("click", refuse, { capture: true });
      setTimeout(() => removeEventListener("click", refuse, { capture: true }));
      isDragged = false;
    }
    if (chosen) {
      const steps = touched(...edges(event.clientX));
      if (steps.length) {
        const range = new URL(chart.dataset.range, location.href);
        range.searchParams.set("since", steps[0].dataset.since);
        range.searchParams.set("until", steps.at(-1).dataset.until);
        location.assign(range);
      }
    }
    end();
  });
  // The browser scrolls or zooms instead: no click follows that would have to be refused.
  document.addEventListener("pointercancel", () => {
    isDragged = false;
    end();
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && end());
}

document.querySelectorAll("[data-range]").forEach(chooseRange);
