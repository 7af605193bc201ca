// Charts from data attributes, keys of the label page, and pausing of updates. No other script runs on these pages.
"use strict";

const charts = new Map();

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function percent(value, digits) {
  return value == null ? "–" : `${(100 * value).toFixed(digits)} %`;
}

// In UTC, as everything on the page; a day at its beginning, else the time.
function moments(ticks) {
  return ticks.map((tick) => {
    const [day, time] = new Date(tick * 1e3).toISOString().split("T");
    return time.startsWith("00:00") ? day.slice(5) : time.slice(0, 5);
  });
}

function draw(element) {
  const { times, mean, low, high, rate, objective, kind, filling } = JSON.parse(element.dataset.chart);
  const shown = (value) => (rate ? percent(value, 1) : value == null ? "–" : value.toFixed(3));
  const isSpark = kind === "spark";
  const isBars = kind === "bars";
  const accent = colour("--accent");
  const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const points = { show: times.length < 3, size: 6, fill: accent };
  const line = {
    label: rate ? "pass rate" : "mean", stroke: accent, width: 2, spanGaps: true, points, value: (_, value) => shown(value),
  };
  // A step of time that is not over is drawn apart: dashed from the step before it, with a hollow point.
  const last = mean.length - 1;
  const data = [times, filling ? [...mean.slice(0, last), null] : mean];
  const series = [{ label: "from", value: (_, value) => (value == null ? "–" : new Date(value * 1e3).toISOString().slice(0, 16).replace("T", " ")) }, line];
  const bands = [];
  if (isBars) {
    Object.assign(line, { label: "share", fill: colour("--band"), width: 1, paths: uPlot.paths.bars({ size: [0.9], align: 1 }) });
    line.points = { show: false };
    series[0].value = (_, value) => (value == null ? "–" : `${value.toFixed(2)} to ${(value + 0.05).toFixed(2)}`);
  } else {
    const limit = (label) => ({ label, stroke: "transparent", spanGaps: true, points: { show: false }, value: (_, value) => shown(value) });
    data.push(low, high);
    series.push(limit("low"), limit("high"));
    bands.push({ series: [3, 2], fill: colour("--band") });
    if (filling) {
      const before = mean.findLastIndex((value, index) => index < last && value != null);
      data.push(mean.map((value, index) => (index === last || index === before ? value : null)));
      series.push({
        label: "still filling", stroke: accent, width: 2, dash: [3, 4], spanGaps: true,
        points: { show: true, size: 7, width: 1.5, stroke: accent, fill: colour("--card"), filter: () => [last] },
        value: (_, value, __, index) => (index === last ? shown(value) : "–"),
      });
    }
    if (objective != null) {
      data.push(times.map(() => objective));
      series.push({ label: "objective", stroke: colour("--bad"), dash: [4, 4], width: 1, points: { show: false }, value: (_, value) => shown(value) });
    }
  }
  const values = data.slice(1).flat().filter((value) => value != null);
  const least = isBars ? 0 : Math.max(0, Math.min(...values) - 0.03);
  const most = isBars ? Math.max(...values, 0.01) * 1.1 : Math.min(filling ? 1.02 : 1, Math.max(...values) + 0.03);
  const options = {
    width: element.clientWidth || 300, height: isSpark ? 48 : isBars ? 170 : 230,
    series, bands, legend: { show: !isSpark && !isBars }, cursor: { show: !isSpark && !isBars, drag: { x: false, y: false } },
    padding: isSpark ? [4, 2, 4, 2] : undefined,
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "UTC"),
    scales: {
      x: isBars ? { time: false, range: () => [0, 1] } : times.length < 2 ? { range: (_, x) => [x - 60, x + 60] } : filling ? { range: (_, from, to) => [from, to + 0.015 * (to - from)] } : {},
      y: { range: () => [least, most > least ? most : least + 0.1] },
    },
    axes: isSpark ? [{ show: false }, { show: false }] : [isBars ? { ...axis, size: 30 } : { ...axis, size: 30, values: (_, ticks) => moments(ticks) }, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (rate ? percent(tick, 0) : tick.toFixed(2))) }],
  };
  charts.get(element)?.destroy();
  element.replaceChildren();
  charts.set(element, new uPlot(options, data, element));
}

function drawAll() {
  for (const [element, chart] of charts) {
    if (!element.isConnected) {
      chart.destroy();
      charts.delete(element);
    }
  }
  document.querySelectorAll("[data-chart]").forEach((element) => {
    if (!charts.has(element)) {
      draw(element);
    }
  });
}

function drawAgain() {
  charts.forEach((chart, element) => draw(element));
}

let isPaused = false;

document.addEventListener("change", (event) => {
  if (event.target.id === "pause") {
    isPaused = event.target.checked;
  }
});

// While somebody reads how a figure was estimated, the page stays as it is.
document.addEventListener("htmx:beforeRequest", (event) => {
  if (isPaused || document.hidden || document.querySelector("#live details[open]")) {
    event.preventDefault();
  }
});
document.addEventListener("htmx:afterSwap", drawAll);

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

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAgain);
let resizing = 0;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(drawAgain, 100);
});
drawAll();
