// The tiles of attention: what is in SRAM, what was moved. Use: flashbookFigures.attention_tiles(host, img), host an empty <div>, img the
// picture it replaces. The walks and their counters are in `model`, which knows no page; the rest draws them.
(function () {
  'use strict';

  // ---- The model: one head of attention, walked tile by tile ----
  //
  // A problem is { n, rowsQ, rowsK, d, causal }: n queries and n keys, tiles of rowsQ queries and of rowsK keys, head dimension d. Q, K, V, P
  // and O are bf16 in device memory, S, m and l float32. There is no cache between SRAM and device memory: what is not in SRAM is read.

  const tensors = ['Q', 'K', 'V', 'S', 'P', 'O', 'ml'];
  const bf16 = 2, f32 = 4;

  const tilesQ = (p) => p.n / p.rowsQ;
  const tilesK = (p) => p.n / p.rowsK;
  /** Does any query of tile i see a key of tile j? */
  const visible = (p, i, j) => !p.causal || j * p.rowsK < (i + 1) * p.rowsQ;
  /** Does the diagonal run through tile (i, j), so that a part of it is masked? */
  const masked = (p, i, j) => p.causal && visible(p, i, j) && (j + 1) * p.rowsK - 1 > i * p.rowsQ;
  const range = (count) => [...Array(count).keys()];

  /** SRAM, and a counter at its door. Every walk below uses nothing else to move a tile. */
  function machine() {
    const sram = new Map();  // 'K2' -> bytes
    const counters = Object.fromEntries(tensors.map((t) => [t, { read: 0, written: 0 }]));
    const steps = [];
    let read = new Map(), written = new Map(), made = new Set(), peak = 0;

    const measure = () => { peak = Math.max(peak, [...sram.values()].reduce((a, b) => a + b, 0)); };
    const tensorOf = (tile) => tile.replace(/[\d,]+$/, '');
    return {
      /** Makes sure that a tile is in SRAM; reads it if it is not. `held` is its size in SRAM, where that differs. */
      load(tile, bytes, held = bytes) {
        if (sram.has(tile)) return;
        counters[tensorOf(tile)].read += bytes;
        read.set(tile, bytes);
        sram.set(tile, held);
        measure();
      },
      /** A tile that comes into being in SRAM. */
      make(tile, bytes) {
        sram.set(tile, bytes);
        made.add(tile);
        measure();
      },
      /** Writes a tile to device memory. */
      store(tile, bytes) {
        counters[tensorOf(tile)].written += bytes;
        written.set(tile, bytes);
      },
      drop(...tiles) { tiles.forEach((tile) => sram.delete(tile)); },
      /** The reader's next step: all that happened since the last one. */
      step(what) {
        const before = steps.length ? steps[steps.length - 1].counters : null;
        const now = structuredClone(counters);
        const sum = tensors.reduce((a, t) => a + now[t].read + now[t].written, 0);
        steps.push({
          ...what, read, written, made, sram: new Map(sram), counters: now, before, moved: sum,
          sramBytes: [...sram.values()].reduce((a, b) => a + b, 0),
        });
        read = new Map();
        written = new Map();
        made = new Set();
      },
      result: () => ({ steps, counters, peak, moved: steps[steps.length - 1].moved }),
    };
  }

  /** The bytes of each kind of tile. */
  const sizes = (p) => ({
    Q: bf16 * p.rowsQ * p.d, K: bf16 * p.rowsK * p.d, V: bf16 * p.rowsK * p.d, O: bf16 * p.rowsQ * p.d, sums: f32 * p.rowsQ * p.d,
    S: f32 * p.rowsQ * p.rowsK, P: bf16 * p.rowsQ * p.rowsK, ml: 2 * f32 * p.rowsQ,
  });

  const walks = {
    /** Three kernels. S and P go through device memory. */
    naive(p, sram) {
      const b = sizes(p);
      for (const i of range(tilesQ(p))) {
        for (const j of range(tilesK(p)).filter((x) => visible(p, i, x))) {
          sram.load(`Q${i}`, b.Q);
          sram.load(`K${j}`, b.K);
          sram.make(`S${i},${j}`, b.S);
          sram.store(`S${i},${j}`, b.S);
          sram.step({ kernel: 1, kind: 'scores', i, j });
          sram.drop(`K${j}`, `S${i},${j}`);
        }
        sram.drop(`Q${i}`);
      }
      for (const i of range(tilesQ(p))) {
        const row = range(tilesK(p)).filter((j) => visible(p, i, j));
        // A row of scores at a time is in SRAM, and its weights take its place: of each tile, one row.
        for (const j of row) sram.load(`S${i},${j}`, b.S, b.S / p.rowsQ);
        for (const j of row) sram.store(`P${i},${j}`, b.P);
        sram.step({ kernel: 2, kind: 'softmax', i });
        sram.drop(...row.map((j) => `S${i},${j}`));
      }
      for (const i of range(tilesQ(p))) {
        sram.make(`O${i}`, b.sums);
        for (const j of range(tilesK(p)).filter((x) => visible(p, i, x))) {
          sram.load(`P${i},${j}`, b.P);
          sram.load(`V${j}`, b.V);
          sram.step({ kernel: 3, kind: 'values', i, j });
          sram.drop(`P${i},${j}`, `V${j}`);
        }
        sram.store(`O${i}`, b.O);
        sram.step({ kernel: 3, kind: 'store', i });
        sram.drop(`O${i}`);
      }
    },

    /** Algorithm 1 of arXiv 2205.14135: keys outside, queries inside. */
    keysOutside(p, sram) {
      const b = sizes(p);
      for (const i of range(tilesQ(p))) {
        sram.store(`O${i}`, b.O);
        sram.store(`ml${i}`, b.ml);
      }
      sram.step({ kind: 'init' });
      for (const j of range(tilesK(p))) {
        for (const i of range(tilesQ(p)).filter((x) => visible(p, x, j))) {
          sram.load(`K${j}`, b.K);
          sram.load(`V${j}`, b.V);
          sram.load(`Q${i}`, b.Q);
          sram.load(`O${i}`, b.O, b.sums);
          sram.load(`ml${i}`, b.ml);
          sram.make(`S${i},${j}`, b.S);
          sram.store(`O${i}`, b.O);
          sram.store(`ml${i}`, b.ml);
          sram.step({ kind: 'update', i, j });
          sram.drop(`Q${i}`, `O${i}`, `ml${i}`, `S${i},${j}`);
        }
        sram.drop(`K${j}`, `V${j}`);
      }
    },

    /** The order of FlashAttention-2: queries outside, keys inside. */
    queriesOutside(p, sram) {
      const b = sizes(p);
      for (const i of range(tilesQ(p))) {
        sram.make(`O${i}`, b.sums);
        sram.make(`ml${i}`, b.ml);
        for (const j of range(tilesK(p)).filter((x) => visible(p, i, x))) {
          sram.load(`Q${i}`, b.Q);
          sram.load(`K${j}`, b.K);
          sram.load(`V${j}`, b.V);
          sram.make(`S${i},${j}`, b.S);
          sram.step({ kind: 'gather', i, j });
          sram.drop(`K${j}`, `V${j}`, `S${i},${j}`);
        }
        sram.drop(`Q${i}`);
        sram.store(`O${i}`, b.O);
        sram.step({ kind: 'store', i });
        sram.drop(`O${i}`, `ml${i}`);
      }
    },
  };

  /** { steps, counters, peak, moved }: step 0 is the empty start, the last one the sum. */
  function walk(schedule, p) {
    const sram = machine();
    sram.step({ kind: 'start' });
    walks[schedule](p, sram);
    sram.step({ kind: 'end' });
    return sram.result();
  }

  /** How many tiles of S have a visible pair. Closed form; it asks that one tile size divides the other. */
  function visibleTiles(p) {
    const q = tilesQ(p), k = tilesK(p);
    if (!p.causal) return q * k;
    return q <= k ? ((k / q) * q * (q + 1)) / 2 : ((q / k) * k * (k + 1)) / 2;
  }

  /** The bytes of a walk without walking: terms of text and number, and their sum. */
  function formula(schedule, p) {
    const c = visibleTiles(p), nd = p.n * p.d;
    const n = (x) => x.toLocaleString('en-US');
    const again = p.causal ? `${c} visible tiles` : `${tilesQ(p)} × ${tilesK(p)} tiles`;
    const terms = {
      naive: [
        [`S and P: 12 bytes × ${n(c * p.rowsQ * p.rowsK)} pairs`, 12 * c * p.rowsQ * p.rowsK, 'SP'],
        ['Q in, O out, once: 4 N d', 4 * nd],
        [`K, V for each of ${again}: 4 Bk d`, 4 * p.rowsK * p.d * c],
      ],
      keysOutside: [
        ['K, V in, once: 4 N d', 4 * nd],
        [`Q in, O in and out, for each of ${again}: 6 Bq d`, 6 * p.rowsQ * p.d * c],
        ['m, ℓ in and out with them: 16 Bq', 16 * p.rowsQ * c],
        ['O = 0, m = −∞, ℓ = 0 at the start: N (2 d + 8)', 2 * nd + 8 * p.n],
      ],
      queriesOutside: [
        ['S and P', 0, 'SP'],
        ['Q in, O out, once: 4 N d', 4 * nd],
        [`K, V for each of ${again}: 4 Bk d`, 4 * p.rowsK * p.d * c],
      ],
    }[schedule];
    return { terms, total: terms.reduce((a, t) => a + t[1], 0) };
  }

  const schedules = {
    naive: 'naive, three kernels',
    keysOutside: 'keys outside (FlashAttention-1)',
    queriesOutside: 'queries outside (FlashAttention-2)',
  };

  // ---- Numbers and sentences ----

  /** Bytes as text; 1 KB = 1024 bytes. */
  function bytes(x) {
    if (x < 1024) return `${x} B`;
    const [size, unit] = x < 1024 * 1024 ? [x / 1024, 'KB'] : [x / 1024 / 1024, 'MB'];
    return `${Number(size.toFixed(size < 10 ? 2 : size < 100 ? 1 : 0))} ${unit}`;
  }
  const subscript = (digits) => digits.replace(/\d/g, (c) => '₀₁₂₃₄₅₆₇₈₉'[c]);
  /** 'S0,2' -> 'S₁,₃': tiles count from 0 in the model and from 1 for the reader. */
  const label = (tile) => (tile.startsWith('ml') ? tile.replace(/ml(\d+)/, 'm$1, ℓ$1') : tile.replace(',', '\u2009'))
    .replace(/\d+/g, (d) => subscript(String(Number(d) + 1)));
  const name = (tensor, ...index) => label(tensor + index.join(','));

  /** The sentence of a step. */
  function sentence(schedule, p, result, k) {
    const s = result.steps[k], { i, j } = s;
    const cost = [...s.read.values(), ...s.written.values()].reduce((a, b) => a + b, 0);
    const diagonal = j !== undefined && s.kind !== 'values' && masked(p, i, j)
      ? ' The diagonal crosses this tile: scores beyond it are masked.' : '';
    switch (s.kind) {
      case 'start':
        return {
          naive: 'Three kernels, one after the other: scores S = Q Kᵀ, weights P = softmax(S), output O = P V. ' +
            'What one kernel hands to the next goes through device memory.',
          keysOutside: 'One kernel. The outer loop takes a tile of keys and values, the inner loop lets every query tile meet it. ' +
            'S is used up where it is made.',
          queriesOutside: 'One kernel. The outer loop takes a query tile and keeps it, the inner loop brings keys and values past it. ' +
            'S is used up where it is made.',
        }[schedule];
      case 'scores':
        return `Kernel 1, scores: the tile ${name('S', i, j)} = ${name('Q', i)} ${name('K', j)}ᵀ is made, and at once written to device memory: ` +
          `${bytes(s.written.get(`S${i},${j}`))} out.${diagonal}`;
      case 'softmax':
        return `Kernel 2, softmax: each row of query tile ${i + 1} is read as scores, 4 bytes each, and written as weights, ` +
          `2 bytes each: ${bytes(cost)} moved.`;
      case 'values':
        return `Kernel 3, values: the weights ${name('P', i, j)} come back, with ${name('V', j)}. ${name('O', i)} += ${name('P', i, j)} ${name('V', j)} in SRAM: ` +
          `${bytes(cost)} in.`;
      case 'store':
        return schedule === 'naive'
          ? `Kernel 3: query tile ${i + 1} has met all its keys. ${name('O', i)} is written.`
          : `Query tile ${i + 1} has met all its keys: ${name('O', i)} is divided by ℓ and written, once.`;
      case 'init':
        return 'O, the running maximum m and the running sum ℓ of every query start in device memory: O = 0, m = −∞, ℓ = 0.';
      case 'update':
        return `${s.read.has(`K${j}`) ? `Read ${name('K', j)} and ${name('V', j)}.` : `${name('K', j)} and ${name('V', j)} stay.`} ` +
          `${name('Q', i)} comes in with its unfinished ${name('O', i)}, m and ℓ; they are corrected, take in this tile, and go out again: ${bytes(cost)} moved.${diagonal}`;
      case 'gather':
        return `${s.read.has(`Q${i}`) ? `Read ${name('Q', i)}, ${name('K', j)} and ${name('V', j)}` : `${name('Q', i)} stays; read ${name('K', j)} and ${name('V', j)}`}: ` +
          `${bytes(cost)} in. ${name('S', i, j)} is made, weighed and used up in SRAM; ${name('O', i)}, m and ℓ wait there, too.${diagonal}`;
      default: {
        const c = result.counters;
        const scores = c.S.read + c.S.written + c.P.read + c.P.written;
        return {
          naive: `Done: ${bytes(result.moved)} moved, ${bytes(scores)} of it S and P: ${Math.round((100 * scores) / result.moved)}\u00a0%. ` +
            `They fill ${bytes(c.S.written + c.P.written)} of device memory, and grow with the square of N.`,
          keysOutside: `Done: ${bytes(result.moved)} moved, none of it S or P. K and V came once, but Q, O, m and ℓ ` +
            'came again with every key tile, and O, m and ℓ went out again, too.',
          queriesOutside: `Done: ${bytes(result.moved)} moved: the naive walk without S and P. ` +
            'K and V came once for every query tile; Q came and O went once.',
        }[schedule];
      }
    }
  }

  // ---- The page ----

  const css = `
.fb-tiles{--ink:var(--page-foreground-color,#2f4153);--paper:var(--page-background-color,#fff);--soft:var(--page-secondary-foreground-color,#6f7e8e);
  --line:var(--separator-color,#dedede);--accent:var(--primary-color,#1779c4);--amber:#d9822b;--amber-ink:#a3580c;
  color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:14px;margin:1rem 0;box-sizing:border-box;
  font:15px/1.45 var(--font-family,system-ui,sans-serif);font-variant-numeric:tabular-nums;text-align:left}
@media (prefers-color-scheme:dark){.fb-tiles{--ink:var(--page-foreground-color,#d2dbde);--paper:var(--page-background-color,#1c1d1f);
  --soft:var(--page-secondary-foreground-color,#859399);--line:var(--separator-color,#38393b);--accent:var(--primary-color,#1982d2)}}
@media (prefers-color-scheme:dark){html:not(.light-mode) .fb-tiles{--amber-ink:#e59a4f}}
html.dark-mode .fb-tiles{--amber-ink:#e59a4f}
.fb-tiles :where(*){box-sizing:border-box}
.fb-tiles :where(div,p,table,tbody,tr,td,th,span,label){font-size:inherit;line-height:inherit;margin:0;padding:0}
.fb-tiles .settings{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:end;margin-bottom:12px}
.fb-tiles label{display:block;font-size:13px;color:var(--soft);flex:1 1 6.5rem;white-space:nowrap}
.fb-tiles label.grow{flex:3 1 17rem}
.fb-tiles select{display:block;width:100%;height:38px;padding:0 6px;font:15px var(--font-family,system-ui,sans-serif);
  color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:5px;margin:2px 0 0}
.fb-tiles .halves{display:flex;flex-wrap:wrap;gap:14px 28px}
.fb-tiles .halves>*{flex:1 1 310px;min-width:0}
.fb-tiles svg{display:block;width:100%;overflow:visible}
.fb-tiles svg text{font:13px var(--font-family,system-ui,sans-serif);fill:var(--soft);text-anchor:middle;dominant-baseline:central}
.fb-tiles svg text.head{fill:var(--ink)}
.fb-tiles .tile{fill:transparent;stroke:var(--line);stroke-width:1}
.fb-tiles .back{fill:var(--paper)}
.fb-tiles .left{fill:var(--amber);fill-opacity:.22}
.fb-tiles .used{fill:var(--soft);fill-opacity:.16}
.fb-tiles .held{fill:var(--accent);fill-opacity:.42;stroke:var(--accent)}
.fb-tiles .read{fill:var(--accent);fill-opacity:1;stroke:var(--accent)}
.fb-tiles .written{fill:var(--amber);fill-opacity:1;stroke:var(--amber)}
.fb-tiles .both{fill:var(--accent);fill-opacity:1;stroke:var(--amber);stroke-width:3.5}
.fb-tiles svg text.on{fill:#fff}
.fb-tiles svg text.onamber{fill:#1c1d1f}
.fb-tiles svg text.in{fill:var(--ink)}
.fb-tiles .mask{fill:url(#fb-tiles-hatch);stroke:none;pointer-events:none}
.fb-tiles .frame{fill:none;stroke:var(--soft)}
.fb-tiles .legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft);margin-top:10px}
.fb-tiles .legend svg{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:5px}
.fb-tiles .player{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-top:12px}
.fb-tiles button{min-width:58px;height:42px;padding:0 10px;font:15px var(--font-family,system-ui,sans-serif);color:var(--ink);background:var(--paper);
  border:1px solid var(--line);border-radius:6px;cursor:pointer;touch-action:manipulation;margin:0}
.fb-tiles button.main{background:var(--accent);border-color:var(--accent);color:var(--paper)}
.fb-tiles button:disabled{opacity:.7;cursor:default}
.fb-tiles :is(button,select,input):focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.fb-tiles input[type=range]{flex:1 1 120px;min-width:0;height:42px;margin:0;accent-color:var(--accent)}
.fb-tiles p.sentence{margin:0;line-height:1.45}
.fb-tiles .sram{margin-top:8px;border-top:1px solid var(--line);padding-top:8px}
.fb-tiles .chips{display:flex;flex-wrap:wrap;gap:4px;height:58px;align-content:start;overflow:hidden;margin-top:4px}
.fb-tiles .chip{font-size:13px;line-height:18px;padding:3px 7px;border-radius:4px;border:1px solid var(--accent);white-space:nowrap}
.fb-tiles .chip.fresh{background:var(--accent);color:#fff}
.fb-tiles p.quiet{color:var(--soft);font-size:13px;line-height:1.45}
.fb-tiles table.ledger{width:100%!important;display:table!important;table-layout:fixed;border-collapse:collapse;margin:8px 0 0;font-size:14px;border:0;box-shadow:none}
.fb-tiles table.ledger th,.fb-tiles table.ledger td{text-align:right;padding:2px 6px;border:0;border-bottom:1px solid var(--line);background:none;color:inherit;font-weight:400;white-space:nowrap}
.fb-tiles table.ledger th{color:var(--soft);font-size:13px}
.fb-tiles table.ledger :is(th,td):first-child{text-align:left;padding-left:0}
.fb-tiles table.ledger td.wrap{white-space:normal}
.fb-tiles table.ledger .reads{color:var(--accent);font-weight:600}
.fb-tiles table.ledger .writes{color:var(--amber-ink);font-weight:600}
.fb-tiles table.ledger .total td{font-weight:600;border-bottom:0}
.fb-tiles table.check th:last-child{width:5.6rem}
.fb-tiles .race{margin-top:14px}
.fb-tiles .lane{margin-top:6px;font-size:13px;color:var(--soft)}
.fb-tiles .lane.now{color:var(--ink)}
.fb-tiles .lane .names{display:flex;justify-content:space-between;gap:8px}
.fb-tiles .track{position:relative;height:12px}
.fb-tiles .track>div{position:absolute;top:0;bottom:0}
.fb-tiles .track .faint{opacity:.28}
.fb-tiles .scores{background:var(--amber)}
.fb-tiles .rest{background:var(--accent)}
`;

  /** An element: el('div.note', {title: 'x'}, child, ...). */
  function el(selector, attributes, ...children) {
    const [tag, ...classes] = selector.split('.');
    const node = document.createElement(tag);
    if (classes.length) node.className = classes.join(' ');
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  /** The same for SVG. */
  function svg(selector, attributes, ...children) {
    const [tag, ...classes] = selector.split('.');
    const node = document.createElementNS('http://www.w3.org/2000/svg', tag);
    if (classes.length) node.setAttribute('class', classes.join(' '));
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  /** Back, Play, Next and a slider over steps 0 to `last`. Calls show(k, announce): announce is false while it plays. */
  function makePlayer(show, delay) {
    const start = el('button', { type: 'button', 'data-action': 'start' }, 'Start');
    const back = el('button', { type: 'button', 'data-action': 'back' }, 'Back');
    const play = el('button', { type: 'button', 'data-action': 'play' }, 'Play');
    const next = el('button.main', { type: 'button', 'data-action': 'next' }, 'Next');
    const slider = el('input', { type: 'range', min: 0, step: 1, 'aria-label': 'Step' });
    const root = el('div.player', {}, start, back, play, next, slider);
    let k = 0, last = 0, timer = 0;

    function stop() {
      clearInterval(timer);
      timer = 0;
      play.textContent = 'Play';
    }
    function go(to) {
      k = Math.max(0, Math.min(last, to));
      if (k === last && timer) stop();
      slider.max = last;
      slider.value = k;
      slider.setAttribute('aria-valuetext', `step ${k} of ${last}`);
      start.disabled = back.disabled = k === 0;
      next.disabled = k === last;
      show(k, !timer);
    }
    function step(distance) {
      stop();
      go(k + distance);
    }
    start.onclick = () => step(-k);
    back.onclick = () => step(-1);
    next.onclick = () => step(1);
    slider.oninput = () => step(slider.value - k);
    play.onclick = () => {
      if (timer) return stop();
      play.textContent = 'Pause';
      timer = setInterval(() => go(k + 1), delay(last));
      go(k === last ? 0 : k + 1);
    };
    root.onkeydown = (event) => {
      const distance = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!distance || event.target === slider) return;  // the slider has arrow keys of its own
      event.preventDefault();
      step(distance);
    };
    return { root, reset(count, at) { stop(); last = count - 1; go(at); }, again() { go(k); } };
  }

  function figure(host, img) {
    if (!document.getElementById('fb-tiles-style')) document.head.append(el('style', { id: 'fb-tiles-style' }, css));
    let p, schedule, result;

    const select = (key, options, chosen) => {
      const node = el('select', { 'data-setting': key }, ...options.map(([value, words]) => el('option', { value }, words)));
      node.value = chosen;
      node.onchange = load;
      return node;
    };
    const settings = {
      schedule: select('schedule', Object.entries(schedules), 'naive'),
      causal: select('causal', [['no', 'none'], ['yes', 'causal']], 'no'),
      tiles: select('tiles', ['128x128', '128x64', '64x128', '64x64'].map((v) => [v, v.replace('x', ' × ')]), '128x128'),
      count: select('count', [2, 4, 6, 8].map((v) => [v, '']), 4),
      d: select('d', [[64, '64'], [128, '128']], 128),
    };
    const picture = svg('svg', { role: 'img' });
    const player = makePlayer(show, (last) => (last < 30 ? 1100 : last < 60 ? 600 : 250));
    const words = el('p.sentence', { 'aria-live': 'polite' });
    const sramSize = el('span'), chips = el('div.chips');
    const counters = el('table.ledger'), race = el('div.race'), check = el('table.ledger.check');
    const swatch = (kind, caption) => el('span', {},
      svg('svg', { viewBox: '0 0 14 14' }, svg(`rect.tile.${kind}`, { x: 1, y: 1, width: 12, height: 12 })), caption);
    const leftBehind = swatch('left', 'left in device memory'), usedUp = swatch('used', 'used up, gone');
    const hatch = swatch('mask', 'masked: skipped');
    host.classList.add('fb-tiles');
    host.setAttribute('role', 'group');
    host.setAttribute('aria-label', (img && img.alt) || 'The tiles of attention, step by step');
    const setting = (caption, node, grow) => el(grow ? 'label.grow' : 'label', {}, caption, node);
    const left = el('div', {}, picture,
      el('p.quiet', { style: 'text-align:center;margin-top:6px' }, 'Middle: S = Q Kᵀ, N × N. Lengths to scale.'),
      el('div.legend', {}, swatch('read', 'read in this step'), swatch('held', 'in SRAM, not moved'),
        swatch('written', 'written in this step'), swatch('both', 'read and written'), leftBehind, usedUp, hatch),
      player.root);
    host.replaceChildren(
      el('div.settings', {}, setting('order of the loops', settings.schedule, true), setting('mask', settings.causal),
        setting('tile Bq × Bk', settings.tiles), setting('queries, keys: N', settings.count), setting('head dim d', settings.d)),
      el('div.halves', {}, left, el('div', {}, words,
        el('div.sram', {}, 'In SRAM now: ', sramSize, chips), counters)),
      race, check,
      el('p.quiet', { style: 'margin-top:10px' }, 'One head, bf16; scores, m and ℓ in float32. SRAM is shared memory and registers of one ' +
        'multiprocessor: 228 and 256 KB on an H100 or H200. Counted as if no L2 cache stood in between. Tiles that the diagonal crosses count whole, the unfinished O as bf16. ' +
        'Left out: the log-sum-exp, 4 bytes a query. 1 KB = 1024 bytes.'));

    // -- The picture: Q beside S, K above it, V below, O to the right; lengths to scale --
    let nodes = {};

    function build() {
      const width = Math.max(260, left.clientWidth || 460);
      const gap = 8, top = 22, side = 20, foot = 22;
      const state = schedule === 'queriesOutside' ? 0 : schedule === 'keysOutside' ? 30 : 0;  // room for m and l in device memory
      const unit = Math.min((width - 2 * gap - side - state - 4) / (p.n + 2 * p.d), 330 / (p.n + 2 * p.d));
      const n = unit * p.n, d = unit * p.d, tq = unit * p.rowsQ, tk = unit * p.rowsK;
      const x = { Q: side + (width - side - state - n - 2 * d - 2 * gap) / 2 };
      x.S = x.Q + d + gap;
      x.O = x.S + n + gap;
      x.ml = x.O + d + 6;
      const y = { K: top };
      y.S = y.K + d + gap;
      y.V = y.S + n + gap;
      const height = y.V + d + foot;
      picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
      picture.style.height = `${height}px`;
      nodes = {};
      const parts = [svg('defs', {}, svg('pattern',
        { id: 'fb-tiles-hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
        svg('rect', { width: 1.3, height: 6, style: 'fill:var(--soft);fill-opacity:.55' })))];
      const tile = (key, atX, atY, w, h) => {
        const rect = svg('rect.tile', { x: atX, y: atY, width: w, height: h });
        const caption = svg('text', { x: atX + w / 2, y: atY + h / 2 });
        caption.style.fontSize = Math.min(w, h) < 30 ? '11px' : '13px';
        nodes[key] = { rect, words: caption, small: Math.min(w, h) < 19 || (w < 34 && key[0] === 'S') };
        parts.push(rect, caption);
      };
      for (const i of range(tilesQ(p))) {
        tile(`Q${i}`, x.Q, y.S + i * tq, d, tq);
        tile(`O${i}`, x.O, y.S + i * tq, d, tq);
        if (state) tile(`ml${i}`, x.ml, y.S + i * tq, 12, tq);
        for (const j of range(tilesK(p))) tile(`S${i},${j}`, x.S + j * tk, y.S + i * tq, tk, tq);
      }
      for (const j of range(tilesK(p))) {
        tile(`K${j}`, x.S + j * tk, y.K, tk, d);
        tile(`V${j}`, x.S + j * tk, y.V, tk, d);
      }
      if (p.causal) parts.push(svg('path.mask', { d: `M${x.S} ${y.S}H${x.S + n}V${y.S + n}Z` }));
      const head = (caption, cx, cy, turn) => parts.push(svg('text.head',
        turn ? { transform: `translate(${cx} ${cy}) rotate(-90)` } : { x: cx, y: cy }, caption));
      for (const [atX, atY, w, h] of [[x.Q, y.S, d, n], [x.S, y.K, n, d], [x.S, y.S, n, n], [x.S, y.V, n, d], [x.O, y.S, d, n]])
        parts.push(svg('rect.frame', { x: atX, y: atY, width: w, height: h }));
      head('Kᵀ: keys across', x.S + n / 2, y.K - 11);
      head('Q: queries down', x.Q - 11, y.S + n / 2, true);
      head('O', x.O + d / 2, y.S - 11);
      head('V', x.S + n / 2, y.V + d + 11);
      if (state) head('m, ℓ', x.ml + 6, y.S - 11);
      picture.replaceChildren(...parts);
    }

    function show(k, announce) {
      const s = result.steps[k];
      words.setAttribute('aria-live', announce ? 'polite' : 'off');
      words.textContent = sentence(schedule, p, result, k);
      host.dataset.moved = s.moved;

      // S and P share the square: a tile shows what its step does, else the last of the two that was made.
      const past = result.steps.slice(0, k);
      const weights = new Set(past.flatMap((x) => [...x.written.keys()].filter((t) => t[0] === 'P')));
      const scores = new Set(past.flatMap((x) => [...x.made].filter((t) => t[0] === 'S')));
      for (const [key, node] of Object.entries(nodes)) {
        const asP = key.replace('S', 'P'), isScore = key[0] === 'S';
        const read = s.read.has(key) || s.read.has(asP), written = s.written.has(key) || s.written.has(asP), held = s.sram.has(key);
        const stored = schedule === 'naive' && isScore && (scores.has(key) || weights.has(asP));
        const kind = read && written ? 'both' : read ? 'read' : written ? 'written' : held ? 'held' : stored ? 'left'
          : isScore && scores.has(key) ? 'used' : '';
        node.rect.setAttribute('class', `tile ${kind}`);
        const asWeights = isScore && (weights.has(asP) || s.written.has(asP));
        const visibleName = kind && kind !== 'used';
        node.words.textContent = !node.small && visibleName && !key.startsWith('ml') ? label(asWeights ? asP : key) : '';
        node.words.setAttribute('class', { read: 'on', both: 'on', written: 'onamber' }[kind] || 'in');
        if (kind === 'both' || kind === 'read' || kind === 'written') node.rect.parentNode.insertBefore(node.rect, node.words);
      }
      picture.setAttribute('aria-label', `In SRAM: ${[...s.sram.keys()].slice(0, 12).map(label).join(', ') || 'nothing'}.`);

      // A row of tiles in kernel 2 is one chip.
      const inSram = [...s.sram];
      const list = s.kind === 'softmax' ? [['a row of S', s.sramBytes, true]]
        : inSram.map(([key, size]) => [label(key), size, s.read.has(key)]);
      sramSize.textContent = `${bytes(s.sramBytes)}, at most ${bytes(result.peak)}`;
      chips.replaceChildren(...list.map(([caption, size, fresh]) => el(fresh ? 'span.chip.fresh' : 'span.chip', {}, `${caption} · ${bytes(size)}`)));

      drawCounters(s);
      drawRace(s);
      drawCheck(s, k === result.steps.length - 1);
    }

    function drawCounters(s) {
      const amount = (x) => (x ? bytes(x) : '0');
      const cell = (t, way, mark) => {
        const now = s.counters[t][way], more = now - (s.before ? s.before[t][way] : 0);
        return el(more > 0 ? `td.${mark}` : 'td', {}, amount(now));
      };
      const sum = (way) => tensors.reduce((a, t) => a + s.counters[t][way], 0);
      counters.replaceChildren(
        el('tr', {}, el('th', {}, 'device memory'), el('th', {}, 'read'), el('th', {}, 'written')),
        ...tensors.map((t) => el('tr', { 'data-tensor': t }, el('td', {}, t === 'ml' ? 'm, ℓ' : t),
          cell(t, 'read', 'reads'), cell(t, 'written', 'writes'))),
        el('tr.total', {}, el('td', {}, 'together'), el('td', {}, amount(sum('read'))), el('td', {}, amount(sum('written')))));
    }

    function drawRace(s) {
      const totals = Object.fromEntries(Object.keys(schedules).map((key) => [key, formula(key, p)]));
      const longest = Math.max(...Object.values(totals).map((f) => f.total));
      const part = (kind, x, w) => el(`div.${kind}`, { style: `left:${(100 * x) / longest}%;width:${(100 * w) / longest}%` });
      race.replaceChildren(el('div', {}, 'Bytes moved between device memory (large, far away) and SRAM (small, on the chip): ',
        el('span', { style: 'color:var(--amber-ink)' }, 'S and P'), ', ', el('span', { style: 'color:var(--accent)' }, 'all others')),
        ...Object.entries(schedules).map(([key, caption]) => {
          const f = totals[key], c = s.counters, now = key === schedule;
          const sp = f.terms.filter((t) => t[2]).reduce((a, t) => a + t[1], 0);
          const movedScores = now ? c.S.read + c.S.written + c.P.read + c.P.written : 0, movedRest = now ? s.moved - movedScores : 0;
          return el(now ? 'div.lane.now' : 'div.lane', {},
            el('div.names', {}, el('span', {}, caption.replace(/[,(].*/, '')), el('span', {}, now ? `${bytes(s.moved)} of ${bytes(f.total)}` : bytes(f.total))),
            el('div.track', {}, part('rest.faint', 0, f.total - sp), part('scores.faint', f.total - sp, sp),
              part('rest', 0, movedRest), part('scores', f.total - sp, movedScores)));
        }));
    }

    function drawCheck(s, end) {
      const f = formula(schedule, p), n = (x) => x.toLocaleString('en-US');
      check.replaceChildren(
        el('tr', {}, el('th', {}, 'by the formula'), el('th', {}, 'bytes')),
        ...f.terms.map(([caption, value]) => el('tr', {}, el('td.wrap', {}, caption), el('td', {}, n(value)))),
        el('tr.total', {}, el('td', {}, 'together'), el('td', {}, n(f.total))),
        el('tr.total', {}, el('td', {}, `counted by the walk${end ? (s.moved === f.total ? ': the same' : ': not the same') : ' so far'}`),
          el('td', {}, n(s.moved))));
    }

    /** Gives the sentence the height of the longest one, so that nothing below it moves. */
    function reserve() {
      words.style.minHeight = '';
      let height = 0;
      for (const k of range(result.steps.length)) {
        words.textContent = sentence(schedule, p, result, k);
        height = Math.max(height, words.offsetHeight);
      }
      words.style.minHeight = `${height}px`;
    }

    // -- Settings --
    function load() {
      const [rowsQ, rowsK] = settings.tiles.value.split('x').map(Number);
      const larger = Math.max(rowsQ, rowsK);
      for (const option of settings.count.options) option.textContent = `${option.value * larger}`;
      p = { n: larger * settings.count.value, rowsQ, rowsK, d: Number(settings.d.value), causal: settings.causal.value === 'yes' };
      schedule = settings.schedule.value;
      result = walk(schedule, p);
      leftBehind.style.display = schedule === 'naive' ? '' : 'none';
      usedUp.style.display = schedule === 'naive' ? 'none' : '';
      hatch.style.visibility = p.causal ? '' : 'hidden';
      build();
      reserve();
      player.reset(result.steps.length, 0);
    }
    load();
    let width = left.clientWidth;
    new ResizeObserver(() => {
      if (left.clientWidth === width) return;
      width = left.clientWidth;
      build();
      reserve();
      player.again();
    }).observe(left);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.attention_tiles = figure;
  figure.model = { tensors, schedules, walk, formula, visible, visibleTiles, sentence };
})();
