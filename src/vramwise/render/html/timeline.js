// The memory timeline: categories stacked, reserved above them, the card's line, phases along the axis.
const SHORT = { forward: 'fwd', backward: 'bwd', optimizer: 'opt' };
const chart = { from: 0, to: 1, shown: [], cursor: null };

// One moment a column of pixels: the one with the most allocated, because a peak must be seen; and the most reserved.
// What a column ends with is kept too where the next columns are empty: that state lasts.
function visibleMoments(left, width) {
  const shown = [], xs = [], tops = [];
  const add = (i, x, top) => { shown.push(i); xs.push(x); tops.push(top); };
  let column = -1, high = -1, last = -1, top = 0;
  const flush = (next) => {
    if (high < 0) return;
    add(high, left + column, top);
    if (next > column + 1) add(last, left + column + 1, run.reserved[last]);
  };
  for (let i = 0; i < run.count; i++) {
    const x = width * (places[i] - chart.from) / (chart.to - chart.from);
    if (x > width) break;
    if (x >= 0) {
      const at = Math.floor(x);
      if (column < 0 && last >= 0) add(last, left - 1, run.reserved[last]);
      if (at !== column) { flush(at); column = at; high = i; top = 0; }
      if (run.allocated[i] > run.allocated[high]) high = i;
      top = Math.max(top, run.reserved[i]);
    }
    last = i;
  }
  if (column < 0 && last >= 0) add(last, left - 1, run.reserved[last]);
  flush(Infinity);
  return { shown, xs, tops };
}

function niceStep(most, ticks) {
  const unit = most >= 2 * GIB ? GIB : most >= 2 * MIB ? MIB : 1;
  const rough = most / unit / ticks, power = 10 ** Math.floor(Math.log10(rough));
  return unit * power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
}

function highest() {
  const peak = run.reserved[data.peak], lines = data.lines.map(([bytes]) => bytes);
  let most = peak;
  for (const bytes of lines) if (bytes < 2.2 * peak || data.failed) most = Math.max(most, bytes);
  for (const [, , , reserved] of data.measured) most = Math.max(most, reserved);
  if (data.failed) most = Math.max(most, Math.min(run.reserved[run.count - 1] + data.failed[1], 1.4 * most));
  return most * 1.07 || 1;
}

function drawTimeline() {
  const full = Math.max(280, chart.plot.clientWidth), narrow = full < 560;
  const box = { left: narrow ? 46 : 60, right: full - 10, top: 14, bottom: narrow ? 250 : 350 };
  const width = box.right - box.left, most = highest();
  const x = (place) => box.left + width * (place - chart.from) / (chart.to - chart.from);
  const y = (bytes) => box.bottom - (box.bottom - box.top) * bytes / most;
  Object.assign(chart, { x, y, box, full }, visibleMoments(box.left, width));

  const root = svg('svg', { class: 'drawn', viewBox: `0 0 ${full} ${box.bottom + 46}`, 'aria-hidden': 'true' });
  root.append(hatching('idle-hatch'), svg('clipPath', { id: 'inside' },
    svg('rect', { x: box.left, y: 0, width, height: box.bottom })));
  drawScale(root, most);
  const inside = root.appendChild(svg('g', { 'clip-path': 'url(#inside)' }));
  drawStack(inside);
  drawPhases(root);
  drawLines(root);
  drawMeasured(inside);
  drawFailure(inside);
  drawPeak(root);
  chart.overlay = root.appendChild(svg('g', {}));
  chart.plot.replaceChildren(root);
}

function drawScale(root, most) {
  const { box, y } = chart, step = niceStep(most, 6);
  for (let bytes = 0; bytes < most; bytes += step) {
    const unit = step >= GIB / 8 ? GIB : MIB, name = unit === GIB ? 'GiB' : 'MiB';
    const value = `${+(bytes / unit).toFixed(2)}${bytes + step >= most ? ` ${name}` : ''}`;
    root.append(svg('path', { class: 'grid', d: `M${box.left} ${y(bytes).toFixed(1)}H${box.right}` }),
      svg('text', { class: 'dim', x: box.left - 6, y: y(bytes) + 4, 'text-anchor': 'end' }, value));
  }
}

// Memory stays as it is until the next event: each curve is a staircase.
function stairs(height) {
  const { shown, xs, x, box } = chart;
  return { points: shown.map((i, k) => [xs[k], height(i, k).toFixed(1)]), end: Math.min(x(1), box.right + 1).toFixed(1) };
}
function stairsPath({ points, end }) {
  let path = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; i++) path += `H${points[i][0]}V${points[i][1]}`;
  return `${path}H${end}`;
}
function areaPath(upper, lower) {
  let path = `${stairsPath(upper)}V${lower.points[lower.points.length - 1][1]}`;
  for (let i = lower.points.length - 1; i > 0; i--) path += `H${lower.points[i][0]}V${lower.points[i - 1][1]}`;
  return `${path}H${lower.points[0][0]}Z`;
}

