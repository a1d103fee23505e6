// The few things every part of the page needs. Strangers' words get into the page as text; markup only as Python made it
// of the report's own components, which escape whatever they are given.
export const by = (id) => document.getElementById(id);

export function node(kind, attributes = {}, ...children) {
  const made = document.createElement(kind);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === 'onclick') made.addEventListener('click', value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// A finding about the file as a whole, as where a key is missing, covers no character of its first line.
export const aboutFile = (found) => found.line === 1 && found.end_line === 1 && found.end_column === 1;

// The browser takes markup and scripts from this policy alone: markup that Python made, and these two files.
const SCRIPTS = ['worker.js', 'sw.js'];
const policy = globalThis.trustedTypes?.createPolicy('vramwise', {
  createHTML: (markup) => markup,
  createScriptURL: (name) => { if (SCRIPTS.includes(name)) return name; throw new TypeError(name); },
});

export const script = (name) => (policy ? policy.createScriptURL(name) : name);

export function showMarkup(holder, markup) {
  holder.innerHTML = policy ? policy.createHTML(markup) : markup;
}

export function say(words) {
  by('said').textContent = words;
}

export function download(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = node('a', { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
