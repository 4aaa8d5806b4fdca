// asciinema's own player, whole: its parser, its clock and its terminal, in a document without a
// browser. What it shows is read where a person would read it, in the lines that it renders.
import {JSDOM} from 'jsdom';

const dom = new JSDOM('<!doctype html><div id="here"></div>', {pretendToBeVisual: true});
const {window} = dom;
for (const name of ['window', 'document', 'CustomEvent', 'Event', 'HTMLElement', 'Element', 'Node',
                    'requestAnimationFrame', 'cancelAnimationFrame', 'getComputedStyle']) {
  globalThis[name] = name === 'window' ? window : window[name];
}
globalThis.ResizeObserver = window.ResizeObserver = class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
// Backgrounds and block characters are painted; the text is not.
window.HTMLCanvasElement.prototype.getContext = () =>
    new Proxy({}, {get: () => () => {}, set: () => true});
// The progress bar's movement.
window.Element.prototype.animate = () =>
    ({cancel() {}, play() {}, pause() {}, finish() {}, currentTime: 0, effect: null});

const {create} = await import('asciinema-player');

export class Player {
  // Resolves when the recording is read.
  static async open(cast) {
    const player = new Player();
    const place = window.document.getElementById('here');
    player.player = create({data: cast}, place, {preload: true, fit: false, speed: 1000});
    await new Promise((done, failed) => {
      player.player.addEventListener('ready', done);
      player.player.addEventListener('error', (error) => failed(new Error(JSON.stringify(error))));
    });
    return player;
  }

  async play() {
    const ended = new Promise((done) => this.player.addEventListener('ended', done));
    await this.player.play();
    await ended;
    return this.screen();
  }

  async seek(seconds) {
    await this.player.seek(seconds);
    return this.screen();
  }

  duration() { return this.player.getDuration(); }

  // What stands in the document after the frame that shows all changes so far.
  async screen() {
    for (let frame = 0; frame < 2; ++frame) {
      await new Promise((done) => window.requestAnimationFrame(done));
    }
    const term = this.player.el.querySelector('.ap-term');
    const cols = Number(term.style.getPropertyValue('--term-cols'));
    return [...term.querySelectorAll('.ap-line')].map((line) => {
      const cells = Array(cols).fill(' ');
      for (const span of line.children) {
        let at = Number(span.style.getPropertyValue('--offset'));
        for (const char of span.textContent) {
          cells[at++] = char;
        }
      }
      return cells;
    });
  }
}
