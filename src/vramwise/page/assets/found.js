// The findings as a list: the gravest first, each with its line and its fix.
import { aboutFile, by, node } from './elements.js';

const RANK = { error: 2, warning: 1, info: 0 }, WORDS = { error: 'error', warning: 'warning', info: 'note' };

export function showFindings(findings, { goTo, fix, weighing }) {
  const ranked = [...findings].sort((a, b) => RANK[b.severity] - RANK[a.severity]);
  by('findings').hidden = !ranked.length;
  by('findings-title').textContent = `Findings (${ranked.length})${weighing ? ', measuring…' : ''}`;
  by('fix-all').parentElement.hidden = !ranked.some((found) => found.fix?.safe);
  by('found').replaceChildren(...ranked.map((found) => item(found, goTo, fix)));
}

function item(found, goTo, fix) {
  const word = WORDS[found.severity];
  const place = found.key === null || aboutFile(found) ? null
    : node('button', { type: 'button', onclick: () => goTo(found.line) }, `Go to line ${found.line}`);
  const head = node('p', { class: 'head' }, node('span', { class: `badge ${word}` }, word), node('code', {}, found.rule), place);
  const shown = node('li', { 'data-rule': found.rule }, head, node('p', {}, found.message));
  if (found.fix) {
    const unsafe = found.fix.words ? ` (${found.fix.words})` : '';
    shown.append(node('div', { class: 'act' }, node('p', { class: 'fix' }, node('b', {}, 'Fix: '), found.fix.title + unsafe),
      node('button', { type: 'button', onclick: () => fix(found), 'aria-label': `Apply fix: ${found.fix.title}` }, 'Apply fix')));
  }
  return shown;
}

export function pointAt(rule) {
  const shown = [...by('found').children].find((one) => one.dataset.rule === rule);
  shown?.scrollIntoView({ block: 'center' });
  shown?.querySelector('button')?.focus();
}
