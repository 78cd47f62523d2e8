/* What schedules are: where each job is at a moment, what differs between two. No drawing here. */
const DATA = JSON.parse(document.getElementById("data").textContent);
const JOBS = DATA.jobs, COUNT = JOBS.id.length, PARTS = DATA.parts, WORK = PARTS.length - 1;
const SERVERS = DATA.cluster.gpus.length, GPUS = DATA.cluster.gpus.reduce((a, b) => a + b, 0);
const FIRST = []; DATA.cluster.gpus.reduce((sum, n, s) => (FIRST[s] = sum, sum + n), 0);
const PART_COLOURS = ["#4e79a7", "#f28e2b", "#8c564b", "#e15759", "#76b7b2", "#59a14f", "#edc948", "#ff9da7", "#9c755f", "#b07aa1", "#c3c9d1"];
const BEGIN = JOBS.submit.length ? JOBS.submit[0] : 0;
const END = Math.max(...DATA.schedules.map((s) => s.end), BEGIN + 1);

/** Sorted step function of (time, change) pairs: [times, values]. */
function steps(changes) {
  changes.sort((x, y) => x[0] - y[0]);
  const times = [BEGIN], values = [0];
  for (const [time, change] of changes) {
    if (time === times[times.length - 1]) values[values.length - 1] += change;
    else { times.push(time); values.push(values[values.length - 1] + change); }
  }
  return [times, values];
}

/** Index of the last entry of an ascending list that is at most x; -1 before all. */
function before(list, x) {
  let low = 0, high = list.length;
  while (low < high) { const middle = (low + high) >> 1; if (list[middle] <= x) low = middle + 1; else high = middle; }
  return low - 1;
}

for (const s of DATA.schedules) {
  s.runsOf = Array.from({ length: COUNT }, () => []);
  s.runs.job.forEach((job, i) => s.runsOf[job].push(i));
  s.runsOf.forEach((runs) => runs.sort((x, y) => s.runs.start[x] - s.runs.start[y]));
  s.barsOf = Array.from({ length: GPUS }, () => []);
  s.bars.gpu.forEach((gpu, i) => s.barsOf[gpu].push(i));
  s.ringsOf = Array.from({ length: SERVERS + 1 + Math.max(-1, ...DATA.cluster.racks) }, () => []);
  s.rings.link.forEach((link, i) => s.ringsOf[link].push(i));
  s.inSystem = steps([...JOBS.submit.map((t) => [t, 1]), ...s.jobs.end.map((t) => [t, -1])]);
  s.jct = s.jobs.jct;
}

/** The run of a job at time t (an index into s.runs), or -1. */
function runAt(s, job, t) {
  for (const i of s.runsOf[job]) if (s.runs.start[i] <= t && t < s.runs.stop[i]) return i;
  return -1;
}

function stateAt(s, job, t) {
  if (t < JOBS.submit[job]) return "future";
  if (t >= s.jobs.end[job]) return "done";
  return runAt(s, job, t) >= 0 ? "running" : "waiting";
}

/** Rows of the jobs that wait at t, the longest in the system first; how many run and have ended. */
function queueAt(s, t) {
  const waiting = [];
  let running = 0, ended = 0;
  for (let job = 0; job < COUNT && JOBS.submit[job] <= t; job++) {
    if (t >= s.jobs.end[job]) ended++;
    else if (runAt(s, job, t) >= 0) running++;
    else waiting.push(job);
  }
  return { waiting, running, ended };
}

/** Seconds until t that a job has waited and has run. */
function spent(s, job, t) {
  let ran = 0;
  for (const i of s.runsOf[job]) ran += Math.max(0, Math.min(s.runs.stop[i], t) - s.runs.start[i]);
  const here = Math.max(0, Math.min(t, s.jobs.end[job]) - JOBS.submit[job]);
  return { waited: Math.max(0, here - ran), ran };
}

/** Rings on a link at t. */
function ringsAt(s, link, t) {
  for (const i of s.ringsOf[link]) if (s.rings.start[i] <= t && t < s.rings.stop[i]) return s.rings.rings[i];
  return 0;
}

/** Means over the jobs that were not turned away by either: {a: [parts], b: [parts], n}. */
function meanParts(a, b) {
  const kept = JOBS.id.map((_, j) => j).filter((j) => a.jobs.outcome[j] !== "blocked" && b.jobs.outcome[j] !== "blocked");
  const mean = (s) => PARTS.map((_, p) => kept.reduce((sum, j) => sum + (s.jobs.parts[p][j] || 0), 0) / Math.max(kept.length, 1));
  return { a: mean(a), b: mean(b), kept };
}

/** All that happens in some schedules, in order: [{t, text}]. */
function eventsOf(schedules) {
  const found = new Map();
  const add = (t, text) => { const there = found.get(t); if (there) there.push(text); else found.set(t, [text]); };
  JOBS.submit.forEach((t, j) => add(t, `job ${JOBS.id[j]} arrives`));
  for (const s of schedules) {
    s.runs.job.forEach((job, i) => {
      const size = s.runs.gpus[i] ? `${s.runs.gpus[i]} GPU${s.runs.gpus[i] > 1 ? "s" : ""}` : "cores";
      add(s.runs.start[i], `${s.label}: job ${JOBS.id[job]} runs on ${size}`);
      if (s.runs.stop[i] < s.jobs.end[job]) add(s.runs.stop[i], `${s.label}: job ${JOBS.id[job]} stops`);
    });
    s.jobs.end.forEach((t, j) => add(t, `${s.label}: job ${JOBS.id[j]} ${s.jobs.outcome[j] === "completed" ? "ends" : "is " + s.jobs.outcome[j]}`));
    s.down.server.forEach((server, i) => add(s.down.start[i], `${s.label}: server ${server} fails`));
  }
  return [...found].map(([t, texts]) => ({ t, texts })).sort((x, y) => x.t - y.t);
}

function said(seconds, signed = false) {
  if (seconds === null || Number.isNaN(seconds)) return "-";
  const size = Math.abs(seconds), sign = seconds < 0 ? "−" : signed ? "+" : "";
  if (size < 300) return `${sign}${size < 10 ? size.toFixed(1) : size.toFixed(0)} s`;
  if (size < 5400) return `${sign}${(size / 60).toFixed(1)} min`;
  return `${sign}${(size / 3600).toFixed(size < 36000 ? 2 : 1)} h`;
}

function clock(seconds) {
  const whole = Math.floor(seconds), two = (n) => String(n).padStart(2, "0");
  return `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
}
