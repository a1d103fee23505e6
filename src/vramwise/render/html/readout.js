// Pointing at the timeline, by mouse, finger or keys: the cursor, what it stands on in words, and zooming.
const tip = document.getElementById('tip');

function entry(name, value, swatchClass, className) {
  const swatch = swatchClass ? node('span', { class: `swatch ${swatchClass}` }) : null;
  return node('li', className ? { class: className } : {}, node('span', {}, swatch, name), node('span', {}, value));
}

function showTip(x, y, children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  if (innerWidth < 640) { // too narrow for both: the tip goes to the lower or the upper edge, away from the finger
    tip.style.left = '8px';
    tip.style.top = `${y < innerHeight - height - 24 ? innerHeight - height - 8 : 8}px`;
    return;
  }
  const left = x + 16 + width < innerWidth ? x + 16 : x - 16 - width;
  tip.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  tip.style.top = `${Math.max(8, Math.min(y - height / 2, innerHeight - height - 8))}px`;
}
const hideTip = () => { tip.hidden = true; };

function allocationsAt(i) {
  const flat = data.allocations[i], found = [];
  for (let k = 0; k < flat.length; k += 3) found.push([flat[k], flat[k + 1] * data.unit, flat[k + 2]]);
  return found;
}

function tipFor(i) {
  const live = node('ul', {}), room = Math.min(...data.lines.map(([bytes]) => bytes));
  live.append(entry('reserved', size(run.reserved[i]), '', 'sum'), entry('allocated', size(run.allocated[i]), '', 'sum'));
  for (let number = run.series.length - 1; number >= 0; number--) {
    if (run.series[number][i] > 0) live.append(entry(category(number), size(run.series[number][i]), colour(number)));
  }
  live.append(entry('reserved, not in use', size(run.reserved[i] - run.allocated[i]), 'kidle'));
  if (room < Infinity) {
    const spare = room - run.reserved[i];
    live.append(entry(spare < 0 ? 'too much' : 'spare', size(Math.abs(spare)), '', 'sum'));
  }
  const made = allocationsAt(i), list = node('ul', {});
  for (const [number, bytes, times] of made) {
    list.append(entry(label(number) + (times > 1 ? ` × ${times}` : ''), `+${size(bytes)}`, colour(data.labels[number][0])));
  }
  const event = `event ${(run.at[i] + 1).toLocaleString('en')} of ${data.events.toLocaleString('en')}`;
  return [node('b', {}, phaseTitle(phases[phaseAt(run.at[i])])), live,
    made.length ? node('p', {}, 'Just allocated') : null, made.length ? list : null, node('p', {}, event)].filter(Boolean);
}

function spoken(i) {
  const made = allocationsAt(i).map(([number, bytes]) => `${label(number)} ${size(bytes)}`);
  const held = run.series.map((values, number) => [category(number), values[i]]).filter(([, bytes]) => bytes > 0);
  return `${phaseTitle(phases[phaseAt(run.at[i])])}: ${size(run.allocated[i])} allocated, ${size(run.reserved[i])} reserved; `
    + held.map(([name, bytes]) => `${name} ${size(bytes)}`).join(', ')
    + (made.length ? `; just allocated: ${made.join(', ')}` : '');
}

function setCursor(i, clientX, clientY) {
  chart.cursor = i;
  chart.byKeys = clientX === undefined;
  const { box, x, y, overlay, plot } = chart, at = Math.max(box.left, Math.min(x(places[i]), box.right));
  overlay.replaceChildren(svg('path', { class: 'cursor', d: `M${at.toFixed(1)} ${box.top}V${box.bottom}` }),
    svg('circle', { class: 'dot', cx: at, cy: y(run.reserved[i]), r: 3.5 }),
    svg('circle', { class: 'dot', cx: at, cy: y(run.allocated[i]), r: 3.5 }));
  plot.setAttribute('aria-valuenow', i);
  plot.setAttribute('aria-valuetext', spoken(i));
  const frame = plot.getBoundingClientRect(), scale = frame.width / chart.full;
  showTip(clientX ?? frame.left + at * scale, clientY ?? frame.top + 0.4 * frame.height, tipFor(i));
}
// Under a scrolling page the tip of a pointer is in the wrong place; that of the keys moves along.
function afterScrolling() {
  if (tip.hidden) return;
  if (chart.byKeys && document.activeElement === chart.plot) setCursor(chart.cursor); else hideTip();
}
function clearCursor() {
  chart.overlay?.replaceChildren();
  hideTip();
}

