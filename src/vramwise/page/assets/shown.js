// What Python answered, put in its places: the verdict, the picture, what fits, a diagnosis.
import { by, node, showMarkup } from './elements.js';
import { drawRun } from './chart.js';

const SIGNS = { good: '✓', bad: '✗', open: '•' };
const KINDS = { fits: '✓', tight: '!', may_fit: '?', not_known: '?', does_not_fit: '✗', stops: '✗' };
let drawing = null;

export function showVerdict({ state, kind = '', headline, reasons = [], bar, stops = null }) {
  by('verdict').hidden = false;
  by('verdict').className = `verdict ${state} ${kind}`;
  by('sign').textContent = KINDS[kind] ?? SIGNS[state];
  const [, answer, figures] = stops ? ['', `${stops.title}: ${count(stops.errors.length)}`, ''] : /^(.*?)( \(needs [^()]*\))?$/s.exec(headline);
  by('headline').replaceChildren(answer, figures ? node('small', {}, figures.trim().slice(1, -1)) : '');
  by('reasons').replaceChildren(...[...(stops ? [stops.memory] : []), ...reasons].map((line) => node('span', {}, line)));
  if (!stops) showStops([]);
  if (bar !== undefined) showMarkup(by('glance'), bar);
}

const count = (errors) => `${errors} error${errors === 1 ? '' : 's'}`;

// The errors that keep a run from starting, each with its line, and one button that fixes those that have a fix.
export function showStops(errors, { goTo, fix } = {}) {
  const fixed = errors.filter((found) => found.fix).length;
  by('stops').hidden = !errors.length;
  by('stops').replaceChildren(
    node('ul', { class: 'findings' }, ...errors.map((found) => node('li', {}, node('p', {}, found.message),
      node('div', { class: 'act' }, node('p', { class: 'fix' }, ...(found.fix ? [node('b', {}, 'Fix: '), found.fix.title, found.fix.words ? ` (${found.fix.words})` : ''] : ['No automatic fix: edit the config.'])),
        found.key === null ? '' : node('button', { type: 'button', onclick: () => goTo(found.line) }, `Go to line ${found.line}`))))),
    fixed ? node('button', { type: 'button', id: 'fix-errors', class: 'main', onclick: fix },
      fixed === errors.length ? `Fix ${count(fixed)}` : `Fix ${fixed} of ${count(errors.length)}`) : '');
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

export function showCards(cards, choose) {
  markNew('cards');
  by('cards').hidden = !cards || cards.every(({ kind }) => kind === 'stops'); // then the errors say enough
  by('on-cards').replaceChildren(...(cards ?? []).map(({ name, kind, words }) => node('li', { class: kind },
    node('button', { type: 'button', title: words, onclick: () => choose(name) },
      `${KINDS[kind] ?? '•'} ${name}`, node('span', { class: 'hidden' }, `: ${words}`)))));
}

export function showFit(found, take) {
  const holder = by('fitted');
  holder.hidden = !found;
  if (!found) { holder.replaceChildren(); return; }
  const body = node('div');
  showMarkup(body, found.markup);
  const answer = node('div', { class: `verdict ${found.state}`, tabindex: '-1' }, node('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[found.state]),
    node('span', {}, found.headline, node('small', {}, ...found.reasons.map((line) => node('span', {}, line)))));
  const button = found.changed ? node('button', { type: 'button', id: 'take', class: 'main', onclick: () => take(found.text) }, 'Apply this setup') : null;
  holder.replaceChildren(answer, ...(button ? [button] : []), body);
  answer.focus({ preventScroll: true });
  holder.scrollIntoView({ block: 'start' });
}

// A diagnosis, or where it stands: `working` while the log is read, `error` where that failed.
export function showDiagnosis(found, { take, close, quiet } = {}) {
  const holder = by('diagnosis');
  holder.hidden = !found;
  if (!found) { holder.replaceChildren(); return; }
  const closing = node('button', { type: 'button', id: 'close', onclick: close }, 'Close diagnosis');
  if (found.working) {
    const bar = node('progress', { id: 'reading' });
    holder.replaceChildren(node('div', { class: 'loading' }, node('label', { for: 'reading' }, 'Reading the log or snapshot…'), bar));
    return;
  }
  const state = found.error ? 'bad' : found.state;
  const answer = node('div', { class: `verdict ${state}`, tabindex: '-1' },
    node('span', { class: 'sign', 'aria-hidden': 'true' }, SIGNS[state]), node('span', {}, found.error ?? found.headline));
  const notes = (found.notes ?? []).map((line) => node('p', { class: 'note steps' }, line));
  const body = node('div', { class: 'picture' });
  showMarkup(body, found.markup ?? '');
  const changes = body.querySelectorAll('#changes .findings > li');
  for (const { place, title, text } of found.remedies ?? []) {
    const label = { type: 'button', class: 'apply', 'aria-label': `Apply: ${title}`, onclick: () => take(text) };
    changes[place]?.append(node('button', label, 'Apply'));
  }
  holder.replaceChildren(answer, node('div', { class: 'tools' }, closing), body, ...notes);
  if (quiet) return;
  answer.focus({ preventScroll: true });
  holder.scrollIntoView({ block: 'start' });
}
