// Evaluation episodes, all seeds side by side on one clock: play, pause, scrub, speed. Drawn as SVG.
"use strict";

const STEPS_PER_SECOND = 10; // at speed 1; mpe2's step is 0.1 s
const AGENT_COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195", "#555555"];

/* root: the element that holds the controls of page.html and `.stage`. report: its `runs`, `groups`, `episodes`.
   selection: what the reader has switched on; panels follow it. */
function makePlayer(root, report, selection) {
  const play = root.querySelector(".play"), scrub = root.querySelector(".scrub"), clock = root.querySelector(".clock");
  const choice = root.querySelector(".episode-choice"), speed = root.querySelector(".speed");
  const trails = root.querySelector(".trails"), stage = root.querySelector(".stage");
  const still = window.matchMedia("(prefers-reduced-motion: reduce)");
  let panels = [], at = 0, end = 0;
  let before = null, next = 0; // time of the last frame (null while paused), and the one that is asked for

  for (const index of [...new Set(report.episodes.map(episode => episode.index))].sort((a, b) => a - b)) {
    choice.append(new Option(`episode ${index}`, index));
  }

  function load() {
    const chosen = report.episodes.filter(episode => episode.index === Number(choice.value));
    const reaches = chosen.map(episode => episode.reach).sort((a, b) => a - b);
    const usual = reaches[Math.floor(reaches.length / 2)]; // one scale, but for those who go far out of it
    stage.replaceChildren();
    panels = [];
    let most = 1;
    report.groups.forEach((group, number) => {
      const part = element("div", stage);
      element("h3", part, { style: `--group: ${group.colour}` }).textContent = group.name;
      const row = element("div", part, { class: "seeds" });
      for (const episode of chosen.filter(episode => report.runs[episode.run].group === number)) {
        panels.push(makePanel(row, report.runs[episode.run], episode, usual));
      }
      most = Math.max(most, row.children.length);
    });
    stage.style.setProperty("--most", most); // panels of all groups are of one size
    end = Math.max(0, ...chosen.map(episode => episode.steps));
    scrub.max = end;
    show(end); // the whole trail: what a printed page shows
    filter();
  }

  function filter() {
    panels.forEach(panel => { panel.figure.hidden = !selection.shows(panel.run); });
    for (const part of stage.children) part.hidden = !part.querySelector(".episode:not([hidden])");
  }

  function show(step) {
    at = Math.min(Math.max(step, 0), end);
    const whole = Math.floor(at + 1e-9);
    scrub.value = whole;
    scrub.setAttribute("aria-valuetext", `step ${whole} of ${end}`);
    clock.textContent = `step ${whole} of ${end}`;
    panels.forEach(panel => panel.draw(still.matches ? whole : at, trails.checked));
  }

  function pause() {
    before = null;
    cancelAnimationFrame(next);
    play.textContent = "Play";
  }

  function start() {
    if (at >= end) show(0);
    before = performance.now();
    play.textContent = "Pause";
    next = requestAnimationFrame(frame);
  }

  function frame(now) {
    show(at + Math.max(0, now - before) / 1000 * STEPS_PER_SECOND * Number(speed.value));
    before = now;
    if (at >= end) pause();
    else next = requestAnimationFrame(frame);
  }

  function move(step) {
    pause();
    show(step);
  }

  play.addEventListener("click", () => (before === null ? start() : pause()));
  scrub.addEventListener("input", () => move(Number(scrub.value)));
  choice.addEventListener("change", () => { pause(); load(); });
  trails.addEventListener("change", () => show(at));
  root.addEventListener("keydown", event => {
    if (event.target.closest("button, input, select") || event.ctrlKey || event.altKey || event.metaKey) return;
    const whole = Math.floor(at + 1e-9);
    const moves = { ArrowLeft: whole - 1, ArrowRight: whole + 1, Home: 0, End: end };
    if (event.key === " ") before === null ? start() : pause();
    else if (event.key in moves) move(moves[event.key]);
    else return;
    event.preventDefault();
  });
  selection.onChange(filter);
  load();
}

/* One episode of one seed, in a picture that reaches as far as `usual` or as the episode needs.
   `draw(step, trails)` shows a moment; between two steps positions are interpolated. */
