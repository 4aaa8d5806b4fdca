// A terminal as a person has it: xterm.js, fed by a PTY's WebSocket, answering what programs ask it.
// Its screen is looked at where the stream itself says so (a resize, the end), so that "before" and
// "after" are places in the bytes and not moments.
import xterm from '@xterm/headless';
import WebSocket from 'ws';

const kDeadlineMs = 60_000;
const kHead = 13;  // tag, frame, offset (attach, decision 17)

// The screen as lines of cells, each a string; behind a wide character stands a space.
export function screenOf(term) {
  const buffer = term.buffer.active;
  const rows = [];
  for (let y = 0; y < term.rows; ++y) {
    const line = buffer.getLine(buffer.baseY + y);
    const cells = [];
    for (let x = 0; x < term.cols; ++x) {
      const cell = line.getCell(x);
      cells.push(cell.getChars() || ' ');
    }
    rows.push(cells);
  }
  return rows;
}

export const textOf = (screen) => screen.map((row) => row.join('').trimEnd()).join('\n');

export class Terminal {
  constructor(base, key, path, cols, rows) {
    this.term = new xterm.Terminal({cols, rows, allowProposedApi: true});
    this.screens = [];  // before each resize, and at the end
    this.ended = false;
    this.wake = () => {};
    this.work = Promise.resolve();
    this.socket = new WebSocket(`${base.replace('http', 'ws')}${path}?write=1&from=0`,
                                {headers: {authorization: `Bearer ${key}`}});
    this.socket.on('message', (data, binary) => {
      this.work = this.work.then(() => this.take(data, binary)).then(() => this.wake());
    });
    this.socket.on('error', (error) => { this.failed = error; this.wake(); });
    this.term.onData((answer) => this.type(answer));
  }

  async take(data, binary) {
    if (binary) {
      await new Promise((done) => this.term.write(data.subarray(kHead), done));
      return;
    }
    const event = JSON.parse(data.toString());
    if (event.event === 'resize') {
      this.screens.push(screenOf(this.term));
      this.term.resize(event.cols, event.rows);
    } else if (event.event === 'end') {
      this.screens.push(screenOf(this.term));
      this.ended = true;
      this.socket.close();
    }
  }

  type(text) {
    this.socket.send(Buffer.concat([Buffer.of(0), Buffer.from(text)]));
  }

  async resize(cols, rows) {
    const seen = this.screens.length;
    this.socket.send(JSON.stringify({type: 'resize', cols, rows}));
    await this.until(`a resize to ${cols}x${rows}`, () => this.screens.length > seen);
  }

  shows(text) {
    return this.until(`"${text}" on the screen`, () => textOf(screenOf(this.term)).includes(text));
  }

  async until(what, holds) {
    const end = Date.now() + kDeadlineMs;
    while (!holds()) {
      const left = end - Date.now();
      if (this.failed || left <= 0) {
        throw new Error(`${this.failed ?? 'too late'}: ${what}; the screen:\n` +
                        textOf(screenOf(this.term)));
      }
      await new Promise((done) => {
        const timer = setTimeout(done, left);
        this.wake = () => { clearTimeout(timer); done(); };
      });
    }
  }
}
