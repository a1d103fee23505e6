// The page: one config, its settings and knobs; every change asks Python anew and shows what comes back.
import { Asking } from './asking.js';
import * as editor from './editor.js';
import { by, download, node, say, script } from './elements.js';
import { isFailure, listenToFiles } from './files.js';
import { pointAt, showFindings } from './found.js';
import { Knobs } from './knobs.js';
import { packed, unpacked } from './link.js';
import { markOld, showCards, showChart, showDiagnosis, showFit, showRemedy, showVerdict } from './shown.js';

const EXAMPLES = { 'picture.yml': 'LoRA of an 8B model that does not fit', 'mistakes.yml': 'Typical mistakes',
  'trl-sft.yml': 'TRL: LoRA with a line missing', 'llamafactory-lora.yml': 'LLaMA-Factory: LoRA and its evaluation',
  'qlora.yml': 'QLoRA that behaves', 'full.yml': 'All weights of a small model', 'picture.log': 'A log of a run that failed' };
const SETTINGS = ['gpu', 'gpus', 'versions', 'alloc_conf'];
const STANDARD_CARD = 'RTX 4090', AFTER_TYPING_MS = 300, EMPTY = 'Paste a config, drop a file, or start from an example';
let name = 'config.yml', turn = 0, typing = 0;

