/* What stands around the charts: why one loses, who waits, job by job. */
const el = (tag, text = "", cls = "") => { const node = document.createElement(tag); node.textContent = text; if (cls) node.className = cls; return node; };
const byId = (id) => document.getElementById(id);
const partName = (p) => ["queueing", "work"].includes(PARTS[p]) ? PARTS[p] : PARTS[p].replace("_", " ");

/** Parts in which two schedules differ, the largest difference first: [[part, seconds]]. */
function differences(a, b) {
  return a.map((x, p) => [p, b[p] - x]).filter(([, d]) => Math.abs(d) >= 0.5).sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
}

function drawWhy(a, b) {
  const means = meanParts(a, b), head = byId("headline"), total = (s) => means[s].reduce((x, y) => x + y, 0);
  head.replaceChildren();
  const bold = (text, side) => el("b", text, side);
  if (a === b) {
    head.append(bold(a.label, "a"), ` has a mean JCT of ${said(total("a"))} over ${means.kept.length} jobs.`);
  } else {
    const change = total("b") - total("a"), better = change < 0;
    const later = means.kept.filter((j) => b.jct[j] > a.jct[j] + 0.5), sooner = means.kept.filter((j) => b.jct[j] < a.jct[j] - 0.5);
    head.append(bold(b.label, "b"), " finishes jobs ", el("b", `${said(Math.abs(change))} (${(100 * Math.abs(change) / total("a")).toFixed(1)} %)`, better ? "better" : "worse"),
      ` ${better ? "sooner" : "later"} than `, bold(a.label, "a"), " on average: ",
      differences(means.a, means.b).slice(0, 4).map(([p, d]) => `${said(d, true)} ${partName(p)}`).join(", ") || "in the same parts", ". ",
      `${sooner.length} of ${means.kept.length} jobs end sooner, ${later.length} later.`);
  }
  const parts = byId("parts"), most = Math.max(...["a", "b"].map((s) => means[s].reduce((x, y) => x + Math.max(y, 0), 0)), 1e-9);
  parts.replaceChildren(...(a === b ? ["a"] : ["a", "b"]).map((side) => {
    const row = el("div", "", "stack"), bar = el("div", "", "bar"), name = el("div", (side === "a" ? a : b).label, "name");
    name.style.color = `var(--${side})`;
    [WORK, ...PARTS.keys()].filter((p, i) => i === 0 || p !== WORK).forEach((p) => {
      if (means[side][p] <= 0) return;
      const piece = el("i");
      piece.style.cssText = `width:${100 * means[side][p] / most}%;background:${PART_COLOURS[p]}`;
      piece.title = `${partName(p)}: ${said(means[side][p])} of ${said(total(side))}`;
      bar.append(piece);
    });
    row.append(name, bar, el("div", said(total(side))));
    return row;
  }));
  const shown = PARTS.map((_, p) => p).filter((p) => Math.abs(means.a[p]) >= 0.05 || Math.abs(means.b[p]) >= 0.05);
  byId("legend").replaceChildren(...shown.map((p) => {
    const item = el("span"), dot = el("i"), numbers = a === b ? said(means.a[p]) : `${said(means.a[p])} → ${said(means.b[p])}`;
    dot.style.background = PART_COLOURS[p];
    item.append(dot, `${partName(p)} ${numbers}`);
    return item;
  }));
}

/** The header and the empty frame of a pane; what changes is filled in by `fillPane`. */
function makePane(pane, side, schedule, choose) {
  const head = el("h2"), pick = el("select");
  DATA.schedules.forEach((s, i) => { const option = el("option", s.label); option.value = i; option.selected = s === schedule; pick.append(option); });
  pick.addEventListener("change", () => choose(+pick.value));
  const m = schedule.metrics, facts = [["mean JCT", said(m.mean_jct)], ["p95", said(m.p95_jct)], ["makespan", said(m.makespan)],
    ["GPUs busy", `${Math.round(100 * m.utilisation)} %`], ["stops", m.preemptions]];
  if (m.blocking_rate) facts.push(["blocked", `${(100 * m.blocking_rate).toFixed(1)} %`]);
  head.append(pick, ...facts.map(([name, value]) => { const item = el("span", `${name} `); item.append(el("b", value)); return item; }));
  const canvas = el("canvas"), list = el("div", "", "waiting");
  pane.replaceChildren(head, canvas, list);
  pane.title = "";
  return { canvas, list };
}

