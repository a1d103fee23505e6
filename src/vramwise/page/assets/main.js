// The page: one config, its settings and knobs; every change asks Python anew and shows what comes back.
import { Asking, LOCAL } from './asking.js';
import * as editor from './editor.js';
import { by, download, node, say, script } from './elements.js';
import { isLog, listenToFiles } from './files.js';
import { pointAt, showFindings } from './found.js';
import { Knobs } from './knobs.js';
import { packed, unpacked } from './link.js';
import { FIND, hideRemedy, showRemedy, tellRemedy } from './remedy.js';
import { markOld, showCards, showChart, showDiagnosis, showFit, showStops, showVerdict } from './shown.js';

const EXAMPLES = { 'picture.yml': 'LoRA of an 8B model that does not fit', 'mistakes.yml': 'Common mistakes',
  'trl-sft.yml': 'TRL: LoRA with a missing line', 'llamafactory-lora.yml': 'LLaMA-Factory: LoRA with evaluation',
  'qlora.yml': 'QLoRA that fits', 'full.yml': 'Full fine-tune of a small model', 'picture.log': 'Log of a failed run' };
const SETTINGS = ['gpu', 'gpus', 'versions', 'alloc_conf'];
const STANDARD_CARD = 'RTX 4090', OPENING = 'picture.yml', AFTER_TYPING_MS = 300;
const EMPTY = 'Paste a config, drop a file, or choose an example', NO_CONFIG = 'Paste the config of this run to see what to change in it';
let name = 'config.yml', turn = 0, typing = 0;
// The example that the page opened with, until the reader changes it; the text that was looked at last.
let example = null, looked = '';
// The log or snapshot on show, and the config that it was diagnosed with.
let failure = null;

const asking = new Asking(({ stage, share, ready, broken }) => {
  if (broken) {
    by('stage').textContent = `Loading failed: ${broken}. Reload the page, or use the command line.`;
    by('loading').classList.add('failed');
    return;
  }
  by('stage').textContent = ready ? 'Ready' : `${stage}…`;
  by('progress').value = ready ? 1 : share;
  by('progress').setAttribute('aria-valuetext', by('stage').textContent);
  if (ready) start();
});
const knobs = new Knobs({ dragged: drag, settled: look });

function settings() {
  const chosen = Object.fromEntries(SETTINGS.map((key) => [key, by(key).value.trim()]));
  return { ...chosen, gpus: Number(chosen.gpus) || 1 };
}
const request = (ask, more = {}) => ({ ask, text: editor.read(), settings: settings(), knobs: knobs.moved, ...more });

// What sliders were answered for this text and these settings, by their places.
const dragged = new Map();
let draggedOf = '';

async function dragAnswer(moved, ask = 'drag') {
  const of = JSON.stringify([editor.read(), settings()]), key = JSON.stringify(moved);
  if (of !== draggedOf) { dragged.clear(); draggedOf = of; }
  const found = dragged.get(key) ?? await asking.ask(request(ask, { knobs: moved }));
  if (found?.ok && of === draggedOf) dragged.set(key, found);
  return found;
}

async function drag() {
  turn += 1;
  const mine = turn;
  asking.drop('weigh', 'chart', 'first-remedy', 'remedy', 'cards', 'ahead');
  hideRemedy();
  markOld();
  const found = await dragAnswer(knobs.moved);
  if (found && mine === turn && found.ok) judge(found);
}

// While nothing else is asked: what the next places of each slider will show.
async function ahead(mine, offered) {
  for (const by of [1, -1, 2, -2]) {
    for (const { name: knob, values, now } of offered.filter(({ values: any }) => any)) {
      const next = values[values.indexOf(knobs.moved[knob] ?? now) + by];
      if (mine !== turn) return;
      if (next !== undefined && next !== now) await dragAnswer({ ...knobs.moved, [knob]: next }, 'ahead');
    }
  }
}