const asking = new Asking(({ stage, share, ready, broken }) => {
  if (broken) { by('stage').textContent = `This did not load: ${broken}. Reload the page, or use the command line.`; return; }
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
  asking.drop('weigh', 'chart', 'remedy', 'cards', 'ahead');
  markOld();
  const found = await dragAnswer(knobs.moved);
  if (found && mine === turn && found.ok) showVerdict(found);
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
  asking.drop('drag', 'weigh', 'ahead', 'chart', 'remedy', 'cards');
  asking.abandon('fit');
  if (!editor.read().trim()) { nothing(); return; }
  by('verdict').classList.add('stale');
  markOld();
  const found = await asking.ask(request('look'));
  if (!found || mine !== turn) return;
  document.documentElement.dataset.state = 'looked';
  if (!found.ok) { refuse(found); return; }
  showVerdict(found);
  by('trainer').textContent = `${found.trainer}`;
  showFound(found.findings, Boolean(found.bar));
  knobs.show(found.knobs);
  by('search').hidden = false;
  showFit(null);
  showRemedy(null);
  if (!found.bar) { showChart(null); showCards(null); return; }
  further(mine, found);
  await ahead(mine, found.knobs);
}

function showFound(findings, weighing = false) {
  editor.mark(knobs.any ? [] : findings);
  showFindings(findings, { goTo: editor.goTo, fix: fixOne, weighing });
}

// What takes longer comes after the verdict: what each finding weighs, the picture, the cards, what would make it fit.
async function further(mine, { fits, findings }) {
  const [chart, weighed, remedy, cards] = [asking.ask(request('chart')), asking.ask(request('weigh')),
    fits === false ? asking.ask(request('remedy')) : null, asking.ask(request('cards'))];
  weighed.then((found) => {
    if (!found || mine !== turn) return;
    if (found.ok) showVerdict(found);
    showFound(found.ok ? found.findings : findings);
  });
  chart.then((found) => { if (found?.ok && mine === turn) { showChart(found); document.documentElement.dataset.chart = mine; } });
  cards.then((found) => { if (found?.ok && mine === turn) showCards(found.cards, (card) => { chooseCard(card); look(); }); });
  const found = await remedy;
  if (found?.ok && mine === turn) showRemedy(found, take, () => by('fit').click());
}

function nothing() {
  showVerdict({ state: 'open', headline: EMPTY, bar: '' });
  for (const id of ['what-if', 'findings', 'search', 'cards', 'remedy']) by(id).hidden = true;
  by('trainer').textContent = '';
  showChart(null);
}

// A text that cannot be read: where, and why. A log that was pasted is one to be diagnosed.
function refuse({ error, line }) {
  showVerdict({ state: 'open', headline: line ? `Line ${line}: ${error}` : error, bar: '' });
  editor.mark(line ? [{ line, severity: 'error', message: error, key: '' }] : []);
  for (const id of ['findings', 'search', 'cards', 'remedy']) by(id).hidden = true;
  showChart(null);
  if (isFailure(editor.read())) {
    by('remedy').hidden = false;
    by('remedy').replaceChildren(node('span', {}, 'This looks like a log.'),
      node('button', { type: 'button', onclick: () => { const log = editor.read(); editor.write(''); diagnose({ log }); } }, 'Diagnose it'));
  }
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

async function diagnose({ log = '', data }) {
  say('Reading…');
  while (!asking.slow) await new Promise((resolve) => { setTimeout(resolve, 100); });
  const found = await asking.ask(request('diagnose', { log }), { data });
  if (!found) return;
  say(found.ok ? '' : found.error);
  showDiagnosis(found.ok ? found : null, take);
  if (found.chart) { turn += 1; showChart(found.chart); }
}

async function taken(file) {
  if (file.kind === 'config') {
    name = file.name;
    take(file.text);
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
    say('The link is copied; it carries the config itself.');
  } catch {
    say('The link is in the address bar; it carries the config itself.');
  }
}

async function start() {
  const found = await asking.ask({ ask: 'catalogue' });
  by('loading').hidden = true;
  const chosen = by('gpu').value;
  by('gpu').replaceChildren(...found.cards.map((card) => node('option', { value: card.name }, `${card.name} (${card.memory})`)));
  chooseCard(chosen || STANDARD_CARD);
  by('start').elements.trainer.replaceChildren(...found.trainers.filter(({ composes }) => composes)
    .map((trainer) => node('option', { value: trainer.name }, trainer.title)));
  by('models').replaceChildren(...found.models.map((model) => node('option', { value: model })));
  by('allow').replaceChildren(...found.allow.map(({ word, meaning }) => node('label', { title: meaning },
    node('input', { type: 'checkbox', value: word }), word)));
  await restore();
  document.documentElement.dataset.state = 'ready';
  if (editor.read().trim()) look();
  if ('serviceWorker' in navigator && isSecureContext) {
    navigator.serviceWorker.register(script('sw.js')).then(() => navigator.serviceWorker.ready)
      .then(() => { document.documentElement.dataset.offline = 'yes'; }, () => {});
  }
}

editor.listen({ changed: () => { knobs.clear(); clearTimeout(typing); typing = setTimeout(look, AFTER_TYPING_MS); },
  chosen: (found) => pointAt(found.rule) });
for (const key of SETTINGS) by(key).addEventListener('change', look);
listenToFiles(taken, say);
addEventListener('hashchange', async () => { if (await restore()) look(); });

for (const [file, title] of Object.entries(EXAMPLES)) by('examples').append(node('option', { value: file }, title));
by('examples').addEventListener('change', async () => {
  const file = by('examples').value;
  by('examples').value = '';
  if (file.endsWith('.log') && !editor.read().trim()) take(await (await fetch('examples/picture.yml')).text());
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
by('fit').addEventListener('click', async () => {
  const allow = [...by('allow').querySelectorAll(':checked')].map((box) => box.value);
  by('fit').disabled = true;
  by('searching').textContent = 'Searching…';
  const progress = (done, of) => { by('searching').textContent = `${done} of about ${of} predictions`; };
  const asked = request('fit', { allow });
  const found = await asking.ask(asked, { progress });
  by('fit').disabled = false;
  by('searching').textContent = found?.ok === false ? found.error : '';
  if (found?.ok && asked.text === editor.read()) showFit(found, take);
});
by('report').addEventListener('click', async () => {
  say('Writing the report…');
  const found = await asking.ask(request('report', { name }));
  say(found?.ok ? '' : found?.error ?? '');
  if (found?.ok) download(`${name.replace(/\.\w+$/, '')}-report.html`, found.html, 'text/html');
});
by('save').addEventListener('click', () => download(name, editor.read(), 'text/yaml'));
by('share').addEventListener('click', share);