function fillWaiting(list, s, view, select) {
  const { waiting, running, ended } = queueAt(s, view.t), shown = waiting.slice(0, 15), head = el("p");
  const contended = DATA.cluster.gpus.filter((_, server) => ringsAt(s, server, view.t) > 1).length;
  head.append(el("b", `${waiting.length} waiting`), ` · ${running} running · ${ended} ended · `, el("b", contended), ` of ${SERVERS} links shared`,
    waiting.length > shown.length ? ` · the ${shown.length} longest in the system:` : "");
  const longest = waiting.length ? view.t - JOBS.submit[waiting[0]] : 1;
  list.replaceChildren(head, ...shown.map((job) => {
    const row = el("div"), bar = el("i"), age = view.t - JOBS.submit[job];
    bar.style.cssText = `width:${Math.max(3, 100 * age / Math.max(longest, 1e-9))}%;background:${jobColour(job)}`;
    row.append(bar, el("span", `${JOBS.id[job]} · ${JOBS.gpus[job] ? JOBS.gpus[job] + " GPUs" : "cores"} · ${said(age)}`));
    row.addEventListener("click", () => select(job));
    return row;
  }));
}

const ORDERS = {
  worse: ["loses most on the right", (a, b) => (j) => a.jct[j] - b.jct[j]],
  better: ["loses most on the left", (a, b) => (j) => b.jct[j] - a.jct[j]],
  slow: ["longest on the right", (a, b) => (j) => -b.jct[j]],
  arrival: ["arrival", () => (j) => j],
};

function orderedJobs(a, b, order) {
  const key = ORDERS[order][1](a, b);
  return JOBS.id.map((_, j) => j).sort((x, y) => key(x) - key(y));
}

function drawTable(a, b, view, select, reorder) {
  byId("order").replaceChildren(el("b", `${COUNT} jobs, by`), ...Object.entries(ORDERS).map(([name, [text]]) => {
    const button = el("button", text, view.order === name ? "on" : "");
    button.addEventListener("click", () => reorder(name));
    return button;
  }), el("span", "a bar is what the difference is made of: to the right, lost on the right; to the left, gained"));
  const table = el("table"), head = el("tr"), body = el("tbody"), shown = orderedJobs(a, b, view.order).slice(0, 400);
  const columns = [["job", "l"], ["model", "l"], ["GPUs"], ["arrives"], ["alone"], [`JCT ${a.label}`], [`JCT ${b.label}`], ["difference"], ["why", "l"]];
  head.append(...columns.map(([text, cls]) => el("th", text, cls || "")));
  const most = Math.max(...shown.map((j) => PARTS.reduce((sum, _, p) => sum + Math.max(0, Math.abs(b.jobs.parts[p][j] - a.jobs.parts[p][j])), 0)), 1);
  shown.forEach((job) => body.append(tableRow(job, a, b, most, view, select)));
  const top = el("thead"); top.append(head); table.append(top, body);
  byId("rows").replaceChildren(table);
  if (COUNT > shown.length) byId("rows").append(el("p", `and ${COUNT - shown.length} more`));
}

function tableRow(job, a, b, most, view, select) {
  const row = el("tr", "", job === view.job ? "on" : ""), first = el("td", "", "l"), dot = el("i", "", "dot");
  row.dataset.job = job;
  dot.style.background = jobColour(job);
  first.append(dot, JOBS.id[job]);
  const change = b.jct[job] - a.jct[job], ended = (s) => s.jobs.outcome[job] === "completed" ? "" : ` (${s.jobs.outcome[job]})`;
  const why = el("td", "", "why l"), bars = el("div", "", "diverge");
  let right = 50, left = 50;
  differences(PARTS.map((_, p) => a.jobs.parts[p][job]), PARTS.map((_, p) => b.jobs.parts[p][job])).forEach(([p, d]) => {
    const piece = el("i"), width = 50 * Math.abs(d) / most;
    piece.style.cssText = `left:${d > 0 ? right : left - width}%;width:${width}%;background:${PART_COLOURS[p]}`;
    piece.title = `${partName(p)} ${said(d, true)}`;
    if (d > 0) right += width; else left -= width;
    bars.append(piece);
  });
  why.append(bars);
  row.append(first, el("td", JOBS.model[job], "l"), el("td", JOBS.gpus[job]), el("td", clock(JOBS.submit[job])), el("td", said(JOBS.alone[job])),
    el("td", said(a.jct[job]) + ended(a)), el("td", said(b.jct[job]) + ended(b)),
    el("td", said(change, true), Math.abs(change) < 0.5 ? "" : change > 0 ? "worse" : "better"), why);
  row.addEventListener("click", () => select(job, true));
  return row;
}

