// The config's text in colours, with its line numbers, marks where something was found, and a way back.
import { aboutFile, by, node } from './elements.js';
import { isPaintable, paint } from './highlight.js';

const text = by('text'), gutter = by('gutter'), painted = by('painted');
const RANK = { info: 0, warning: 1, error: 2 };
const earlier = [];
let marks = new Map(), pointed = () => {};

export const read = () => text.value;

export function write(words, { remember = true } = {}) {
  if (words === text.value) return;
  if (remember) { earlier.push(text.value); by('undo').disabled = false; }
  const { scrollTop } = text;
  text.value = words;
  number();
  text.scrollTop = scrollTop;
}

export function goTo(line) {
  const lines = text.value.split('\n'), start = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  text.focus();
  text.setSelectionRange(start, start + (lines[line - 1] ?? '').length);
  const height = text.scrollHeight / Math.max(1, lines.length);
  text.scrollTop = Math.max(0, (line - 4) * height);
}

// Findings at their lines: the gravest names the mark.
export function mark(findings) {
  marks = new Map();
  for (const found of findings) {
    const before = marks.get(found.line);
    if (aboutFile(found)) continue;
    if (!before || RANK[found.severity] > RANK[before.severity]) marks.set(found.line, found);
  }
  number();
}

export function listen({ changed, chosen }) {
  pointed = chosen;
  text.addEventListener('input', () => { marks = new Map(); number(); changed(); });
  text.addEventListener('scroll', follow);
  new ResizeObserver(number).observe(text);
  by('undo').addEventListener('click', () => {
    write(earlier.pop() ?? '', { remember: false });
    by('undo').disabled = !earlier.length;
    changed();
  });
  number();
}

function number() {
  const count = Math.max(1, text.value.split('\n').length), made = [];
  for (let line = 1; line <= count; line++) {
    const found = marks.get(line);
    const shown = node('div', found ? { class: found.severity, title: found.message } : {}, String(line));
    if (found) shown.addEventListener('click', () => pointed(found));
    made.push(shown);
  }
  gutter.replaceChildren(...made);
  gutter.style.height = `${text.clientHeight}px`;
  const colours = isPaintable(text.value);
  text.classList.toggle('painted', colours);
  paint(painted, colours ? text.value : '');
  follow();
}

// The textarea scrolls; line numbers and colours go with it.
function follow() {
  gutter.scrollTop = text.scrollTop;
  painted.style.transform = `translate(${-text.scrollLeft}px, ${-text.scrollTop}px)`;
}
