// What both charts need of the run, `data`; what listens to the window stops with `signal`. Text gets into the page as
// text only.
const GIB = 2 ** 30, MIB = 2 ** 20;
const SVG = 'http://www.w3.org/2000/svg';

function running(differences, unit) {
  const values = new Float64Array(differences.length);
  let sum = 0;
  differences.forEach((difference, i) => { values[i] = (sum += difference) * unit; });
  return values;
}

const run = {
  at: running(data.at, 1),
  reserved: running(data.reserved, data.unit),
  series: data.series.map((differences) => running(differences, data.unit)),
  count: data.at.length,
};
run.allocated = new Float64Array(run.count);
for (const values of run.series) values.forEach((value, i) => { run.allocated[i] += value; });

function size(bytes) {
  if (bytes >= GIB) return `${(bytes / GIB).toFixed(bytes < 10 * GIB ? 2 : 1)} GiB`;
  if (bytes >= 10 * MIB) return `${(bytes / MIB).toFixed(0)} MiB`;
  if (bytes >= MIB) return `${(bytes / MIB).toFixed(1)} MiB`;
  return bytes >= 1024 ? `${(bytes / 1024).toFixed(0)} KiB` : `${bytes} B`;
}

function node(kind, attributes, ...children) {
  const made = kind.startsWith('svg:') ? document.createElementNS(SVG, kind.slice(4)) : document.createElement(kind);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  made.append(...children.filter((child) => child != null));
  return made;
}

const svg = (kind, attributes, ...children) => node(`svg:${kind}`, attributes, ...children);
const category = (number) => data.categories[number]?.[0] ?? '';
const colour = (number) => `k${data.categories[number]?.[1] ?? 8}`;
const label = (number) => data.labels[number][1] || `(${category(data.labels[number][0])})`;

function hatching(id) {
  const pattern = { id, width: 5, height: 5, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' };
  return svg('defs', {}, svg('pattern', pattern, svg('path', { class: 'hatch', d: 'M0 0V5' })));
}

// Phases as stretches of events; what lies before the first mark is one too.
const phases = data.marks.map(([start, name, step]) => ({ start, name: data.phases[name], step }));
if (!phases.length || phases[0].start > 0) phases.unshift({ start: 0, name: 'start', step: 0 });
phases.forEach((phase, i) => { phase.end = i + 1 < phases.length ? phases[i + 1].start : data.events; });

function phaseAt(event) {
  let low = 0, high = phases.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (phases[middle].start <= event) low = middle; else high = middle - 1;
  }
  return low;
}
const phaseTitle = (phase) => (phase.step ? `step ${phase.step}, ${phase.name}` : phase.name);

// The axis, from 0 to 1. Nothing says how long an op takes; but it writes what it allocates, so a part of the axis goes
// by bytes, that a short spike of large tensors is seen; the rest by events, and no phase is too narrow to be found.
const BY_BYTES = 0.35, LEAST_WIDTH = 0.01, FOR_NARROW = 0.2;
const axis = new Float64Array(phases.length + 1);
const places = new Float64Array(run.count);
(() => {
  const phaseOf = Array.from(run.at, phaseAt), widths = new Float64Array(phases.length);
  const grown = run.allocated.map((bytes, i) => Math.max(0, bytes - (i ? run.allocated[i - 1] : 0)));
  const written = grown.reduce((sum, bytes) => sum + bytes, 0) || 1;
  const lasts = (i) => (i + 1 < run.count ? run.at[i + 1] : data.events) - run.at[i];
  const width = grown.map((bytes, i) => (1 - BY_BYTES) * lasts(i) / data.events + BY_BYTES * bytes / written);
  phaseOf.forEach((phase, i) => { widths[phase] += width[i]; });
  const least = Math.min(LEAST_WIDTH, FOR_NARROW / phases.length);
  widths.forEach((own, i) => { axis[i + 1] = axis[i] + Math.max(own, least); });
  const whole = axis[phases.length] || 1, passed = new Float64Array(phases.length);
  for (let i = 0; i <= phases.length; i++) axis[i] /= whole;
  phaseOf.forEach((phase, i) => {
    places[i] = axis[phase] + (axis[phase + 1] - axis[phase]) * passed[phase] / widths[phase];
    passed[phase] += width[i];
  });
})();