/** What a job is and was until t, as text. */
function jobText(s, job, t, other) {
  const run = runAt(s, job, t), here = stateAt(s, job, t), time = spent(s, job, t), lines = [];
  lines.push(`job ${JOBS.id[job]}${JOBS.model[job] ? ", " + JOBS.model[job] : ""}${JOBS.user[job] ? ", of " + JOBS.user[job] : ""}`);
  const held = run < 0 ? "" : s.runs.gpus[run] ? ` on ${s.runs.gpus[run]} GPUs of ${s.runs.servers[run]} server${s.runs.servers[run] > 1 ? "s" : ""}` : " on cores";
  lines.push(`asks for ${JOBS.gpus[job]} GPUs; takes ${said(JOBS.alone[job])} alone; now ${here}${held}`);
  lines.push(`until now: waited ${said(time.waited)}, held GPUs ${said(time.ran)}`);
  const neighbours = new Set();
  s.bars.job.forEach((one, i) => {
    if (one !== job || s.bars.start[i] > t || t >= s.bars.stop[i] || s.bars.lanes[i] < 2) return;
    s.barsOf[s.bars.gpu[i]].forEach((k) => { if (s.bars.job[k] !== job && s.bars.start[k] <= t && t < s.bars.stop[k]) neighbours.add(JOBS.id[s.bars.job[k]]); });
  });
  if (neighbours.size) lines.push(`shares a GPU with job ${[...neighbours].join(", ")}`);
  const worst = worstLink(s, job, t);
  if (worst > 1) lines.push(`${worst} rings on its worst link`);
  const parts = PARTS.map((_, p) => [p, s.jobs.parts[p][job]]).filter(([, v]) => Math.abs(v) >= 0.5).map(([p, v]) => `${partName(p)} ${said(v)}`);
  lines.push(`in the end: JCT ${said(s.jct[job])} = ${parts.join(" + ").replaceAll("+ −", "− ")}`);
  if (other) lines.push(`under ${other.label}: JCT ${said(other.jct[job])} (${said(other.jct[job] - s.jct[job], true)})`);
  const counts = [["stopped", s.jobs.preemptions[job]], ["resized", s.jobs.resizes[job]], ["lost to a failing server", s.jobs.failures[job]]].filter(([, n]) => n);
  if (counts.length) lines.push(counts.map(([what, n]) => `${what} ${n} time${n > 1 ? "s" : ""}`).join(", "));
  return lines.join("\n");
}

function worstLink(s, job, t) {
  let worst = 0;
  s.bars.job.forEach((one, i) => {
    if (one === job && s.bars.spans[i] && s.bars.start[i] <= t && t < s.bars.stop[i]) worst = Math.max(worst, ringsAt(s, before(FIRST, s.bars.gpu[i]), t));
  });
  return worst;
}

/** Jobs in the system under both, and the part that is shown. */
function drawOverview(canvas, a, b, view) {
  const width = canvas.clientWidth || 900, height = 74, g = sized(canvas, width, height), base = height - 18;
  const most = Math.max(...a.inSystem[1], ...b.inSystem[1], 1), x = (t) => (t - BEGIN) / (END - BEGIN) * width, y = (n) => base - n / most * (base - 14);
  const trace = (s, colour, fill) => {
    const [times, values] = s.inSystem;
    g.beginPath(); g.moveTo(0, base);
    times.forEach((t, i) => { g.lineTo(x(t), i ? y(values[i - 1]) : base); g.lineTo(x(t), y(values[i])); });
    g.lineTo(x(END), y(values[values.length - 1]));
    if (fill) { g.globalAlpha = .13; g.fillStyle = colour; g.lineTo(x(END), base); g.fill(); g.globalAlpha = 1; }
    else { g.strokeStyle = colour; g.lineWidth = 1.4; g.stroke(); }
  };
  const sides = a === b ? [[a, "--a"]] : [[a, "--a"], [b, "--b"]];
  sides.forEach(([s, name]) => trace(s, look(name), true));
  sides.forEach(([s, name]) => trace(s, look(name), false));
  g.font = "11px system-ui, sans-serif"; g.fillStyle = look("--soft"); g.textBaseline = "top";
  const label = "jobs in the system"; g.textAlign = "right"; g.fillText(label, width - 2, 0);
  drawAxis(g, { from: BEGIN, to: END }, x, base + 4, look("--soft"));
  g.fillStyle = look("--ink"); g.globalAlpha = .08; g.fillRect(0, 0, x(view.from), base); g.fillRect(x(view.to), 0, width, base); g.globalAlpha = 1;
  g.fillRect(x(view.t) - 1, 0, 2, base + 3);
}
