// The what-if sliders and choices: each stands where the config has it until a hand moves it.
import { by, node } from './elements.js';

export class Knobs {
  constructor({ dragged, settled }) {
    this.moved = {};
    this.shown = '';
    this.dragged = dragged;
    this.settled = settled;
    by('reset').addEventListener('click', () => { this.clear(); settled(); });
  }

  get any() { return Object.keys(this.moved).length > 0; }

  clear(moved = {}) {
    this.moved = { ...moved };
    this.shown = '';
  }

  // Draws anew only where something else can be turned: a slider under a hand stays.
  show(knobs) {
    const now = JSON.stringify(knobs);
    by('what-if').hidden = !knobs.length;
    this.buttons();
    if (now === this.shown) return;
    this.shown = now;
    by('knobs').replaceChildren(...knobs.flatMap((knob) => (knob.values ? this.range(knob) : this.choice(knob))));
  }

  buttons() {
    by('keep').disabled = by('reset').disabled = !this.any;
  }

  turn(knob, value) {
    if (value === knob.now) delete this.moved[knob.name]; else this.moved[knob.name] = value;
    this.buttons();
  }

  range(knob) {
    const id = `knob-${knob.name}`, at = knob.values.indexOf(this.moved[knob.name] ?? knob.now);
    const output = node('output', { for: id });
    const slider = node('input', { type: 'range', id, min: 0, max: knob.values.length - 1, step: 1, value: at });
    const tell = () => {
      const value = knob.values[slider.value];
      output.textContent = value.toLocaleString('en');
      output.classList.toggle('moved', value !== knob.now);
      slider.setAttribute('aria-valuetext', String(value));
      return value;
    };
    slider.addEventListener('input', () => { this.turn(knob, tell()); this.dragged(); });
    slider.addEventListener('change', () => this.settled());
    tell();
    return [node('label', { for: id, title: knob.key }, knob.label), slider, output];
  }

  choice(knob) {
    const id = `knob-${knob.name}`, menu = node('select', { id });
    for (const { value, label } of knob.options) menu.append(node('option', { value }, label));
    menu.value = this.moved[knob.name] ?? knob.now;
    menu.addEventListener('change', () => { this.turn(knob, menu.value); this.settled(); });
    return [node('label', { for: id }, knob.label), menu];
  }
}
