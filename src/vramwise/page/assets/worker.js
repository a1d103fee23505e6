// Python in a thread of its own: it answers requests, one after the other, by vramwise.page.answers.
import { loadPyodide } from './pyodide/pyodide.mjs';

const BYTES = Number('$bytes');
let fetched = 0;
const tell = (stage, share) => postMessage({ stage, share });

// What is fetched is counted, so that the reader sees how far it is.
const fetchPlainly = self.fetch.bind(self);
self.fetch = async (...asked) => {
  const answer = await fetchPlainly(...asked);
  if (!answer.body || !answer.ok) return answer;
  const counted = answer.body.pipeThrough(new TransformStream({
    transform(chunk, out) {
      fetched += chunk.byteLength;
      tell('Loading Python', 0.8 * Math.min(1, fetched / BYTES));
      out.enqueue(chunk);
    },
  }));
  return new Response(counted, { status: answer.status, headers: answer.headers });
};

const START = `
import sys, gc
sys.path.insert(0, "/app")
gc.set_threshold(600_000, 50, 50)
from vramwise.page.answers import Answers
Answers()
`;

async function start() {
  const packed = fetch('vramwise.tar.gz').then((answer) => {
    if (!answer.ok) throw new Error(`vramwise.tar.gz: $${answer.status}`);
    return answer.arrayBuffer();
  });
  const python = await loadPyodide({ indexURL: new URL('./pyodide/', import.meta.url).href });
  tell('Starting vramwise', 0.85);
  python.unpackArchive(await packed, 'gztar', { extractDir: '/app' });
  const answers = python.runPython(START);
  return (request, progress, data) => {
    const bytes = data && python.toPy(new Uint8Array(data));
    try {
      return answers.answer(JSON.stringify(request), progress, bytes);
    } finally {
      bytes?.destroy();
    }
  };
}

const started = start();
started.then(() => postMessage({ ready: true }), (error) => postMessage({ broken: String(error) }));
self.onmessage = async ({ data: { id, request, data } }) => {
  try {
    const answer = (await started)(request, (done, of) => postMessage({ id, done, of }), data);
    postMessage({ id, answer });
  } catch (error) { // Python itself gave up: out of memory, or a fault of its own
    postMessage({ id, answer: JSON.stringify({ ok: false, error: `Python stopped: $${String(error).slice(-300)}`, fatal: true }) });
  }
};
