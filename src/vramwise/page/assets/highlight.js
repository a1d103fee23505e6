// YAML (and JSON) in colours: each line is split into comments, keys, strings, numbers, words and marks.
import { node } from './elements.js';

const MOST_TEXT = 100_000, MOST_LINE = 500;
const BEFORE_KEY = /^(\s*(?:-\s+)*)/, PLAIN_KEY = /^([\w.][^\s:#"'[\]{},]*)(?=\s*:(?:\s|$))/;
const BLOCK = /(?:^|[\s:])[|>][+-]?\d?\s*(?:#.*)?$/;
const TOKEN = new RegExp([
  /(?<comment>(?:^|(?<=\s))#.*$)/, /(?<key>"(?:[^"\\]|\\.)*"(?=\s*:))/, /(?<string>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*')/,
  /(?<word>(?<![\w./+:-])(?:true|false|null|yes|no|on|off|auto|~)(?=\s*(?:[,\]}#]|$)))/,
  /(?<number>(?<![\w./+:-])[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:e[-+]?\d+)?(?=\s*(?:[,\]}#]|$)))/,
  /(?<mark>[[\]{},]|(?<=^|\s)(?:[&*!][^\s,\]}]+|[|>][+-]?\d?(?=\s*$)))/,
].map((one) => one.source).join('|'), 'gi');

// The tokens of a line as [kind, text]; the kind is '' for what has no colour.
export function tokens(line) {
  if (line.length > MOST_LINE) return [['', line]];
  const [before] = BEFORE_KEY.exec(line), found = before ? [['', before]] : [];
  let rest = line.slice(before.length);
  const key = PLAIN_KEY.exec(rest)?.[0];
  if (key) { found.push(['key', key]); rest = rest.slice(key.length); }
  let at = 0;
  for (const match of rest.matchAll(TOKEN)) {
    if (match.index > at) found.push(['', rest.slice(at, match.index)]);
    const [kind, text] = Object.entries(match.groups).find(([, one]) => one !== undefined);
    found.push([kind, text]);
    at = match.index + text.length;
  }
  if (at < rest.length) found.push(['', rest.slice(at)]);
  return found;
}

// The lines of a text as tokens; the lines of a block (`key: |`) are one string each.
export function highlighted(text) {
  let block = -1;
  return text.split('\n').map((line) => {
    const indent = line.search(/\S/);
    if (block >= 0 && (indent > block || indent < 0)) return [['string', line]];
    block = BLOCK.test(line) && line.length <= MOST_LINE ? indent : -1;
    return tokens(line);
  });
}

export const isPaintable = (text) => text.length <= MOST_TEXT;

export function paint(holder, text) {
  const shown = [];
  for (const line of highlighted(text)) {
    for (const [kind, words] of line) shown.push(kind ? node('span', { class: kind }, words) : words);
    shown.push('\n');
  }
  holder.replaceChildren(...shown);
}
