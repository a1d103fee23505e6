// A config and its settings inside a link: packed into the fragment, which browsers never send to anybody.
const MOST = 200_000;

async function through(bytes, stream) {
  const packed = new Blob([bytes]).stream().pipeThrough(stream);
  return new Uint8Array(await new Response(packed).arrayBuffer());
}

export async function packed(state) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(state)), new CompressionStream('deflate-raw'));
  let letters = '';
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return `#c=${btoa(letters).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '')}`;
}

// What a link carries; null where it carries nothing, or nothing that can be read.
export async function unpacked(fragment) {
  const found = /^#c=([\w-]+)$/.exec(fragment);
  if (!found || found[1].length > MOST) return null;
  try {
    const letters = atob(found[1].replaceAll('-', '+').replaceAll('_', '/'));
    const bytes = await through(Uint8Array.from(letters, (one) => one.charCodeAt(0)), new DecompressionStream('deflate-raw'));
    const state = JSON.parse(new TextDecoder().decode(bytes));
    return typeof state?.text === 'string' ? state : null;
  } catch {
    return null;
  }
}