// The highest moment within reach of the pointer, else the state that lasts there.
function momentAt(clientX) {
  const frame = chart.plot.getBoundingClientRect();
  const at = (clientX - frame.left) * chart.full / frame.width;
  let best = -1, before = chart.shown[0] ?? 0;
  chart.shown.forEach((i, k) => {
    const away = chart.xs[k] - at;
    if (away <= 0) before = i;
    if (Math.abs(away) <= 2.5 && (best < 0 || run.allocated[i] > run.allocated[best])) best = i;
  });
  return best >= 0 ? best : before;
}
function placeAt(clientX) {
  const frame = chart.plot.getBoundingClientRect(), { left, right } = chart.box;
  const inside = ((clientX - frame.left) * chart.full / frame.width - left) / (right - left);
  return chart.from + Math.min(1, Math.max(0, inside)) * (chart.to - chart.from);
}

function zoomTo(from, to) {
  const least = 1e-4, middle = (from + to) / 2, half = Math.max(to - from, least) / 2;
  chart.from = Math.max(0, Math.min(middle - half, 1 - least));
  chart.to = Math.min(1, Math.max(middle + half, least));
  drawTimeline();
  chart.zoomed();
  hideTip();
}
function zoomBy(factor) {
  const seen = chart.cursor === null ? -1 : places[chart.cursor];
  const middle = seen >= chart.from && seen <= chart.to ? seen : (chart.from + chart.to) / 2;
  zoomTo(middle - (middle - chart.from) * factor, middle + (chart.to - middle) * factor);
}
function showPeak() {
  const i = data.failed ? run.count - 1 : data.peak;
  if (places[i] < chart.from || places[i] > chart.to) zoomTo(0, 1);
  setCursor(i);
}

function moveCursor(by) {
  const stops = [...new Set(chart.shown)], last = stops.length - 1;
  const now = chart.cursor === null ? (by > 0 ? -1 : last + 1) : stops.findLastIndex((i) => i <= chart.cursor);
  setCursor(stops[Math.min(last, Math.max(0, now + by))]);
}
function movePhase(by) {
  const now = chart.cursor === null ? 0 : phaseAt(run.at[chart.cursor]);
  const { start, end } = phases[Math.min(phases.length - 1, Math.max(0, now + by))];
  let best = -1;
  for (let i = 0; i < run.count; i++) {
    if (run.at[i] >= start && run.at[i] < end && (best < 0 || run.allocated[i] > run.allocated[best])) best = i;
  }
  if (best < 0) return;
  if (places[best] < chart.from || places[best] > chart.to) zoomTo(0, 1);
  setCursor(best);
}

const keys = {
  ArrowLeft: (event) => moveCursor(event.shiftKey ? -20 : -1),
  ArrowRight: (event) => moveCursor(event.shiftKey ? 20 : 1),
  PageUp: () => movePhase(-1),
  PageDown: () => movePhase(1),
  Home: () => moveCursor(-run.count),
  End: () => moveCursor(run.count),
  p: showPeak,
  '+': () => zoomBy(0.5),
  '=': () => zoomBy(0.5),
  '-': () => zoomBy(2),
  0: () => zoomTo(0, 1),
  Escape: () => { zoomTo(0, 1); clearCursor(); },
};

function listen(plot) {
  let pressed = null;
  plot.addEventListener('pointermove', (event) => {
    if (pressed === null || event.pointerType === 'touch') { setCursor(momentAt(event.clientX), event.clientX, event.clientY); return; }
    const [left, right] = [pressed, placeAt(event.clientX)].sort((a, b) => a - b).map(chart.x);
    hideTip();
    chart.overlay.replaceChildren(svg('rect', { class: 'selection', x: left, y: chart.box.top, width: right - left,
      height: chart.box.bottom - chart.box.top }));
  });
  plot.addEventListener('pointerdown', (event) => {
    if (event.pointerType !== 'touch' && event.button === 0) pressed = placeAt(event.clientX);
    setCursor(momentAt(event.clientX), event.clientX, event.clientY);
  });
  addEventListener('pointerup', (event) => {
    if (pressed === null) return;
    const [from, to] = [pressed, placeAt(event.clientX)].sort((a, b) => a - b);
    pressed = null;
    if (chart.x(to) - chart.x(from) > 6) zoomTo(from, to);
  }, { signal });
  // A finger that is lifted has left too; what it pointed at stays until it points elsewhere.
  plot.addEventListener('pointerleave', (event) => { if (pressed === null && event.pointerType !== 'touch') clearCursor(); });
  addEventListener('pointerdown', (event) => { if (!event.target.closest?.('.plot, #segment-map')) clearCursor(); }, { signal });
  plot.addEventListener('dblclick', () => zoomTo(0, 1));
  plot.addEventListener('blur', clearCursor);
  plot.addEventListener('keydown', (event) => {
    const act = keys[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act(event);
  });
}
