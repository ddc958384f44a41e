// Learning curves, performance profiles and the distribution of seeds at a step, drawn by plotly.js.
"use strict";

const NARROW = window.matchMedia("(max-width: 700px)");
const LABEL_GAP = 14; // pixels between two labels at the end of their lines

/* Draws every figure of the page and keeps them as `selection` has it: those in view at once, the others one by one
   when the browser has time. report: the page's document. */
function makeCharts(report, selection) {
  const figures = kind => [...document.querySelectorAll(`figure.${kind}`)];
  const drawings = new Map([
    ...figures("chart").map(figure => [figure, makeChart(figure, report, selection)]),
    ...figures("profile").map(figure => [figure, makeProfile(figure, report, selection)]),
    ...figures("distribution").map(figure => [figure, makeDistribution(figure, report, selection)]),
  ]);
  const stale = new Set(), inView = new Set();
  let waiting = false;
  function drawNext() {
    waiting = false;
    const [figure] = [...inView].filter(figure => stale.has(figure)).concat(...stale);
    if (!figure) return;
    stale.delete(figure);
    drawings.get(figure)();
    later();
  }
  function later() {
    if (!waiting && stale.size) waiting = Boolean(setTimeout(drawNext));
  }
  function drawAll() {
    stale.forEach(figure => drawings.get(figure)());
    stale.clear();
  }
  const observer = new IntersectionObserver(seen =>
    seen.forEach(({ target, isIntersecting }) => inView[isIntersecting ? "add" : "delete"](target)));
  drawings.forEach((_, figure) => { observer.observe(figure); stale.add(figure); });
  selection.onChange(() => {
    drawings.forEach((_, figure) => stale.add(figure));
    later();
  });
  later();
  // A page on paper has its own width.
  window.addEventListener("beforeprint", () => {
    drawAll();
    eachPlot(plot => Plotly.relayout(plot, { width: 330, height: 220 }));
  });
  const asBefore = { autosize: true, width: null, height: null };
  window.addEventListener("afterprint", () => eachPlot(plot => Plotly.relayout(plot, asBefore)));
}

function eachPlot(use) {
  document.querySelectorAll(".js-plotly-plot").forEach(use);
}

/* The curves of one metric: each seed thin, the group's mean thick with its band and its label at the end. */
function makeChart(figure, report, selection) {
  const metric = Object.values(report.metrics)[figure.dataset.metric], plot = figure.querySelector(".plot");
  return () => {
    const traces = [], ends = [], drawn = [];
    shownGroups(report, selection).forEach(([group, place]) => {
      const curve = (metric.curves[selection.axis] || [])[place];
      if (!curve) return;
      runsOf(report, place).forEach((run, row) => {
        if (!selection.shows(run)) return;
        const name = runName(report, run);
        traces.push(line(curve.x, curve.runs[row], group, { width: 1, opacity: 0.4, dash: "solid", name }));
        drawn.push(curve.runs[row]);
      });
      const inside = curve.x.map((_, i) => i).filter(i => curve.low[i] !== null);
      const back = [...inside].reverse();
      traces.push({
        x: [...inside, ...back].map(i => curve.x[i]),
        y: [...inside.map(i => curve.high[i]), ...back.map(i => curve.low[i])],
        fill: "toself", fillcolor: group.colour + "2e", line: { width: 0 }, mode: "lines", type: "scatter",
        hoverinfo: "skip",
      });
      traces.push(line(curve.x, curve.mean, group, { width: 2.5, opacity: 1, name: `${group.short}, mean` }));
      drawn.push(curve.mean);
      const last = curve.mean.findLastIndex(value => value !== null);
      if (last < 0) return;
      ends.push({ group, x: curve.x[last], value: curve.mean[last], low: curve.low[last], high: curve.high[last] });
    });
    const furthest = Math.max(...ends.map(end => end.x));
    ends.forEach(end => { end.early = end.x < 0.95 * furthest; }); // some seed of the group has come no further
    const range = usualRange(drawn);
    const layout = baseLayout(report.axes[selection.axis], selection.range);
    if (range) layout.yaxis.range = range;
    layout.annotations = endLabels(ends, range, plot.clientHeight - layout.margin.t - layout.margin.b);
    const said = ends.map(({ group, x, value, low, high, early }) => `${group.short} ends at ${say(value)}`
      + (low === null ? "" : ` (${say(low)} to ${say(high)})`) + (early ? `, at ${say(x)} already` : ""));
    figure.querySelector(".ends").textContent = said.join(" · ");
    const words = `Curves of ${metric.title} over ${report.axes[selection.axis]}. ${said.join("; ")}`;
    render(plot, traces, layout, words);
  };
}

