/* GPUs by server over time, on a canvas; what does not change with time is drawn once. */
const LEFT = 62, RIGHT = 40, TOP = 4, BOTTOM = 20;
const look = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const RINGS = ["", "#aeb8c5", "#f0b429", "#ea7317", "#c81e1e"];

function jobColour(job, alpha = 1) {
  return `hsla(${((job * 0.61803398875) % 1) * 360}, ${46 + 13 * (job % 3)}%, ${56 + 7 * (job % 2)}%, ${alpha})`;
}

class Gantt {
  constructor(canvas, view) {
    this.canvas = canvas; this.view = view; this.still = document.createElement("canvas"); this.key = "";
    this.cores = DATA.schedules.some((s) => s.cores.job.length) ? 7 : 0;
    this.gap = SERVERS > 60 ? 3 : 8;
    const room = Math.max(330, Math.min(520, window.innerHeight - 430));
    this.line = Math.max(1.5, Math.min(15, (room - SERVERS * (this.gap + this.cores)) / GPUS));
    this.height = TOP + BOTTOM + GPUS * this.line + SERVERS * (this.gap + this.cores);
    canvas.style.height = `${this.height}px`;
  }
  top(server) { return TOP + FIRST[server] * this.line + server * (this.gap + this.cores) + this.gap; }
  serverOf(gpu) { return before(FIRST, gpu); }
  gpuTop(gpu) { const s = this.serverOf(gpu); return this.top(s) + (gpu - FIRST[s]) * this.line; }
  x(t) { return LEFT + (t - this.view.from) / (this.view.to - this.view.from) * (this.width - LEFT - RIGHT); }
  time(x) { return this.view.from + (x - LEFT) / (this.width - LEFT - RIGHT) * (this.view.to - this.view.from); }

  fill(s, job) {
    if (this.view.colour === "loses" && this.view.other(s)) {
      const share = (s.jct[job] - this.view.other(s).jct[job]) / Math.max(this.view.largest, 1);
      const size = Math.sqrt(Math.min(1, Math.abs(share)));
      return share > 0 ? `hsl(4, ${30 + 55 * size}%, ${82 - 34 * size}%)` : `hsl(150, ${16 + 40 * size}%, ${80 - 36 * size}%)`;
    }
    if (this.view.colour === "waited") {
      const share = Math.max(0, Math.min(1, s.jobs.parts[0][job] / Math.max(s.jct[job], 1e-9)));
      return `hsl(${205 - 200 * share}, ${45 + 30 * share}%, ${68 - 14 * share}%)`;
    }
    return jobColour(job);
  }