async function look() {
  turn += 1;
  const mine = turn;
  asking.drop('drag', 'weigh', 'ahead', 'chart', 'first-remedy', 'remedy', 'cards');
  asking.abandon('fit');
  hideRemedy();
  if (isLog(editor.read())) { pastedLog(); return; }
  looked = editor.read();
  by('example').hidden = looked !== example;
  if (!looked.trim()) { nothing(failure ? NO_CONFIG : EMPTY); return; }
  by('verdict').classList.add('stale');
  markOld();
  const found = await asking.ask(request('look'));
  if (!found || mine !== turn) return;
  document.documentElement.dataset.state = 'looked';
  if (!found.ok) { refuse(found); return; }
  judge(found);
  by('trainer').textContent = `${found.trainer}`;
  showFound(found.findings, Boolean(found.bar));
  knobs.show(found.knobs);
  by('search').hidden = false;
  showFit(null);
  diagnoseAgain();
  if (!found.bar) { showChart(null); showCards(null); return; }
  further(mine, found);
  await ahead(mine, found.knobs);
}

function judge(found) {
  showVerdict(found);
  if (found.stops) showStops(found.stops.errors, { goTo: editor.goTo, fix: fixErrors });
}

function showFound(findings, weighing = false) {
  editor.mark(knobs.any ? [] : findings);
  showFindings(findings, { goTo: editor.goTo, fix: fixOne, weighing });
}

// What takes longer comes after the verdict: what each finding costs, the chart, what would make it fit, the cards.
async function further(mine, { fits, stops, findings }) {
  const [weighed, chart] = [asking.ask(request('weigh')), asking.ask(request('chart'))];
  if (fits === false && !stops) remedies(mine);
  const cards = asking.ask(request('cards'));
  weighed.then((found) => {
    if (!found || mine !== turn) return;
    if (found.ok) judge(found);
    showFound(found.ok ? found.findings : findings);
  });
  chart.then((found) => { if (found?.ok && mine === turn) { showChart(found); document.documentElement.dataset.chart = mine; } });
  cards.then((found) => { if (found?.ok && mine === turn) showCards(found.cards, (card) => { chooseCard(card); look(); }); });
}

// A first answer comes from the quick worker, by a few predictions; the search for the fastest goes on in the slow one.
async function remedies(mine) {
  const hands = { take, search: () => by('fit').click() };
  const searched = asking.ask(request('remedy'), { progress: (done, of) => { if (mine === turn) tellRemedy(done, of); } });
  let shown = null, searching = true;
  showRemedy(shown, searching, hands);
  asking.ask(request('first-remedy')).then((first) => {
    if (!first?.found || mine !== turn || !searching) return;
    shown = first;
    showRemedy(shown, searching, hands);
  });
  const best = await searched;
  searching = false;
  if (mine !== turn) return;
  showRemedy(best?.found ? best : shown ?? best, searching, hands);
}

const PARTS = ['what-if', 'findings', 'search', 'cards'];

function clear() {
  for (const id of PARTS) by(id).hidden = true;
  by('trainer').textContent = '';
  showFit(null);
  showChart(null);
}

function nothing(headline) {
  showVerdict({ state: 'open', headline, bar: '' });
  clear();
  document.documentElement.dataset.state = 'looked';
}

// A text that cannot be read: where, and why.
function refuse({ error, line }) {
  showVerdict({ state: 'bad', headline: line ? `Line ${line}: ${error}` : error, bar: '' });
  editor.mark(line ? [{ line, severity: 'error', message: error, key: '' }] : []);
  clear();
}

function take(words) {
  knobs.clear();
  editor.write(words);
  look();
}

async function fixOne(finding) {
  const { rule, key, line } = finding;
  const found = await asking.ask(request('fix', { finding: { rule, key, line } }));
  if (found?.ok) take(found.text); else if (found) say(found.error);
}

async function fixErrors() {
  const found = await asking.ask(request('fix-errors'));
  if (found?.ok) { take(found.text); say(found.applied.length ? '' : 'Nothing could be fixed: edit the lines by hand.'); } else if (found) say(found.error);
}

