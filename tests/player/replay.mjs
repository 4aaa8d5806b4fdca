// replay.mjs BASE KEY SANDBOX vim|top: makes a terminal, works in it as a person would, resized twice,
// and looks at its recording in asciinema's player. Prints {"same": [...], "different": [...]}.
import {Player} from './player.mjs';
import {Terminal, textOf} from './terminal.mjs';

const [base, key, sandbox, what] = process.argv.slice(2);
const root = `/v1/sandboxes/${sandbox}/pty`;

async function ask(method, path, body) {
  const reply = await fetch(base + path, {
    method,
    headers: {authorization: `Bearer ${key}`, 'content-type': 'application/json'},
    body: body && JSON.stringify(body),
  });
  const text = await reply.text();
  if (!reply.ok) {
    throw new Error(`${method} ${path}: ${reply.status} ${text}`);
  }
  return text;
}

const sessions = {
  // Ends in the middle, killed: the last screen is the editor's own.
  vim: {
    argv: ['vim', '-u', 'NONE', '-i', 'NONE', '-n', '-N'],
    async work(term, path) {
      await term.shows('~');
      term.type('ifirst line\rsecond: é ─ 日本 end\r' + 'long '.repeat(30) + '\x1b');
      term.type(':set number laststatus=2\r');
      await term.shows('3 long');
      await term.resize(101, 31);
      term.type(':split\rggOabove all\x1b');
      await term.shows('above all');
      await term.resize(57, 17);
      term.type('Gothe last line of all\x1b');
      await term.shows('the last line of all');
      await ask('POST', `${path}/signal`, {signal: 'KILL'});
    },
  },
  top: {
    argv: ['top', '-d', '0.3'],
    async work(term) {
      await term.shows('load average');
      await term.shows('COMMAND');
      await term.resize(101, 31);
      term.type('h');
      await term.shows('Help for Interactive Commands');
      await term.resize(57, 17);
      term.type('\x1b');
      await term.shows('PID');
      term.type('q');
    },
  },
};

const made = JSON.parse(await ask('POST', root, {
  argv: sessions[what].argv, cols: 80, rows: 24, env: {TERM: 'xterm-256color'},
}));
const term = new Terminal(base, key, `${root}/${made.id}`, 80, 24);
await sessions[what].work(term, `/v1/sandboxes/${sandbox}/processes/${made.id}`);
await term.until('the end', () => term.ended);

const cast = await ask('GET', `${root}/${made.id}/recording`);
const resizes = [];
let last = 0;
for (const line of cast.trimEnd().split('\n').slice(1)) {
  const [time, code] = JSON.parse(line);
  if (code === 'r') {
    resizes.push((last + time) / 2);  // behind all that came before it
  }
  last = time;
}

const same = [];
const different = [];
function compare(name, shown, expected) {
  const cells = expected.flat().length;
  if (JSON.stringify(shown) === JSON.stringify(expected)) {
    same.push(`${name}: ${expected[0].length}x${expected.length}`);
  } else {
    different.push(`${name} (${cells} cells):\n${textOf(shown)}\n--- the terminal had:\n` +
                   textOf(expected));
  }
}

const player = await Player.open(cast);
const [first, second, final] = term.screens;
compare('played to the end', await player.play(), final);
compare('back before the second resize', await player.seek(resizes[1]), second);
compare('back before the first resize', await player.seek(resizes[0]), first);
compare('on before the second resize', await player.seek(resizes[1]), second);
compare('on to the end', await player.seek(player.duration()), final);
console.log(JSON.stringify({same, different}));
process.exit(0);