  drawStill(s) {
    const key = [s.label, this.view.from, this.view.to, this.view.colour, this.width, devicePixelRatio, this.view.other(s)?.label].join("|");
    if (key === this.key) return;
    this.key = key;
    const g = sized(this.still, this.width, this.height), soft = look("--soft");
    g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle";
    for (let server = 0; server < SERVERS; server++) {
      const size = DATA.cluster.gpus[server], height = size * this.line;
      g.fillStyle = look("--free");
      g.fillRect(LEFT, this.top(server), this.width - LEFT - RIGHT, height + this.cores);
      if (height + this.gap >= 11 || server % Math.ceil(12 / (height + this.gap)) === 0) {
        g.fillStyle = soft; g.textAlign = "right";
        g.fillText(`${server} ${DATA.cluster.types[server] || ""}`, LEFT - 6, this.top(server) + height / 2);
      }
    }
    g.save(); g.beginPath(); g.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height); g.clip();
    this.drawDown(g, s);
    const b = s.bars, thin = this.line < 4;
    for (let i = 0; i < b.job.length; i++) {
      if (b.stop[i] < this.view.from || b.start[i] > this.view.to) continue;
      const left = this.x(b.start[i]), part = (this.line - (thin ? 0 : 1)) / b.lanes[i], top = this.gpuTop(b.gpu[i]) + b.lane[i] * part;
      g.fillStyle = this.fill(s, b.job[i]);
      g.fillRect(left, top, Math.max(this.x(b.stop[i]) - left - (thin ? 0 : .6), .8), part);
      if (b.spans[i] && !thin) { g.fillStyle = "rgba(15,18,24,.75)"; g.fillRect(left, top, Math.max(this.x(b.stop[i]) - left - .6, .8), 1.2); }
    }
    s.cores.job.forEach((job, i) => {
      g.globalAlpha = .55; g.fillStyle = this.fill(s, job);
      g.fillRect(this.x(s.cores.start[i]), this.top(s.cores.server[i]) + DATA.cluster.gpus[s.cores.server[i]] * this.line + 1,
        Math.max(this.x(s.cores.stop[i]) - this.x(s.cores.start[i]), .8), this.cores - 2);
    });
    g.globalAlpha = 1;
    const strip = Math.max(2, this.gap - 4);
    s.rings.link.forEach((link, i) => {
      if (link >= SERVERS || s.rings.rings[i] < 2) return;
      g.fillStyle = RINGS[Math.min(s.rings.rings[i], 4)];
      g.fillRect(this.x(s.rings.start[i]), this.top(link) - strip - 1, Math.max(this.x(s.rings.stop[i]) - this.x(s.rings.start[i]), .8), strip);
    });
    g.restore();
    drawAxis(g, this.view, (t) => this.x(t), this.height - BOTTOM + 4, soft);
  }

  drawDown(g, s) {
    s.down.server.forEach((server, i) => {
      const left = this.x(s.down.start[i]), width = this.x(s.down.stop[i]) - left, height = DATA.cluster.gpus[server] * this.line;
      g.save(); g.beginPath(); g.rect(left, this.top(server), width, height); g.clip();
      g.strokeStyle = look("--soft"); g.lineWidth = 1;
      for (let x = left - height; x < left + width; x += 6) { g.beginPath(); g.moveTo(x, this.top(server) + height); g.lineTo(x + height, this.top(server)); g.stroke(); }
      g.restore();
    });
  }

  draw(s) {
    this.width = this.canvas.clientWidth || 600;
    this.drawStill(s);
    const g = sized(this.canvas, this.width, this.height), t = this.view.t, now = this.x(t), right = this.width - RIGHT;
    g.drawImage(this.still, 0, 0, this.width, this.height);
    g.fillStyle = look("--veil");
    const from = Math.max(LEFT, Math.min(right, now));
    g.fillRect(from, 0, right - from, this.height - BOTTOM);
    this.outline(g, s);
    if (now >= LEFT && now <= right) { g.fillStyle = look("--ink"); g.fillRect(now - .75, 0, 1.5, this.height - BOTTOM + 2); }
    g.font = "bold 11px system-ui, sans-serif"; g.textBaseline = "middle"; g.textAlign = "left";
    for (let server = 0; server < SERVERS; server++) {
      const rings = ringsAt(s, server, t), height = Math.max(4, DATA.cluster.gpus[server] * this.line);
      if (!rings) continue;
      g.fillStyle = RINGS[Math.min(rings, 4)];
      for (let i = 0; i < Math.min(rings, 5); i++) g.fillRect(right + 6 + 4 * i, this.top(server) + height * .2, 3, height * .6);
      if (rings > 1 && height > 10) { g.fillStyle = look("--ink"); g.fillText(rings, right + 8 + 4 * Math.min(rings, 5), this.top(server) + height / 2); }
    }
  }

  outline(g, s) {
    const job = this.view.job;
    if (job < 0) return;
    g.save(); g.beginPath(); g.rect(LEFT, 0, this.width - LEFT - RIGHT, this.height - BOTTOM); g.clip();
    const left = this.x(JOBS.submit[job]);
    g.fillStyle = look("--ink"); g.globalAlpha = .07;
    g.fillRect(left, 0, Math.max(this.x(s.jobs.end[job]) - left, 1), this.height - BOTTOM);
    g.globalAlpha = 1; g.strokeStyle = look("--ink"); g.lineWidth = 1.8;
    for (let i = 0; i < s.bars.job.length; i++) {
      if (s.bars.job[i] !== job) continue;
      const part = this.line / s.bars.lanes[i], x = this.x(s.bars.start[i]);
      g.fillStyle = this.fill(s, job);
      g.fillRect(x, this.gpuTop(s.bars.gpu[i]) + s.bars.lane[i] * part, Math.max(this.x(s.bars.stop[i]) - x, 2), part);
      g.strokeRect(x, this.gpuTop(s.bars.gpu[i]) + s.bars.lane[i] * part, Math.max(this.x(s.bars.stop[i]) - x, 2), part);
    }
    g.restore();
  }

  /** {job, gpu, t} under a point; job -1 if it is free there. */
  at(s, x, y) {
    const t = this.time(x);
    if (x < LEFT || x > this.width - RIGHT) return { job: -1, gpu: -1, t };
    for (let server = 0; server < SERVERS; server++) {
      const line = Math.floor((y - this.top(server)) / this.line);
      if (y < this.top(server) || line >= DATA.cluster.gpus[server]) continue;
      const gpu = FIRST[server] + line, inside = (y - this.gpuTop(gpu)) / this.line;
      for (const i of s.barsOf[gpu]) {
        if (s.bars.start[i] <= t && t < s.bars.stop[i] && Math.floor(inside * s.bars.lanes[i]) === s.bars.lane[i]) return { job: s.bars.job[i], gpu, t };
      }
      return { job: -1, gpu, t };
    }
    return { job: -1, gpu: -1, t };
  }
}

/** The canvas's context, in pixels of the page, cleared. */
function sized(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  return g;
}

/** Ticks at round times. */
function drawAxis(g, view, x, y, colour) {
  const wanted = (view.to - view.from) / 7;
  const round = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800];
  const every = round.find((size) => size >= wanted) || wanted;
  g.fillStyle = colour; g.font = "11px system-ui, sans-serif"; g.textAlign = "center"; g.textBaseline = "top";
  for (let t = Math.ceil(view.from / every) * every; t <= view.to; t += every) {
    g.fillRect(x(t), y - 4, 1, 4);
    g.textAlign = x(t) < 12 ? "left" : "center";
    g.fillText(every >= 3600 ? `${+(t / 3600).toFixed(2)} h` : every >= 60 ? `${+(t / 60).toFixed(1)} min` : `${+t.toFixed(1)} s`, x(t), y + 1);
  }
}
