// The allocator's memory to scale, like lines of a page: each piece of memory a bar, holes left blank.
const ROWS = 16, ROW = 18, GAP = 7, BETWEEN = 2, TITLE = 18;

const bars = data.segments.map(([small, expandable, stream, flat]) => {
  const parts = [];
  for (let k = 0; k < flat.length; k += 4) {
    parts.push({ kind: flat[k], bytes: flat[k + 1] * data.unit, label: flat[k + 2], blocks: flat[k + 3] });
  }
  return { small, expandable, stream, parts, bytes: parts.reduce((sum, part) => sum + part.bytes, 0) };
});

function drawSegments(holder) {
  const width = Math.max(280, holder.clientWidth), total = bars.reduce((sum, bar) => sum + bar.bytes, 0);
  if (!total) return;
  const rows = width < 560 ? ROWS * 1.5 : ROWS, scale = (rows * width) / total;
  const root = svg('svg', { class: 'drawn', 'aria-hidden': 'true' });
  root.append(hatching('hole-hatch'));
  let x = 0, y = TITLE;
  const heading = (bar, at) => root.append(svg('text', { class: 'dim', x: 0, y: at - 6 }, poolName(bar)));
  heading(bars[0], y);
  // A stretch of memory as rectangles, carried over to the next line where the line is full.
  const lay = (bytes, put) => {
    let left = bytes * scale;
    while (left > 0) {
      if (width - x < 0.01) { x = 0; y += ROW + GAP; }
      const wide = Math.min(left, width - x);
      put(x, y, wide);
      x += wide;
      left -= wide;
    }
  };
  const outlines = [];
  let holes = '';
  bars.forEach((bar, number) => {
    if (bar.small && number && !bars[number - 1].small) { x = 0; y += ROW + GAP + TITLE; heading(bar, y); }
    const [startX, startY] = [x, y];
    bar.parts.forEach((part, place) => lay(part.bytes, (left, top, wide) => {
      if (wide < 0.15) return;
      const shape = { x: left.toFixed(2), y: top, width: wide.toFixed(2), height: ROW, 'data-at': `${number} ${place}` };
      root.append(svg('rect', { ...shape, class: part.kind < 0 ? 'kfree' : colour(part.kind) }));
      if (part.kind < 0) holes += `M${shape.x} ${top}h${shape.width}v${ROW}h-${shape.width}z`;
    }));
    [x, y] = [startX, startY];
    lay(bar.bytes, (left, top, wide) => outlines.push([left, top, wide]));
    x += bar.bytes * scale > 6 ? BETWEEN : 0.6;
  });
  // one path for all holes: a pattern is costly to print
  root.append(svg('path', { d: holes, fill: 'url(#hole-hatch)', 'pointer-events': 'none' }));
  for (const [left, top, wide] of outlines) {
    if (wide > 3) root.append(svg('rect', { class: 'piece', x: left + 0.5, y: top, width: wide - 1, height: ROW }));
  }
  root.setAttribute('viewBox', `0 0 ${width} ${y + ROW + 2}`);
  holder.replaceChildren(root, scaleOf(total / rows));
}

function scaleOf(bytesInRow) {
  const loosely = bars.filter((bar) => bar.parts.every((part) => part.kind < 0)).length;
  const free = loosely ? ` ${loosely} of ${bars.length} pieces are wholly free.` : '';
  return node('p', { class: 'help' },
    `One line is ${size(bytesInRow)}. Coloured: in use, by category; hatched: reserved but free; outlined: one piece of memory.${free}`);
}

const poolName = (bar) => `${bar.small ? 'small' : 'large'} blocks${bar.expandable ? ', expandable segments' : ''}`;

function tipForPart(number, place) {
  const bar = bars[number], part = bar.parts[place], list = node('ul', {});
  const used = bar.parts.filter((one) => one.kind >= 0).reduce((sum, one) => sum + one.bytes, 0);
  list.append(entry('piece of memory', size(bar.bytes), '', 'sum'), entry('in use', size(used)), entry('free', size(bar.bytes - used)));
  const name = part.kind < 0 ? `hole of ${size(part.bytes)}` : `${category(part.kind)}: ${size(part.bytes)}`;
  const detail = part.kind < 0 ? null
    : node('p', {}, part.blocks > 1 ? `${part.blocks} blocks, the largest: ${label(part.label)}` : label(part.label));
  const pool = poolName(bar) + (bar.stream ? `, stream ${bar.stream}` : '');
  return [node('b', {}, name), detail, list, node('p', {}, pool)].filter(Boolean);
}

function listenToSegments(holder) {
  const point = (event) => {
    const at = event.target.getAttribute?.('data-at');
    if (!at) { hideTip(); return; }
    const [number, place] = at.split(' ').map(Number);
    showTip(event.clientX, event.clientY, tipForPart(number, place));
  };
  holder.addEventListener('pointermove', point);
  holder.addEventListener('pointerdown', point);
  holder.addEventListener('pointerleave', (event) => { if (event.pointerType !== 'touch') hideTip(); });
}