function makePanel(row, run, episode, usual) {
  const reach = Math.max(episode.reach, usual);
  const figure = element("figure", row, { class: "episode" });
  const caption = element("figcaption", figure);
  element("strong", caption).textContent = run.seed === null ? run.name : `seed ${run.seed}`;
  if (reach > 1.05 * usual) caption.append(`, view ×${(reach / usual).toFixed(1)}`);
  const world = svg("svg", figure, { viewBox: `${-reach} ${-reach} ${2 * reach} ${2 * reach}`, role: "img" });
  world.setAttribute("aria-label", `${run.name}, episode ${episode.index}: ${outcome(episode)}`);
  const unit = reach / 100;
  const strip = makeStrip(figure, episode);
  const said = element("p", figure, { class: "said" });
  const agents = episode.radii.map((radius, agent) => {
    const colour = AGENT_COLOURS[agent % AGENT_COLOURS.length];
    const trail = svg("polyline", world, { class: "trail", stroke: colour, "stroke-width": 1.2 * unit });
    const disc = svg("circle", world, { r: radius, fill: colour, class: "agent", "stroke-width": 2 * unit });
    return { trail, disc };
  });
  // Above the agents, which would hide them.
  const goals = episode.goals[0].map(() => {
    const radius = episode.goal_radius || 3 * unit;
    const ring = svg("circle", world, { r: radius, class: "goal", "stroke-width": 1.4 * unit });
    return { ring, dot: svg("circle", world, { r: 1.5 * unit, class: "goal-centre" }) };
  });
  const numbers = episode.radii.map((radius, agent) => {
    const label = svg("text", world, { class: "agent-number", "font-size": Math.max(radius, 6 * unit) });
    label.textContent = agent + 1;
    return label;
  });

  function draw(step, trails) {
    const own = Math.min(step, episode.steps); // a shorter episode waits at its end
    const later = Math.max(0, episode.frames.findIndex(frame => frame >= own));
    const earlier = episode.frames[later] > own ? later - 1 : later;
    const span = episode.frames[later] - episode.frames[earlier];
    const part = span ? (own - episode.frames[earlier]) / span : 0;
    const place = (rows, item) => between(rows[Math.min(earlier, rows.length - 1)][item],
                                          rows[Math.min(later, rows.length - 1)][item], part);
    goals.forEach(({ ring, dot }, goal) => {
      const [x, y] = place(episode.goals, goal);
      for (const circle of [ring, dot]) put(circle, { cx: x, cy: -y });
      ring.classList.toggle("covered", episode.covered[earlier].includes(goal));
    });
    agents.forEach(({ trail, disc }, agent) => {
      const [x, y] = place(episode.agents, agent);
      put(disc, { cx: x, cy: -y });
      put(numbers[agent], { x, y: -y });
      disc.classList.toggle("contact", episode.touching[earlier].includes(agent));
      const way = trails ? [...episode.agents.slice(0, earlier + 1).map(row => row[agent]), [x, y]] : [];
      put(trail, { points: way.map(([a, b]) => `${a},${-b}`).join(" ") });
    });
    const whole = Math.floor(own + 1e-9);
    const reached = episode.success !== null && whole >= episode.success;
    world.classList.toggle("succeeded", reached);
    strip.mark(own);
    said.textContent = [
      `reward ${number(episode.reward[earlier])}`,
      episode.touching[earlier].length ? "contact" : "",
      reached ? `success from step ${episode.success}` : "",
    ].filter(Boolean).join(" · ");
  }
  return { figure, run, draw };
}

/* A line of time under an episode: steps with a contact, the first success, and now. */
function makeStrip(figure, episode) {
  const strip = svg("svg", figure, { viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "strip" });
  strip.setAttribute("aria-hidden", "true"); // the panel's label says the same in words
  const x = step => 100 * step / episode.steps;
  svg("line", strip, { x1: 0, x2: 100, y1: 7, y2: 7, class: "time" });
  for (const step of episode.contacts) svg("line", strip, { x1: x(step), x2: x(step), y1: 2, y2: 7, class: "contact" });
  if (episode.success !== null) {
    const at = x(episode.success);
    svg("line", strip, { x1: at, x2: at, y1: 0, y2: 8, class: "success" });
  }
  const now = svg("line", strip, { y1: 0, y2: 8, class: "now" });
  return { mark: step => put(now, { x1: x(step), x2: x(step) }) };
}

function outcome(episode) {
  const contacts = `contact in ${episode.contacts.length} of ${episode.steps} steps`;
  if (!episode.has_success) return contacts;
  if (episode.success === null) return `no success, ${contacts}`;
  const end = episode.success_at_end ? "held" : "not held";
  return `first success at step ${episode.success}, ${end} at the end, ${contacts}`;
}

function between(a, b, part) {
  return [a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part];
}

function number(value) {
  return value.toFixed(2).replace("-", "−");
}

function element(name, parent, attributes = {}) {
  const made = document.createElement(name);
  put(made, attributes);
  parent.append(made);
  return made;
}

function svg(name, parent, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  put(made, attributes);
  parent.append(made);
  return made;
}

function put(made, attributes) {
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
}
