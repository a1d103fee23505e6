// Questions to Python. Two workers: one for what must be quick, one for what takes its time and for what is not
// asked yet, so that a slider waits for neither. In each, of several questions of one kind that wait the newest alone is asked.
import { script } from './elements.js';

// The page of `vramwise serve` asks that server, with the key of the link it was opened by.
export const LOCAL = document.documentElement.dataset.build === 'local';

function keyOfLink() {
  const found = /^#key=([\w-]+)$/.exec(location.hash);
  if (found) {
    sessionStorage.setItem('vramwise-key', found[1]);
    history.replaceState(null, '', location.pathname);
  }
  return sessionStorage.getItem('vramwise-key') ?? '';
}
const KEY = LOCAL ? keyOfLink() : null;

class Line {
  constructor(name, heard) {
    this.name = name;
    this.waiting = new Map();
    this.asked = null;
    this.numbers = 0;
    this.heard = heard;
    this.start();
  }

  start() {
    this.worker = new Worker(script('worker.js'), { type: 'module', name: this.name });
    this.worker.onmessage = ({ data }) => this.hear(data, this.heard);
    this.worker.onerror = (event) => this.heard({ broken: event.message || 'the worker could not start' });
    if (KEY !== null) this.worker.postMessage({ key: KEY });
  }

  hear(said, heard) {
    if (said.id === undefined) { heard(said); return; }
    if (said.answer === undefined) { this.asked?.progress?.(said.done, said.of); return; }
    const { resolve } = this.asked;
    this.asked = null;
    this.next();
    resolve(JSON.parse(said.answer));
  }

  // The answer, or null where a newer question of the same kind took its place.
  ask(request, { progress, data } = {}) {
    this.drop(request.ask);
    return new Promise((resolve) => {
      this.waiting.set(request.ask, { request, progress, data, resolve });
      this.next();
    });
  }

  drop(...kinds) {
    for (const kind of kinds) {
      this.waiting.get(kind)?.resolve(null);
      this.waiting.delete(kind);
    }
  }

  // Python cannot be interrupted: what nobody waits for any more ends with its worker, and a new one goes on.
  abandon(kind) {
    this.drop(kind);
    if (this.asked?.request.ask !== kind) return;
    this.worker.terminate();
    this.asked.resolve(null);
    this.asked = null;
    this.start();
    this.next();
  }

  next() {
    if (this.asked || !this.waiting.size) return;
    const kind = CLICKED.find((one) => this.waiting.has(one)) ?? this.waiting.keys().next().value;
    const question = this.waiting.get(kind);
    this.waiting.delete(kind);
    this.asked = question;
    this.numbers += 1;
    this.worker.postMessage({ id: this.numbers, request: question.request, data: question.data });
  }
}

// User actions come before what the page asks by itself.
const CLICKED = ['fix', 'fix-all', 'fix-errors', 'start', 'fit', 'diagnose', 'report'];
const SLOW = new Set(['weigh', 'ahead', 'chart', 'remedy', 'cards', 'fit', 'report', 'diagnose']);

export class Asking {
  constructor(heard) {
    this.quick = new Line('quick', (said) => {
      if (said.ready) this.slow ??= new Line('slow', (later) => { if (later.broken) heard(later); });
      heard(said);
    });
    this.slow = null;
  }

  ask(request, more) {
    if (!SLOW.has(request.ask)) return this.quick.ask(request, more);
    return this.slow ? this.slow.ask(request, more) : Promise.resolve(null);
  }

  abandon(kind) {
    this.slow?.abandon(kind);
  }

  drop(...kinds) {
    for (const line of [this.quick, this.slow]) line?.drop(...kinds);
  }
}
