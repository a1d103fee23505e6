// What Python answered, put in its places: the verdict, the picture, what fits, a diagnosis.
import { by, node, showMarkup } from './elements.js';
import { drawRun } from './chart.js';

const SIGNS = { good: '✓', bad: '✗', open: '•' };
let drawing = null;

export function showVerdict({ state, headline, reasons = [], bar }) {
  by('verdict').className = `verdict ${state}`;
  by('sign').textContent = SIGNS[state];
  const [, answer, figures] = /^(.*?)( \(needs [^()]*\))?$/s.exec(headline);
  by('headline').replaceChildren(answer, figures ? node('small', {}, figures.trim().slice(1, -1)) : '');
  by('reasons').replaceChildren(...reasons.map((line) => node('span', {}, line)));
  if (bar !== undefined) showMarkup(by('glance'), bar);
}

// The picture and the cards follow the verdict: until then they are of what was there before.
export function markOld() {
  for (const id of ['picture', 'cards']) { by(id).classList.add('stale'); by(id).setAttribute('aria-busy', 'true'); }
}

function markNew(id) {
  by(id).classList.remove('stale');
  by(id).removeAttribute('aria-busy');
}

export function showChart(chart) {
  markNew('picture');
  drawing?.abort();
  drawing = new AbortController();
  showMarkup(by('picture'), chart?.markup ?? '');
  if (chart) drawRun(chart.data, drawing.signal);
}

export function showRemedy(found, take, search) {
  by('remedy').hidden = !found?.found && !found?.further;
  if (by('remedy').hidden) return;
  if (!found.found) {
    by('remedy').replaceChildren(node('span', {}, 'Nothing that fits was found in a few tries.'),
      node('button', { type: 'button', onclick: search }, 'Search further'));
    return;
  }
  by('remedy').replaceChildren(
    node('span', {}, node('b', {}, 'Fits with: '), `${found.words} (${found.needed}; ${found.effect})`),
    node('button', { type: 'button', onclick: () => take(found.text) }, 'Write it into the config'));
}

export function showCards(cards, choose) {
  markNew('cards');
  by('cards').hidden = !cards;
  by('on-cards').replaceChildren(...(cards ?? []).map(({ name, kind, words }) => node('li', { class: kind },
    node('button', { type: 'button', title: words, onclick: () => choose(name) },
      `${kind === 'fits' ? '✓' : kind === 'does_not_fit' ? '✗' : '!'} ${name}`, node('span', { class: 'hidden' }, `: ${words}`)))));
}

export function showFit(found, take) {
  const holder = by('fitted');
  holder.hidden = !found;
  if (!found) { holder.replaceChildren(); return; }
  showDiagnosis(null);
  const body = node('div');
  showMarkup(body, found.markup);
  const answer = node('div', { class: `verdict ${found.state}`, tabindex: '-1' }, node('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[found.state]),
    node('span', {}, found.headline, node('small', {}, ...found.reasons.map((line) => node('span', {}, line)))));
  const button = found.changed ? node('button', { type: 'button', id: 'take', onclick: () => take(found.text) }, 'Write it into the config') : null;
  holder.replaceChildren(answer, ...(button ? [button] : []), body);
  answer.focus({ preventScroll: true });
  holder.scrollIntoView({ block: 'start' });
}

export function showDiagnosis(found, take) {
  const holder = by('diagnosis');
  holder.hidden = !found;
  if (!found) { holder.replaceChildren(); return; }
  showFit(null);
  const answer = node('div', { class: `verdict ${found.state}`, tabindex: '-1' },
    node('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[found.state]), node('span', {}, found.headline));
  const buttons = found.remedies.map((remedy) => node('button', { type: 'button', onclick: () => take(remedy.text) }, `Take it: ${remedy.title}`));
  const notes = found.notes.map((line) => node('p', { class: 'note' }, line));
  const body = node('div', { class: 'picture' });
  showMarkup(body, found.markup);
  holder.replaceChildren(answer, ...(buttons.length ? [node('div', { class: 'tools' }, ...buttons)] : []), body, ...notes);
  answer.focus({ preventScroll: true });
  holder.scrollIntoView({ block: 'start' });
}
