// Asks vramwise on this machine: one request after the other. Lines of progress come first, the answer is the last line.
const place = `ask/${self.name}`;
let key = '';

async function* linesOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split('\n');
    rest = lines.pop();
    yield* lines;
  }
}

async function ask(request, data, told) {
  const body = new Blob([JSON.stringify(request), '\n', data ?? '']);
  const response = await fetch(place, { method: 'POST', headers: { 'X-Vramwise-Key': key }, body });
  if (!response.ok) throw new Error(response.status === 403 ? 'open the link that vramwise serve printed' : response.statusText);
  for await (const line of linesOf(response)) {
    const said = JSON.parse(line);
    if (said.answer !== undefined) return said.answer;
    told(said);
  }
  throw new Error('vramwise serve was stopped');
}

self.onmessage = async ({ data: asked }) => {
  if (asked.key !== undefined) {
    key = asked.key;
    postMessage({ stage: 'Starting vramwise', share: 0.5 });
    ask({ ask: 'catalogue' }).then(() => postMessage({ ready: true }), (error) => postMessage({ broken: error.message }));
    return;
  }
  const { id, request, data } = asked;
  try {
    postMessage({ id, answer: await ask(request, data, ({ done, of }) => postMessage({ id, done, of })) });
  } catch (error) {
    postMessage({ id, answer: JSON.stringify({ ok: false, error: `No answer: ${error.message}`, line: null, fatal: true }) });
  }
};