function drawStack(root) {
  const { shown, tops, y } = chart;
  if (!shown.length) return;
  const sum = new Float64Array(shown.length);
  let lower = stairs(() => y(0));
  run.series.forEach((values, number) => {
    let any = false;
    shown.forEach((i, k) => { sum[k] += values[i]; any = any || values[i] > 0; });
    if (!any) return;
    const upper = stairs((i, k) => y(sum[k]));
    root.append(svg('path', { class: `area ${colour(number)}`, d: areaPath(upper, lower) }));
    lower = upper;
  });
  const reserved = stairs((i, k) => y(tops[k]));
  root.append(svg('path', { fill: 'url(#idle-hatch)', d: areaPath(reserved, lower) }),
    svg('path', { class: 'reserved', d: stairsPath(reserved) }));
}

function drawPhases(root) {
  const { box, x } = chart, top = box.bottom + 4;
  phases.forEach((phase, i) => {
    const left = Math.max(x(axis[i]), box.left), right = Math.min(x(axis[i + 1]), box.right);
    if (right - left < 0.5) return;
    const odd = i % 2 ? ' odd' : '';
    root.append(svg('rect', { class: `phase${odd}`, x: left, y: top, width: right - left, height: 17 }));
    const name = [phase.name, SHORT[phase.name] ?? ''].find((text) => text.length * 6.4 + 4 <= right - left);
    if (name) root.append(svg('text', { x: (left + right) / 2, y: top + 13, 'text-anchor': 'middle' }, name));
  });
  steps().forEach(({ from, to, title, step }, i) => {
    const left = Math.max(x(from), box.left), right = Math.min(x(to), box.right);
    if (right - left < 1) return;
    if (i && x(from) > box.left) {
      root.append(svg('path', { class: 'grid', d: `M${left.toFixed(1)} ${box.top}V${box.bottom + 40}` }));
    }
    const text = [title, `${step}`].find((name) => name.length * 6.6 + 5 < right - left);
    if (step && text) root.append(svg('text', { class: 'dim', x: (left + right) / 2, y: top + 34, 'text-anchor': 'middle' }, text));
  });
}

function steps() {
  const found = [];
  phases.forEach((phase, i) => {
    const last = found[found.length - 1];
    if (last && phase.step && last.step === phase.step) last.to = axis[i + 1];
    else found.push({ step: phase.step, title: phase.step ? `step ${phase.step}` : phase.name, from: axis[i], to: axis[i + 1] });
  });
  return found;
}

const fits = (text) => text.length * 7 < chart.box.right - chart.box.left - 12;

function drawLines(root) {
  const { box, y } = chart;
  data.lines.forEach(([bytes, name, short], i) => {
    const at = y(bytes);
    if (at < 8) return;
    const crowded = i && Math.abs(at - y(data.lines[0][0])) < 18;
    const side = crowded ? { x: box.right - 20, 'text-anchor': 'end' } : { x: box.left + 6 };
    root.append(svg('path', { class: 'limit', d: `M${box.left} ${at.toFixed(1)}H${box.right}` }),
      svg('text', { class: 'limit-text halo', y: at > 20 ? at - 6 : at + 16, ...side }, fits(name) ? name : short));
  });
}

function drawMeasured(root) {
  const { x, y } = chart;
  for (const [step, name, allocated, reserved] of data.measured) {
    phases.forEach((phase, i) => {
      if (phase.step !== step || phase.name !== name) return;
      for (const bytes of [allocated, reserved]) {
        root.append(svg('path', { class: 'measured', d: `M${x(axis[i]).toFixed(1)} ${y(bytes).toFixed(1)}H${x(axis[i + 1]).toFixed(1)}` }));
      }
    });
  }
}

// What was asked for and not to be had, on top of what was reserved.
function drawFailure(root) {
  if (!data.failed) return;
  const { x, y } = chart, reserved = run.reserved[run.count - 1], right = x(1);
  const top = Math.max(y(reserved + data.failed[1]), 2), bottom = y(reserved);
  root.append(svg('rect', { class: 'failed', x: right - 12, y: top, width: 11, height: bottom - top }),
    svg('text', { class: 'limit-text halo', x: right - 18, y: bottom + 16, 'text-anchor': 'end' },
      `out of memory: ${size(data.failed[1])} asked for`));
}

function drawPeak(root) {
  const place = places[data.peak];
  if (!run.count || data.failed || place < chart.from || place > chart.to) return;
  const { x, y, box } = chart, at = x(place), top = y(run.reserved[data.peak]);
  const short = `peak: ${size(run.reserved[data.peak])} reserved`;
  const long = `${short}, ${size(run.allocated[data.peak])} in use`;
  const text = long.length * 6.4 < 0.5 * (box.right - box.left) ? long : short;
  const anchor = at + text.length * 6.4 > box.right ? 'end' : 'start';
  // Above the peak nothing is drawn but perhaps a limit.
  const crowded = top < 22 || data.lines.some(([bytes]) => y(bytes) < top + 2 && y(bytes) > top - 24);
  const side = { x: at + (anchor === 'end' ? 4 : -4), 'text-anchor': anchor };
  root.append(svg('circle', { class: 'dot', cx: at, cy: top, r: 4 }),
    svg('text', { class: 'halo', y: crowded ? top + 20 : top - 9, ...side }, text));
}