// A log in the editor is diagnosed; the config that was there before comes back.
function pastedLog() {
  const log = editor.read();
  editor.write(looked, { remember: false });
  document.documentElement.dataset.state = 'looked';
  by('verdict').classList.remove('stale');
  diagnose({ log });
}

// The log or snapshot with the config at hand. The example that the page opened with is not the run's config: it goes.
async function diagnose(given, { quiet = false } = {}) {
  if (editor.read() === example) { example = null; editor.write('', { remember: false }); }
  failure = { ...given, text: editor.read() };
  const mine = failure, hands = { take, close: () => { failure = null; showDiagnosis(null); look(); }, quiet };
  if (!quiet) showDiagnosis({ working: true });
  if (!failure.text.trim()) { turn += 1; knobs.clear(); by('example').hidden = true; nothing(NO_CONFIG); }
  while (!asking.slow) await new Promise((resolve) => { setTimeout(resolve, 100); });
  const found = await asking.ask(request('diagnose', { log: given.log ?? '' }), { data: given.data });
  if (!found || mine !== failure) return;
  showDiagnosis(found.ok ? found : { error: found.error }, hands);
  if (found.chart) { turn += 1; showChart(found.chart); }
}

// What to change depends on the config: another config gets another answer.
function diagnoseAgain() {
  if (failure && failure.text !== editor.read()) diagnose(failure, { quiet: true });
}

async function taken(file) {
  if (file.kind === 'config') {
    name = file.name;
    if (isLog(file.text)) await diagnose({ log: file.text }); else take(file.text);
  } else {
    await diagnose(file.kind === 'log' ? { log: file.text } : { data: file.data });
  }
}

function chooseCard(wanted) {
  if (![...by('gpu').options].some((option) => option.value === wanted)) by('gpu').append(node('option', { value: wanted }, wanted));
  by('gpu').value = wanted;
}

async function restore() {
  const state = await unpacked(location.hash);
  if (!state) return false;
  for (const key of SETTINGS) if (typeof state.settings?.[key] === 'string' || typeof state.settings?.[key] === 'number') {
    if (key === 'gpu') chooseCard(String(state.settings[key]));
    else by(key).value = key === 'gpus' ? Number(state.settings[key]) || 1 : state.settings[key];
  }
  knobs.clear(typeof state.knobs === 'object' ? state.knobs : {});
  editor.write(state.text);
  return true;
}

async function share() {
  const fragment = await packed({ text: editor.read(), settings: settings(), knobs: knobs.moved });
  history.replaceState(null, '', fragment);
  try {
    await navigator.clipboard.writeText(location.href);
    say('Link copied. It contains the config.');
  } catch {
    say('The link is in the address bar. It contains the config.');
  }
}

async function start() {
  const found = await asking.ask({ ask: 'catalogue' });
  by('loading').hidden = true;
  by('create').hidden = false;
  const chosen = by('gpu').value;
  by('gpu').replaceChildren(...found.cards.map((card) => node('option', { value: card.name }, `${card.name} (${card.memory})`)));
  chooseCard(chosen || STANDARD_CARD);
  by('start').elements.trainer.replaceChildren(...found.trainers.filter(({ composes }) => composes)
    .map((trainer) => node('option', { value: trainer.name }, trainer.title)));
  by('models').replaceChildren(...found.models.map((model) => node('option', { value: model })));
  by('allow').replaceChildren(...found.allow.map(({ word, meaning }) => node('label', {},
    node('input', { type: 'checkbox', value: word }), node('span', {}, node('b', {}, word), ` ${meaning}`))));
  if (!await restore()) await opened;
  document.documentElement.dataset.state = 'ready';
  look();
  if (!LOCAL && 'serviceWorker' in navigator && isSecureContext) {
    navigator.serviceWorker.register(script('sw.js')).then(() => navigator.serviceWorker.ready)
      .then(() => { document.documentElement.dataset.offline = 'yes'; }, () => {});
  }
}

