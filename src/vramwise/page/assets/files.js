// Files that a reader drops or opens: which of them is a config, a log, a snapshot.
import { by } from './elements.js';

const MOST_TEXT = 64 * 2 ** 20, MOST_SNAPSHOT = 512 * 2 ** 20;
const SNAPSHOT = /\.(pickle|pkl|gz)$/i, LOG = /\.(log|out|err|txt)$/i, CONFIG = /\.(ya?ml|json|py|ipynb)$/i;
const FAILED = /Traceback \(most recent call last\)|out of memory|OutOfMemoryError|^\S*(Error|Exception): |CUDA error|NCCL|exitcode|Killed/im;
const CONFIG_LINE = /^\s*(#|-\s|[\]}]|["']?[\w.-]+["']?\s*:(\s|$))/, MOST_LINES = 400;

async function told(file) {
  if (SNAPSHOT.test(file.name)) {
    if (file.size > MOST_SNAPSHOT) throw new Error(`${file.name} is too large for a browser; run vramwise diagnose instead`);
    return { kind: 'snapshot', name: file.name, data: await file.arrayBuffer() };
  }
  if (file.size > MOST_TEXT) throw new Error(`${file.name} is too large for a browser; run vramwise diagnose instead`);
  const text = await file.text();
  const log = LOG.test(file.name) || (!CONFIG.test(file.name) && isLog(text));
  return { kind: log ? 'log' : 'config', name: file.name, text };
}

// Whether a text is the output of a run: it tells of a failure, and most of its lines are none of a config's.
export function isLog(text) {
  if (!FAILED.test(text)) return false;
  const lines = text.slice(-200_000).split('\n').filter((line) => line.trim()).slice(-MOST_LINES);
  return lines.filter((line) => CONFIG_LINE.test(line) && !FAILED.test(line)).length < lines.length / 2;
}

export function listenToFiles(taken, refused) {
  const take = async (files) => {
    for (const file of files) {
      try { await taken(await told(file)); } catch (error) { refused(String(error.message ?? error)); }
    }
  };
  by('open').addEventListener('click', () => by('file').click());
  by('file').addEventListener('change', () => { take([...by('file').files]); by('file').value = ''; });
  addEventListener('dragover', (event) => { event.preventDefault(); by('drop').hidden = false; });
  addEventListener('dragleave', (event) => { if (!event.relatedTarget) by('drop').hidden = true; });
  addEventListener('drop', (event) => {
    event.preventDefault();
    by('drop').hidden = true;
    take([...(event.dataTransfer?.files ?? [])]);
  });
}