/* Share of a group's seeds whose final value of a metric is better than each value. */
function makeProfile(figure, report, selection) {
  const choice = figure.querySelector(".metric"), plot = figure.querySelector(".plot");
  offer(choice, Object.keys(report.profiles), report);
  const draw = () => {
    const profiles = report.profiles[choice.value], traces = [];
    shownGroups(report, selection).forEach(([group, place]) => {
      const profile = profiles[place];
      if (!profile) return;
      traces.push(line(profile.x, profile.share, group, { width: 2.5, opacity: 1, name: group.short, shape: "hv" }));
    });
    const title = report.metrics[choice.value].title;
    const layout = baseLayout(escaped(title), [null, null]);
    Object.assign(layout, { showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom" } });
    Object.assign(layout.margin, { t: 30, r: 10 });
    layout.yaxis.range = [-0.03, 1.03];
    render(plot, traces, layout, `Performance profiles of ${title}: ${traces.map(trace => trace.name).join(", ")}`);
  };
  choice.addEventListener("change", draw);
  return draw;
}

/* Fills a choice of metrics; the first of layer 2 is chosen. */
function offer(choice, names, report) {
  names.forEach(name => choice.append(new Option(`${report.metrics[name].layer} ${report.metrics[name].title}`, name)));
  choice.value = names.find(name => report.metrics[name].layer === 2) || names[0];
}

/* Each seed's value of a metric at one environment step: that of its curve's last point up to there. */
function makeDistribution(figure, report, selection) {
  const choice = figure.querySelector(".metric"), step = figure.querySelector(".step");
  const output = figure.querySelector(".step-said"), plot = figure.querySelector(".plot");
  const names = Object.keys(report.metrics).filter(name => (report.metrics[name].curves.step || []).some(Boolean));
  offer(choice, names, report);
  step.value = step.max;
  const draw = () => {
    const curves = choice.value ? report.metrics[choice.value].curves.step : [];
    const last = Math.max(0, ...curves.filter(Boolean).map(curve => curve.x[curve.x.length - 1]));
    const at = Math.round(last * step.value / step.max), traces = [], said = [];
    output.textContent = at.toLocaleString("en");
    step.setAttribute("aria-valuetext", `step ${output.textContent}`);
    const rows = shownGroups(report, selection).filter(([, place]) => curves[place]);
    rows.forEach(([group, place], height) => {
      const curve = curves[place];
      const runs = runsOf(report, place);
      const found = curve.runs.map(values => valueAt(curve.x, values, at)).map((value, i) => ({ value, run: runs[i] }));
      const shown = found.filter(item => item.value !== null && selection.shows(item.run));
      const all = found.filter(item => item.value !== null);
      traces.push({
        x: shown.map(item => item.value), y: shown.map(() => height), mode: "markers", type: "scatter",
        text: shown.map(item => escaped(runName(report, item.run))),
        marker: { color: group.colour, size: 11, opacity: 0.75, line: { color: "#fff", width: 1 } },
        hovertemplate: "%{text}<br>%{x:.4g}<extra></extra>",
      });
      if (!all.length) return;
      const mean = all.reduce((sum, item) => sum + item.value, 0) / all.length;
      traces.push({ x: [mean, mean], y: [height - 0.3, height + 0.3], mode: "lines", type: "scatter", hoverinfo: "skip",
                    line: { color: group.colour, width: 3 } });
      const values = all.map(item => item.value);
      said.push(`${group.short}: mean ${say(mean)}, ${say(Math.min(...values))} to ${say(Math.max(...values))}, `
                + `${all.length} of ${runs.length} seeds`);
    });
    const layout = baseLayout(choice.value ? escaped(report.metrics[choice.value].title) : "", [null, null]);
    layout.yaxis = {
      tickvals: rows.map((_, i) => i), ticktext: rows.map(([group]) => escaped(shortened(group.short))),
      range: [rows.length - 0.4, -0.6], zeroline: false, automargin: true, fixedrange: true,
    };
    layout.margin.r = 15;
    figure.querySelector(".ends").textContent = said.join(" · ");
    render(plot, traces, layout, `Seeds at step ${output.textContent}. ${said.join("; ")}`);
  };
  choice.addEventListener("change", draw);
  step.addEventListener("input", draw);
  return draw;
}

/* Of the last point up to `at`; null where the run has none, or has not come so far though others have. */
function valueAt(x, values, at) {
  const found = x.findLastIndex((position, i) => position <= at && values[i] !== null);
  const ended = found === values.findLastIndex(value => value !== null) && found < x.length - 1 && x[found] < at;
  return found < 0 || ended ? null : values[found];
}

function line(x, y, group, { width, opacity, name, dash = group.dash, shape = "linear" }) {
  return {
    x, y, opacity, name: escaped(name), type: "scatter", mode: "lines", connectgaps: true,
    line: { color: group.colour, dash, width, shape },
    hovertemplate: `${escaped(name)}<br>%{x:,.4~g}: %{y:.4g}<extra></extra>`,
  };
}

function baseLayout(xTitle, [from, to]) {
  return {
    uirevision: `${xTitle} ${from} ${to}`, // while it is the same, what was zoomed stays zoomed
    margin: { l: 48, r: 78, t: 26, b: 38 }, showlegend: false, hovermode: "closest", dragmode: "zoom",
    font: { family: "system-ui, sans-serif", size: 12, color: "#1b1b1b" }, paper_bgcolor: "#fff", plot_bgcolor: "#fff",
    xaxis: {
      title: { text: xTitle, standoff: 6 }, gridcolor: "#e6e6e6", zeroline: false, nticks: 6,
      range: from === null && to === null ? undefined : [from, to], fixedrange: NARROW.matches,
    },
    yaxis: { gridcolor: "#e6e6e6", zeroline: false, nticks: 6, fixedrange: NARROW.matches, automargin: true },
    transition: { duration: 0 },
  };
}

/* From the lowest to the highest value; where the first tenth of training would squeeze the rest, without it. */
function usualRange(lines) {
  const bounds = from => {
    const values = lines.flatMap(line => line.slice(Math.floor(line.length * from)).filter(value => value !== null));
    return values.length ? [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))] : null;
  };
  const all = bounds(0), later = bounds(0.1);
  if (!all) return null;
  const squeezed = later && later[1] > later[0] && all[1] - all[0] > 3 * (later[1] - later[0]);
  const [low, high] = squeezed ? later : all;
  const margin = 0.06 * (high - low) || Math.abs(high) * 0.05 || 1;
  return [low - margin, high + margin];
}

