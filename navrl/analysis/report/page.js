// What the reader chose (groups, seeds, axis, range) and who has to know it; then everything is drawn.
"use strict";

/* The one state of the page. Controls change it, charts and player read it and are told of every change. */
function makeSelection(report) {
  const listeners = [], groups = new Set(report.groups.keys()), runs = new Set(report.runs);
  const changed = () => listeners.forEach(listener => listener());
  return {
    axis: Object.keys(report.axes)[0],
    range: [null, null],
    shows: run => groups.has(run.group) && runs.has(run),
    showsGroup: place => groups.has(place),
    setGroup(place, on) { groups[on ? "add" : "delete"](place); changed(); },
    setRuns(chosen, on) { chosen.forEach(run => runs[on ? "add" : "delete"](run)); changed(); },
    setAxis(axis) { this.axis = axis; this.range = [null, null]; changed(); },
    setRange(from, to) { this.range = [from, to]; changed(); },
    onChange: listener => listeners.push(listener),
  };
}

function connectControls(report, selection) {
  const controls = document.getElementById("controls");
  const every = controls.querySelector(".every-run"), single = [...controls.querySelectorAll(".run")];
  const from = controls.querySelector(".from"), to = controls.querySelector(".to");
  const emptyRange = () => { from.value = to.value = ""; };
  const bound = input => (input.value === "" ? null : Number(input.value));
  controls.querySelectorAll(".group").forEach(box =>
    box.addEventListener("change", () => selection.setGroup(Number(box.value), box.checked)));
  single.forEach(box => box.addEventListener("change", () => {
    every.checked = single.every(other => other.checked);
    selection.setRuns([report.runs[box.value]], box.checked);
  }));
  every.addEventListener("change", () => {
    single.forEach(box => { box.checked = every.checked; });
    selection.setRuns(report.runs, every.checked);
  });
  controls.querySelectorAll("[name=axis]").forEach(button => button.addEventListener("change", () => {
    emptyRange();
    selection.setAxis(button.value);
  }));
  for (const input of [from, to]) input.addEventListener("change", () => selection.setRange(bound(from), bound(to)));
  controls.querySelector(".whole").addEventListener("click", () => { emptyRange(); selection.setRange(null, null); });
  const only = document.querySelector(".only-differences");
  only.addEventListener("change", () =>
    document.querySelectorAll(".settings").forEach(table => table.classList.toggle("all-the-same", only.checked)));
}

const report = JSON.parse(document.getElementById("drawing").textContent);
const selection = makeSelection(report);
connectControls(report, selection);
makeCharts(report, selection);
if (report.episodes.length) makePlayer(document.querySelector(".player"), report, selection);