// The page opens on an example, which is there before Python is.
async function open() {
  if (/^#c=/.test(location.hash)) return;
  const text = await (await fetch(`examples/${OPENING}`)).text();
  if (editor.read() || failure) return;
  example = text;
  editor.write(text, { remember: false });
  by('example').hidden = false;
}
const opened = open().catch(() => {});

editor.listen({ changed: () => { knobs.clear(); clearTimeout(typing); typing = setTimeout(look, AFTER_TYPING_MS); },
  chosen: (found) => pointAt(found.rule) });
for (const key of SETTINGS) by(key).addEventListener('change', look);
listenToFiles(taken, say);
// A log that is pasted goes to the diagnosis, a config that is pasted takes the place of the opening example.
by('text').addEventListener('paste', (event) => {
  const text = event.clipboardData?.getData('text/plain') ?? '';
  const log = isLog(text);
  if (!log && (editor.read() !== example || !text.trim().includes('\n'))) return;
  event.preventDefault();
  if (log) diagnose({ log: text }); else { name = 'config.yml'; take(text); }
});
addEventListener('hashchange', async () => { if (await restore()) look(); });

for (const [file, title] of Object.entries(EXAMPLES)) by('examples').append(node('option', { value: file }, title));
by('examples').addEventListener('change', async () => {
  const file = by('examples').value;
  by('examples').value = '';
  if (file.endsWith('.log') && (!editor.read().trim() || editor.read() === example)) {
    example = null; // here it is the config of the run
    take(await (await fetch(`examples/${OPENING}`)).text());
  }
  const text = await (await fetch(`examples/${file}`)).text();
  await taken({ kind: file.endsWith('.log') ? 'log' : 'config', name: file, text });
});
by('start').addEventListener('submit', async (event) => {
  event.preventDefault();
  const wishes = Object.fromEntries(new FormData(by('start')));
  for (const key of ['sequence_len', 'batch']) wishes[key] = Number(wishes[key]);
  by('starting').textContent = 'Searching…';
  const progress = (done, of) => { by('starting').textContent = `${done} of about ${of} predictions`; };
  const found = await asking.ask(request('start', { wishes }), { progress });
  by('starting').textContent = found?.ok === false ? found.error : found?.verdict ?? '';
  if (found?.ok) { name = 'config.yml'; take(found.text); }
});
by('keep').addEventListener('click', async () => {
  const found = await asking.ask(request('drag'));
  if (found?.ok) take(found.text); else if (found) say(found.error);
});
by('fix-all').addEventListener('click', async () => {
  const found = await asking.ask(request('fix-all'));
  if (found?.ok) { take(found.text); say(found.refused.join('; ')); } else if (found) say(found.error);
});
function searching(words) {
  by('fit').disabled = Boolean(words);
  by('stop').hidden = by('fit-progress').hidden = !words;
  by('fit-progress').removeAttribute('value');
  by('searching').textContent = words;
}
by('fit').textContent = FIND;
by('fit').addEventListener('click', async () => {
  const allow = [...by('allow').querySelectorAll(':checked')].map((box) => box.value);
  searching('Searching…');
  const progress = (done, of) => {
    by('searching').textContent = `${done} of about ${of} predictions`;
    by('fit-progress').max = of;
    by('fit-progress').value = done;
  };
  const asked = request('fit', { allow });
  const found = await asking.ask(asked, { progress });
  searching('');
  if (found?.ok === false) by('searching').textContent = found.error;
  if (found?.ok && asked.text === editor.read()) showFit(found, take);
});
by('stop').addEventListener('click', () => asking.abandon('fit'));
by('report').addEventListener('click', async () => {
  say('Creating the report…');
  const found = await asking.ask(request('report', { name }));
  say(found?.ok ? '' : found?.error ?? '');
  if (found?.ok) download(`${name.replace(/\.\w+$/, '')}-report.html`, found.html, 'text/html');
});
by('save').addEventListener('click', () => download(name, editor.read(), 'text/yaml'));
by('share').addEventListener('click', share);