/* The groups' names beside the ends of their lines, moved apart where they would touch. */
function endLabels(ends, range, height) {
  if (!range) return [];
  const pixels = height / (range[1] - range[0]);
  const sorted = [...ends].sort((a, b) => b.value - a.value);
  const wanted = sorted.map(end => Math.max((end.value - range[0]) * pixels, 0));
  const put = [...wanted];
  for (let i = 1; i < put.length; i++) put[i] = Math.min(put[i], put[i - 1] - LABEL_GAP);
  put[put.length - 1] = Math.max(put[put.length - 1], 0);
  for (let i = put.length - 2; i >= 0; i--) put[i] = Math.max(put[i], put[i + 1] + LABEL_GAP);
  return sorted.map((end, i) => ({
    ...(end.early ? { xref: "x", x: end.x } : { xref: "paper", x: 1 }), xanchor: "left", xshift: 4, yref: "y",
    y: Math.min(Math.max(end.value, range[0]), range[1]),
    yshift: put[i] - wanted[i], showarrow: false, text: escaped(shortened(end.group.short)),
    font: { color: end.group.colour, size: 12 },
  }));
}

function render(plot, traces, layout, words) {
  // Nothing of plotly.js's that would leave the page: no logo, no sending of data to its maker.
  const config = { responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
                   displayModeBar: NARROW.matches ? false : "hover",
                   modeBarButtons: [["toImage", "resetScale2d"]] }; // few: each is a stop of the Tab key in each chart
  Plotly.react(plot, traces, layout, config);
  plot.setAttribute("role", "group");
  plot.setAttribute("aria-label", words);
}

function shownGroups(report, selection) {
  return report.groups.map((group, place) => [group, place]).filter(([, place]) => selection.showsGroup(place));
}

/* The runs of a group, in the order of its curves' rows. */
function runsOf(report, place) {
  return report.runs.filter(run => run.group === place);
}

function runName(report, run) {
  return `${report.groups[run.group].short} ${run.seed === null ? run.name : `seed ${run.seed}`}`;
}

/* plotly.js reads some HTML in texts. */
function escaped(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function shortened(text) {
  return text.length > 11 ? `${text.slice(0, 10)}…` : text;
}

function say(value) {
  const size = Math.abs(value);
  const text = size >= 1000 ? Math.round(value).toLocaleString("en")
    : size && size < 1e-3 ? value.toExponential(1) : String(Number(value.toPrecision(3)));
  return text.replace("-", "−");
}
