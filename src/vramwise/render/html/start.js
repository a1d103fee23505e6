// Puts the charts into the page and redraws them when its width changes.
function button(text, title, act) {
  const made = node('button', { type: 'button', title, 'aria-label': title }, text);
  made.addEventListener('click', act);
  return made;
}

function stretchMenu() {
  const choices = [{ title: 'whole run', from: 0, to: 1 }, ...steps()];
  const menu = node('select', { 'aria-label': 'Part of the run to show' });
  choices.forEach((choice, i) => menu.append(node('option', { value: i }, choice.title)));
  const other = menu.appendChild(node('option', { value: choices.length, hidden: '' }, 'a part of it'));
  menu.addEventListener('change', () => zoomTo(choices[menu.value].from, choices[menu.value].to));
  chart.zoomed = () => {
    const chosen = choices.findIndex(({ from, to }) => Math.abs(from - chart.from) + Math.abs(to - chart.to) < 1e-9);
    menu.value = chosen < 0 ? other.value : chosen;
  };
  return menu;
}

function legend() {
  const list = node('ul', { class: 'keys' });
  data.categories.forEach(([name], number) => {
    list.append(node('li', {}, node('span', { class: `swatch ${colour(number)}` }), name));
  });
  list.append(node('li', {}, node('span', { class: 'swatch kidle' }), 'reserved, not in use'));
  if (data.measured.length) list.append(node('li', {}, node('span', { class: 'swatch kmeasured' }), 'measured, allocated and reserved'));
  return list;
}

function startTimeline(holder) {
  const most = Math.max(0, run.count - 1);
  chart.plot = node('div', { class: 'plot', tabindex: 0, role: 'slider', 'aria-label': 'Memory over the run',
    'aria-describedby': 'timeline-help', 'aria-valuemin': 0, 'aria-valuemax': most, 'aria-valuenow': data.peak,
    'aria-valuetext': run.count ? spoken(data.peak) : 'nothing was allocated' });
  const help = node('p', { class: 'help', id: 'timeline-help' },
    'From left to right: allocations in their order, the wider the larger; not time. Drag to zoom in, double-click to zoom out. '
    + 'Keys: ← → move, Page Up / Down by phase, P peak, + − zoom, Esc whole run.');
  const tools = node('div', { class: 'tools' }, stretchMenu(), button('+', 'Zoom in', () => zoomBy(0.5)),
    button('−', 'Zoom out', () => zoomBy(2)), button('Peak', 'Go to the peak', () => { chart.plot.focus(); showPeak(); }));
  holder.replaceChildren(tools, chart.plot, legend(), help);
  drawTimeline();
  listen(chart.plot);
}

const timelineHolder = document.getElementById('timeline-chart');
const segmentHolder = document.getElementById('segment-map');
if (timelineHolder && run.count) startTimeline(timelineHolder);
if (segmentHolder) { drawSegments(segmentHolder); listenToSegments(segmentHolder); }

function redraw() {
  clearCursor();
  if (chart.plot) drawTimeline();
  if (segmentHolder) drawSegments(segmentHolder);
}
let drawnAt = document.documentElement.clientWidth;
addEventListener('resize', () => {
  if (document.documentElement.clientWidth === drawnAt) return;
  drawnAt = document.documentElement.clientWidth;
  redraw();
}, { signal });
addEventListener('scroll', afterScrolling, { passive: true, signal });

addEventListener('beforeprint', clearCursor, { signal });
