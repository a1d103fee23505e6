// CPU time of the page's answers to a slider, in the Python that browsers run: node bench/page_speed.mjs [dist/page] [CONFIG ...]
//
// Build the page first (make page). Each config is opened for an RTX 4090, then its sliders are moved: every move is a
// prediction of its own, as on the page. Best of three rounds of the same moves, each from a new start of the answers,
// because machines are shared. The goal is 300 ms for every move.
import { readFileSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const [page = 'dist/page', ...named] = process.argv.slice(2);
const configs = named.length ? named : ['examples/picture.yml', 'examples/llamafactory-lora.yml', 'examples/trl-sft.yml'];
const MOVES = [
  ['micro_batch_size', [1, 2, 3, 4]], ['sequence_len', [1024, 2048, 3072, 6144, 8192]], ['lora_r', [8, 32, 64, 128]],
  ['gradient_accumulation_steps', [1, 2, 4]],
];
const ROUNDS = 3;

const folder = resolve(page, 'pyodide');
const { loadPyodide } = await import(pathToFileURL(`${folder}/pyodide.mjs`).href);
const python = await loadPyodide({ indexURL: `${folder}/` });
python.unpackArchive(new Uint8Array(readFileSync(resolve(page, 'vramwise.tar.gz'))), 'gztar', { extractDir: '/app' });
const start = () => python.runPython(`
import sys, gc
if "/app" not in sys.path:
    sys.path.insert(0, "/app")
gc.set_threshold(600_000, 50, 50)
from vramwise.page.answers import Answers
Answers()
`);

function asked(answers, request) {
  const before = process.cpuUsage();
  const answer = JSON.parse(answers.answer(JSON.stringify(request)));
  const { user, system } = process.cpuUsage(before);
  return { answer, ms: (user + system) / 1000 };
}

for (const config of configs) {
  const text = readFileSync(config, 'utf8');
  const best = new Map();
  for (let round = 0; round < ROUNDS; round += 1) {
    const answers = start();
    const settings = { gpu: 'rtx-4090' };
    const first = asked(answers, { ask: 'look', text, settings });
    if (!first.answer.ok) throw new Error(first.answer.error);
    best.set('open', Math.min(best.get('open') ?? Infinity, first.ms));
    for (const [field, values] of MOVES) {
      for (const value of values) {
        const { answer, ms } = asked(answers, { ask: 'drag', text, settings, knobs: { [field]: value } });
        if (answer.ok) best.set(`${field}=${value}`, Math.min(best.get(`${field}=${value}`) ?? Infinity, ms));
      }
    }
    answers.destroy();
  }
  const opened = best.get('open');
  best.delete('open');
  const times = [...best.values()].sort((one, other) => one - other);
  const slowest = [...best].reduce((one, other) => (other[1] > one[1] ? other : one));
  const shown = (ms) => `${ms.toFixed(0)} ms`;
  console.log(`${basename(config)}: opened in ${shown(opened)}; ${times.length} moves: ${shown(times[0])} to ${shown(slowest[1])} `
    + `(${slowest[0]}), median ${shown(times[times.length >> 1])} (goal: 300 ms for each)`);
}
