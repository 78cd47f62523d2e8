/* Time, keys, the mouse, and the address: #t=SECONDS&a=0&b=1&job=ID&from=..&to=..&colour=..&order=.. */
const view = { t: BEGIN, from: BEGIN, to: END, job: -1, colour: "job", order: "worse", playing: false, a: 0, b: Math.min(1, DATA.schedules.length - 1) };
const panes = {};
let events = [], hovered = null;
const side = (name) => DATA.schedules[view[name]];
view.other = (s) => view.a === view.b ? null : s === side("a") ? side("b") : side("a");

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1)), number = (name) => given.has(name) && Number.isFinite(+given.get(name)) ? +given.get(name) : null;
  for (const name of ["t", "from", "to"]) if (number(name) !== null) view[name] = Math.max(BEGIN, Math.min(END, number(name)));
  if (view.to <= view.from) { view.from = BEGIN; view.to = END; }
  for (const name of ["a", "b"]) if (DATA.schedules[number(name)] && number(name) !== null) view[name] = number(name);
  if (given.has("job")) view.job = JOBS.id.indexOf(given.get("job"));
  if (ORDERS[given.get("order")]) view.order = given.get("order");
  if (["job", "loses", "waited"].includes(given.get("colour"))) view.colour = given.get("colour");
}

function writeAddress() {
  const said = { t: view.t.toFixed(2), a: view.a, b: view.b };
  if (view.from > BEGIN || view.to < END) Object.assign(said, { from: view.from.toFixed(1), to: view.to.toFixed(1) });
  if (view.job >= 0) said.job = JOBS.id[view.job];
  if (view.colour !== "job") said.colour = view.colour;
  if (view.order !== "worse") said.order = view.order;
  history.replaceState(null, "", "#" + new URLSearchParams(said));
}

/** Everything that depends on which schedules are shown. */
function choose() {
  const a = side("a"), b = side("b");
  view.largest = Math.max(...JOBS.id.map((_, j) => Math.abs(b.jct[j] - a.jct[j])), 1e-9);
  events = eventsOf(a === b ? [a] : [a, b]);
  const one = DATA.schedules.length === 1;
  document.querySelector("main").className = one ? "one" : "";
  for (const pane of document.querySelectorAll(".pane")) {
    const name = pane.dataset.side;
    pane.hidden = one && name === "b";
    if (pane.hidden) continue;
    panes[name] = makePane(pane, name, side(name), (i) => { view[name] = i; choose(); });
    panes[name].gantt = new Gantt(panes[name].canvas, view);
    listen(name);
  }
  drawWhy(a, b);
  table();
  show();
}

function table() {
  byId("table").hidden = DATA.schedules.length === 1;
  drawTable(side("a"), side("b"), view, select, (order) => { view.order = order; table(); });
}

function show() {
  const at = before(events.map((one) => one.t), view.t);
  byId("clock").textContent = `${clock(view.t)} of ${clock(END)}`;
  const texts = at >= 0 && view.t - events[at].t < 1 ? events[at].texts : [];
  byId("event").textContent = texts.slice(0, 4).join(" · ") + (texts.length > 4 ? ` · ${texts.length - 4} more` : "");
  byId("play").textContent = view.playing ? "❚❚ pause" : "▶ play";
  byId("colour").value = view.colour;
  drawOverview(byId("overview"), side("a"), side("b"), view);
  for (const name of Object.keys(panes)) {
    panes[name].gantt.draw(side(name));
    fillWaiting(panes[name].list, side(name), view, select);
  }
}

function go(t) {
  view.t = Math.max(BEGIN, Math.min(END, t));
  if (view.t < view.from || view.t > view.to) { const width = view.to - view.from; view.from = Math.max(BEGIN, Math.min(END - width, view.t - width / 2)); view.to = view.from + width; }
  show();
  if (!view.playing) writeAddress();
}

function step(count) {
  const times = events.map((one) => one.t), at = before(times, view.t);
  const next = count < 0 && at >= 0 && times[at] < view.t ? at + count + 1 : at + count;
  go(times[Math.max(0, Math.min(times.length - 1, next))]);
}

function zoom(factor) {
  const width = Math.min(END - BEGIN, Math.max((view.to - view.from) * factor, 1));
  view.from = Math.max(BEGIN, Math.min(END - width, view.t - (view.t - view.from) / (view.to - view.from) * width));
  view.to = view.from + width;
  go(view.t);
}

