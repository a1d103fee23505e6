// Files that a reader drops or opens: which of them is a config, a log, a snapshot.
import { by } from './elements.js';

const MOST_TEXT = 64 * 2 ** 20, MOST_SNAPSHOT = 512 * 2 ** 20;
const SNAPSHOT = /\.(pickle|pkl|gz)$/i, LOG = /\.(log|out|err|txt)$/i, CONFIG = /\.(ya?ml|json|py|ipynb)$/i;
const FAILED = /Traceback \(most recent call last\)|out of memory|OutOfMemoryError/i;

async function told(file) {
  if (SNAPSHOT.test(file.name)) {
    if (file.size > MOST_SNAPSHOT) throw new Error(`${file.name} is too large for a browser: use vramwise diagnose --snapshot`);
    return { kind: 'snapshot', name: file.name, data: await file.arrayBuffer() };
  }
  if (file.size > MOST_TEXT) throw new Error(`${file.name} is too large for a browser: use vramwise diagnose`);
  const text = await file.text();
  const isLog = LOG.test(file.name) || (!CONFIG.test(file.name) && FAILED.test(text));
  return { kind: isLog ? 'log' : 'config', name: file.name, text };
}

export const isFailure = (text) => FAILED.test(text);

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
