// What would make a run fit: a first answer within seconds, then a faster one where the search finds it.
import { by, node } from './elements.js';

export const FIND = 'Find fastest setup';

function progress(label) {
  return node('span', { class: 'working' }, node('label', { for: 'remedy-progress' }, label), node('progress', { id: 'remedy-progress' }));
}

export function hideRemedy() {
  by('remedy').hidden = true;
  by('remedy').replaceChildren();
}

export function tellRemedy(done, of) {
  const bar = by('remedy-progress');
  if (bar) { bar.max = of; bar.value = done; }
}

// `found`: the answer so far, or null; `searching`: whether another may follow.
export function showRemedy(found, searching, { take, search }) {
  const bar = by('remedy-progress'), told = bar?.hasAttribute('value') ? [bar.value, bar.max] : null;
  by('remedy').hidden = false;
  by('remedy').classList.toggle('found', Boolean(found?.found));
  if (found?.found) {
    by('remedy').replaceChildren(
      node('span', { class: 'says' }, node('b', {}, 'Fits with: '), `${found.words} (needs ${found.needed}; ${found.effect})`),
      node('button', { type: 'button', class: 'main', onclick: () => take(found.text) }, 'Apply this change'),
      searching ? progress('Looking for a faster change…') : '');
  } else if (searching) {
    by('remedy').replaceChildren(progress('Looking for a change that makes it fit…'));
  } else if (found?.further) {
    by('remedy').replaceChildren(node('span', { class: 'says' }, 'No change was found in a short search. A full search takes longer.'),
      node('button', { type: 'button', onclick: search }, FIND));
  } else {
    by('remedy').replaceChildren(node('span', { class: 'says' }, 'Nothing that was tried makes it fit. Choose a larger card, or more cards.'));
  }
  if (told) tellRemedy(...told);
}