/** Mark a job in both; `jump` goes to the moment from which on it is better off in one of them. */
function select(job, jump = false) {
  view.job = view.job === job && !jump ? -1 : job;
  document.querySelectorAll("#rows tr.on").forEach((row) => row.classList.remove("on"));
  document.querySelector(`#rows tr[data-job="${view.job}"]`)?.classList.add("on");
  if (jump) go(Math.min(side("a").jobs.start[job] ?? JOBS.submit[job], side("b").jobs.start[job] ?? JOBS.submit[job]));
  else { show(); writeAddress(); }
}

function nextJob(by) {
  const order = orderedJobs(side("a"), side("b"), view.order), at = order.indexOf(view.job);
  select(order[Math.max(0, Math.min(order.length - 1, at + by))], true);
  document.querySelector("#rows tr.on")?.scrollIntoView({ block: "nearest" });
}

function play() {
  view.playing = !view.playing;
  if (view.playing && view.t >= END) view.t = BEGIN;
  let last = performance.now();
  const frame = (now) => {
    if (!view.playing) return;
    go(view.t + (now - last) / 1000 * (END - BEGIN) / 60 * +byId("speed").value);
    last = now;
    if (view.t >= END) { view.playing = false; show(); writeAddress(); } else requestAnimationFrame(frame);
  };
  if (view.playing) requestAnimationFrame(frame); else { show(); writeAddress(); }
}

function listen(name) {
  const { canvas, gantt } = panes[name], tip = byId("tip");
  canvas.addEventListener("mousemove", (event) => {
    const found = gantt.at(side(name), event.offsetX, event.offsetY);
    if (event.buttons === 1 && hovered === "drag") go(found.t);
    tip.hidden = found.job < 0;
    if (found.job < 0) return;
    tip.textContent = jobText(side(name), found.job, found.t, view.other(side(name)));
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
  });
  canvas.addEventListener("mouseleave", () => { tip.hidden = true; hovered = null; });
  canvas.addEventListener("mousedown", (event) => {
    const found = gantt.at(side(name), event.offsetX, event.offsetY);
    hovered = "drag";
    if (found.job >= 0) select(found.job); else go(found.t);
  });
  canvas.addEventListener("mouseup", () => { hovered = null; });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8);
  }, { passive: false });
}

const KEYS = {
  " ": () => play(), ArrowLeft: (e) => step(e.shiftKey ? -20 : -1), ArrowRight: (e) => step(e.shiftKey ? 20 : 1),
  Home: () => go(BEGIN), End: () => go(END), "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
  0: () => { view.from = BEGIN; view.to = END; go(view.t); }, ArrowDown: () => nextJob(1), ArrowUp: () => nextJob(-1),
  Escape: () => { if (view.job >= 0) select(view.job); },
  c: () => { const all = ["job", "loses", "waited"]; view.colour = all[(all.indexOf(view.colour) + 1) % 3]; show(); writeAddress(); },
};

document.addEventListener("keydown", (event) => {
  if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || !KEYS[event.key]) return;
  event.preventDefault();
  KEYS[event.key](event);
});
byId("first").addEventListener("click", () => go(BEGIN));
byId("back").addEventListener("click", () => step(-1));
byId("next").addEventListener("click", () => step(1));
byId("play").addEventListener("click", play);
byId("colour").addEventListener("change", (event) => { view.colour = event.target.value; show(); writeAddress(); });
const seek = (event) => go(BEGIN + event.offsetX / event.target.clientWidth * (END - BEGIN));
byId("overview").addEventListener("mousedown", seek);
byId("overview").addEventListener("mousemove", (event) => { if (event.buttons === 1) seek(event); });
addEventListener("resize", show);
addEventListener("hashchange", () => { readAddress(); choose(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", choose);

byId("command").textContent = DATA.command;
const types = [...new Set(DATA.cluster.types)].join(", ");
byId("subtitle").textContent = `${COUNT} jobs · ${SERVERS} servers · ${GPUS} GPUs${types ? " (" + types + ")" : ""}${DATA.cluster.jobs_per_gpu > 1 ? ` · ${DATA.cluster.jobs_per_gpu} jobs to a GPU` : ""}`;
readAddress();
choose();
document.body.dataset.ready = "true";
