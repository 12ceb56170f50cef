// Tiled attention: the contents of SRAM and the traffic. Use: flashbookFigures.attention_tiles_ch03(host, img), where
// host is an empty <div> and img the picture it replaces. `model` contains the walks and their counters, independent of
// the page; the rest draws them.
(function () {
  'use strict';

  // ---- The model: one head of attention, walked tile by tile ----
  //
  // A problem is { n, rowsQ, rowsK, d, causal }: n queries and n keys, tiles of rowsQ queries and of rowsK keys, head dimension d. Q, K, V, P
  // and O are bf16 in device memory, S, m and l float32. The counters ignore caches between SRAM and device memory: whatever is not in SRAM is read.

  const tensors = ['Q', 'K', 'V', 'S', 'P', 'O', 'ml'];
  const bf16 = 2, f32 = 4;

  const tilesQ = (p) => p.n / p.rowsQ;
  const tilesK = (p) => p.n / p.rowsK;
  /** Returns whether any query of tile i sees a key of tile j. */
  const visible = (p, i, j) => !p.causal || j * p.rowsK < (i + 1) * p.rowsQ;
  /** Returns whether the diagonal runs through tile (i, j), so that a part of the tile is masked. */
  const masked = (p, i, j) => p.causal && visible(p, i, j) && (j + 1) * p.rowsK - 1 > i * p.rowsQ;
  const range = (count) => [...Array(count).keys()];

  /** SRAM, with counters of its traffic. Every walk below moves tiles only through this. */
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
      /** Creates a tile in SRAM. */
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
      /** Ends the reader's current step, which contains everything since the previous one. */
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

  /** Returns the bytes of each kind of tile. */
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
        // SRAM holds one row of scores at a time, one row of each tile; its weights replace it.
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

    /** Keys outside, queries inside, as in chapter 3's step 1: Algorithm 1 of arXiv 2205.14135 with the unfinished O in float32. */
    keysOutside(p, sram) {
      const b = sizes(p);
      for (const j of range(tilesK(p))) {
        for (const i of range(tilesQ(p)).filter((x) => visible(p, x, j))) {
          sram.load(`K${j}`, b.K);
          sram.load(`V${j}`, b.V);
          sram.load(`Q${i}`, b.Q);
          const first = j === 0, last = j === tilesK(p) - 1 || !visible(p, i, j + 1);
          if (first) {
            sram.make(`O${i}`, b.sums);
            sram.make(`ml${i}`, b.ml);
          } else {
            sram.load(`O${i}`, b.sums);
            sram.load(`ml${i}`, b.ml);
          }
          sram.make(`S${i},${j}`, b.S);
          sram.store(`O${i}`, last ? b.O : b.sums);
          if (!last) sram.store(`ml${i}`, b.ml);
          sram.step({ kind: 'update', i, j, first, last });
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

  /** Returns { steps, counters, peak, moved }; step 0 is the empty start, and the last step shows the totals. */
  function walk(schedule, p) {
    const sram = machine();
    sram.step({ kind: 'start' });
    walks[schedule](p, sram);
    sram.step({ kind: 'end' });
    return sram.result();
  }

  /** Returns the bytes of S and P. */
  const ofScores = (c) => c.S.read + c.S.written + c.P.read + c.P.written;

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

  /** Returns the sentence for a step. */
  function sentence(schedule, p, result, k) {
    const s = result.steps[k], { i, j } = s;
    const cost = [...s.read.values(), ...s.written.values()].reduce((a, b) => a + b, 0);
    const diagonal = j !== undefined && s.kind !== 'values' && masked(p, i, j)
      ? ' The diagonal crosses this tile: scores beyond it are masked.' : '';
    switch (s.kind) {
      case 'start':
        return {
          naive: 'Three kernels, one after the other: scores S = Q Kᵀ, weights P = softmax(S), output O = P V. ' +
            'Each kernel passes its result to the next through device memory.',
          keysOutside: 'One kernel. The outer loop loads a tile of keys and values, the inner loop processes every query tile with it. ' +
            'S is used where it is computed.',
          queriesOutside: 'One kernel. The outer loop loads a query tile and keeps it, the inner loop streams the keys and values. ' +
            'S is used where it is computed.',
        }[schedule];
      case 'scores':
        return `Kernel 1, scores: the tile ${name('S', i, j)} = ${name('Q', i)} ${name('K', j)}ᵀ is computed and immediately written to device memory: ` +
          `${bytes(s.written.get(`S${i},${j}`))} out.${diagonal}`;
      case 'softmax':
        return `Kernel 2, softmax: each row of query tile ${i + 1} is read as scores, 4 bytes each, and written as weights, ` +
          `2 bytes each: ${bytes(cost)} moved.`;
      case 'values':
        return `Kernel 3, values: the weights ${name('P', i, j)} are read again, with ${name('V', j)}. ${name('O', i)} += ${name('P', i, j)} ${name('V', j)} in SRAM: ` +
          `${bytes(cost)} in.`;
      case 'store':
        return schedule === 'naive'
          ? `Kernel 3: query tile ${i + 1} has processed all its keys. ${name('O', i)} is written.`
          : `Query tile ${i + 1} has processed all its keys: ${name('O', i)} is divided by ℓ and written, once.`;
      case 'update':
        return `${s.read.has(`K${j}`) ? `Read ${name('K', j)} and ${name('V', j)}.` : `${name('K', j)} and ${name('V', j)} stay.`} ` +
          (s.first ? `${name('Q', i)} is read; ${name('O', i)}, m and ℓ start empty` : `${name('Q', i)} is read with its unfinished ${name('O', i)}, m and ℓ`) +
          (s.last ? `; ${name('O', i)} is finished and written` : '; all three are updated and written') + `: ${bytes(cost)} moved.${diagonal}`;
      case 'gather':
        return `${s.read.has(`Q${i}`) ? `Read ${name('Q', i)}, ${name('K', j)} and ${name('V', j)}` : `${name('Q', i)} stays; read ${name('K', j)} and ${name('V', j)}`}: ` +
          `${bytes(cost)} in. ${name('S', i, j)} is computed, turned into weights and used in SRAM, where ${name('O', i)}, m and ℓ stay as well.${diagonal}`;
      default: {
        const c = result.counters, scores = ofScores(c);
        return {
          naive: `Done: ${bytes(result.moved)} moved, ${bytes(scores)} of it for S and P: ${Math.round((100 * scores) / result.moved)}\u00a0%. ` +
            `They fill ${bytes(c.S.written + c.P.written)} of device memory, and grow with the square of N.`,
          keysOutside: `Done: ${bytes(result.moved)} moved, none of it for S or P. K and V were read once, but Q and the unfinished O, m and ℓ ` +
            'were read again for every tile of keys, and O, m and ℓ were also written again.',
          queriesOutside: `Done: ${bytes(result.moved)} moved: the traffic of the naive kernels without S and P. ` +
            'K and V were read once for every query tile, Q was read and O written once.',
        }[schedule];
      }
    }
  }

  // ---- The page ----

  const css = `
.fb-attention_tiles svg{display:block;width:100%;overflow:visible}
.fb-attention_tiles svg text{font:13px var(--font-family,system-ui,sans-serif);fill:var(--soft);text-anchor:middle;dominant-baseline:central}
.fb-attention_tiles svg text.head{fill:var(--ink)}
.fb-attention_tiles .tile{fill:transparent;stroke:var(--line);stroke-width:1}
.fb-attention_tiles .back{fill:var(--paper)}
.fb-attention_tiles .left{fill:var(--amber);fill-opacity:.22}
.fb-attention_tiles .used{fill:var(--soft);fill-opacity:.16}
.fb-attention_tiles .held{fill:var(--accent);fill-opacity:.42;stroke:var(--accent)}
.fb-attention_tiles .read{fill:var(--accent);fill-opacity:1;stroke:var(--accent)}
.fb-attention_tiles .written{fill:var(--amber);fill-opacity:1;stroke:var(--amber)}
.fb-attention_tiles .both{fill:var(--accent);fill-opacity:1;stroke:var(--amber);stroke-width:3.5}
.fb-attention_tiles svg text.on{fill:var(--paper)}
.fb-attention_tiles svg text.onamber{fill:#1c1d1f}
.fb-attention_tiles svg text.in{fill:var(--ink)}
.fb-attention_tiles .mask{fill:url(#fb-attention_tiles-hatch);stroke:none;pointer-events:none}
.fb-attention_tiles .frame{fill:none;stroke:var(--soft)}
.fb-attention_tiles .legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft);margin-top:10px}
.fb-attention_tiles .legend svg{display:inline-block;width:14px;height:14px;vertical-align:-2px;margin-right:5px}
.fb-attention_tiles .sram{margin-top:8px;border-top:1px solid var(--line);padding-top:8px}
.fb-attention_tiles .chips{display:flex;flex-wrap:wrap;gap:4px;height:58px;align-content:start;overflow:hidden;margin-top:4px}
.fb-attention_tiles .chip{font-size:13px;line-height:18px;padding:3px 7px;border-radius:4px;border:1px solid var(--accent);white-space:nowrap}
.fb-attention_tiles .chip.fresh{background:var(--accent);color:var(--paper)}
.fb-attention_tiles table.ledger .reads{color:var(--accent);font-weight:600}
.fb-attention_tiles table.ledger .writes{color:var(--amber-ink);font-weight:600}
.fb-attention_tiles table.ledger .total td{font-weight:600;border-bottom:0}
.fb-attention_tiles .race{margin-top:14px}
.fb-attention_tiles .lane{margin-top:6px;font-size:13px;color:var(--soft)}
.fb-attention_tiles .lane.now{color:var(--ink)}
.fb-attention_tiles .lane .names{display:flex;justify-content:space-between;gap:8px}
.fb-attention_tiles .track{position:relative;height:12px}
.fb-attention_tiles .track>div{position:absolute;top:0;bottom:0}
.fb-attention_tiles .track .faint{opacity:.28}
.fb-attention_tiles .scores{background:var(--amber)}
.fb-attention_tiles .rest{background:var(--accent)}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit;
    let p, schedule, result, totals;

    const settings = kit.settings([
      { key: 'schedule', words: 'order of the loops', grow: true, value: 'keysOutside', options: Object.entries(schedules) },
      { key: 'causal', words: 'mask', value: 'no', options: [['no', 'none'], ['yes', 'causal']] },
      { key: 'tiles', words: 'tile Bq × Bk', value: '128x128', options: ['128x128', '128x64', '64x128', '64x64'].map((v) => [v, v.replace('x', ' × ')]) },
      { key: 'count', words: 'queries, keys: N', value: 4, options: [2, 4, 6, 8].map((v) => [v, '']) },
      { key: 'd', words: 'head dim d', value: 128, options: [64, 128, 256].map((v) => [v, `${v}`]) },
    ], load);
    const picture = svg('svg', { role: 'img' });
    const player = kit.player(show, (last) => (last < 30 ? 1100 : last < 60 ? 600 : 250));
    const words = el('p.sentence', { 'aria-live': 'polite' });
    const sramSize = el('span'), chips = el('div.chips');
    const counters = el('table.ledger'), race = el('div.race');
    const swatch = (kind, caption) => el('span', {},
      svg('svg', { viewBox: '0 0 14 14' }, svg(`rect.tile.${kind}`, { x: 1, y: 1, width: 12, height: 12 })), caption);
    const leftBehind = swatch('left', 'left in device memory'), usedUp = swatch('used', 'used up, gone');
    const hatch = swatch('mask', 'masked: skipped');
    kit.frame(host, img, 'attention_tiles', css, 'Tiled attention, step by step');
    const left = el('div', {}, picture,
      el('p.quiet', { style: 'text-align:center;margin-top:6px' }, 'Middle: S = Q Kᵀ, N × N. Drawn to scale.'),
      el('div.legend', {}, swatch('read', 'read in this step'), swatch('held', 'in SRAM, not moved'),
        swatch('written', 'written in this step'), swatch('both', 'read and written'), leftBehind, usedUp, hatch),
      player.root);
    host.replaceChildren(
      settings.root,
      el('div.halves', {}, left, el('div', {}, words,
        el('div.sram', {}, 'In SRAM now: ', sramSize, chips), counters)),
      race,
      el('p.quiet', { style: 'margin-top:10px' }, 'One head, bf16; scores, m and ℓ in float32. SRAM is shared memory and registers of one ' +
        'multiprocessor: 228 and 256 KB on an H100 or H200. The counts ignore the L2 cache. Tiles that the diagonal crosses count in full, the unfinished O as float32. ' +
        'The log-sum-exp, 4 bytes per query, is not counted. 1 KB = 1024 bytes.'));

    // -- The picture: Q to the left of S, K above it, V below it, O to its right, drawn to scale --
    let nodes = {};

    function build() {
      const width = Math.max(260, left.clientWidth || 460);
      const gap = 8, top = 22, side = 20, foot = 22;
      const state = schedule === 'queriesOutside' ? 0 : schedule === 'keysOutside' ? 30 : 0;  // space for m and l in device memory
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
        { id: 'fb-attention_tiles-hatch', width: 6, height: 6, patternUnits: 'userSpaceOnUse', patternTransform: 'rotate(45)' },
        svg('rect', { width: 1.3, height: 6, style: 'fill:var(--soft);fill-opacity:.55' })))];
      const tile = (key, atX, atY, w, h) => {
        const rect = svg('rect.tile', { x: atX, y: atY, width: w, height: h });
        nodes[key] = { rect, kind: '' };
        parts.push(rect);
        if (Math.min(w, h) < 19 || (w < 34 && key[0] === 'S')) return;
        const caption = nodes[key].words = svg('text', { x: atX + w / 2, y: atY + h / 2 });
        caption.style.fontSize = Math.min(w, h) < 30 ? '11px' : '13px';
        parts.push(caption);
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
      if (state) head('m, ℓ', x.ml + 6, y.S + n + 11);
      picture.replaceChildren(...parts);
    }

    function show(k, announce) {
      const s = result.steps[k];
      kit.say(words, sentence(schedule, p, result, k), announce);
      host.dataset.moved = s.moved;

      // S and P share the square: a tile shows what its step does, otherwise whichever of the two was written last.
      const past = result.steps.slice(0, k);
      const weights = new Set(past.flatMap((x) => [...x.written.keys()].filter((t) => t[0] === 'P')));
      const scores = new Set(past.flatMap((x) => [...x.made].filter((t) => t[0] === 'S')));
      for (const [key, node] of Object.entries(nodes)) {
        const asP = key.replace('S', 'P'), isScore = key[0] === 'S';
        const read = s.read.has(key) || s.read.has(asP), written = s.written.has(key) || s.written.has(asP), held = s.sram.has(key);
        const stored = schedule === 'naive' && isScore && (scores.has(key) || weights.has(asP));
        const kind = read && written ? 'both' : read ? 'read' : written ? 'written' : held ? 'held' : stored ? 'left'
          : isScore && scores.has(key) ? 'used' : '';
        if (node.kind !== kind) node.rect.setAttribute('class', `tile ${kind}`);
        node.kind = kind;
        if (!node.words) continue;
        const asWeights = isScore && (weights.has(asP) || s.written.has(asP));
        const visibleName = kind && kind !== 'used';
        node.words.textContent = visibleName && !key.startsWith('ml') ? label(asWeights ? asP : key) : '';
        node.words.setAttribute('class', { read: 'on', both: 'on', written: 'onamber' }[kind] || 'in');
        if (kind === 'both' || kind === 'read' || kind === 'written') node.rect.parentNode.insertBefore(node.rect, node.words);
      }
      picture.setAttribute('aria-label', `In SRAM: ${[...s.sram.keys()].slice(0, 12).map(label).join(', ') || 'nothing'}.`);

      // In kernel 2 a row of tiles is one chip.
      const inSram = [...s.sram];
      const list = s.kind === 'softmax' ? [['a row of S', s.sramBytes, true]]
        : inSram.map(([key, size]) => [label(key), size, s.read.has(key)]);
      sramSize.textContent = `${bytes(s.sramBytes)}, at most ${bytes(result.peak)}`;
      chips.replaceChildren(...list.map(([caption, size, fresh]) => el(fresh ? 'span.chip.fresh' : 'span.chip', {}, `${caption} · ${bytes(size)}`)));

      drawCounters(s);
      drawRace(s);
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
      const longest = Math.max(...Object.values(totals).map((one) => one.moved));
      const part = (kind, x, w) => el(`div.${kind}`, { style: `left:${(100 * x) / longest}%;width:${(100 * w) / longest}%` });
      race.replaceChildren(el('div', {}, 'Bytes moved between device memory (large, far away) and SRAM (small, on the chip): ',
        el('span', { style: 'color:var(--amber-ink)' }, 'S and P'), ', ', el('span', { style: 'color:var(--accent)' }, 'all others')),
        ...Object.entries(schedules).map(([key, caption]) => {
          const total = totals[key].moved, now = key === schedule;
          const sp = ofScores(totals[key].counters), movedScores = now ? ofScores(s.counters) : 0, movedRest = now ? s.moved - movedScores : 0;
          return el(now ? 'div.lane.now' : 'div.lane', {},
            el('div.names', {}, el('span', {}, caption.replace(/[,(].*/, '')), el('span', {}, now ? `${bytes(s.moved)} of ${bytes(total)}` : bytes(total))),
            el('div.track', {}, part('rest.faint', 0, total - sp), part('scores.faint', total - sp, sp),
              part('rest', 0, movedRest), part('scores', total - sp, movedScores)));
        }));
    }

    const reserve = () => kit.reserve(words, result.steps.map((_, k) => sentence(schedule, p, result, k)));

    // -- Settings --
    function load() {
      const [rowsQ, rowsK] = settings.get('tiles').split('x').map(Number);
      const larger = Math.max(rowsQ, rowsK);
      for (const option of settings.nodes.count.options) option.textContent = `${option.value * larger}`;
      p = { n: larger * Number(settings.get('count')), rowsQ, rowsK, d: Number(settings.get('d')), causal: settings.get('causal') === 'yes' };
      schedule = settings.get('schedule');
      totals = Object.fromEntries(Object.keys(schedules).map((key) => [key, walk(key, p)]));
      result = totals[schedule];
      leftBehind.style.display = schedule === 'naive' ? '' : 'none';
      usedUp.style.display = schedule === 'naive' ? 'none' : '';
      hatch.style.visibility = p.causal ? '' : 'hidden';
      build();
      reserve();
      player.reset(result.steps.length, 0);
    }
    kit.link(host, 'attention_tiles_ch03', settings, player, load);
    kit.onWidth(left, () => {
      build();
      reserve();
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.attention_tiles_ch03 = figure;
  window.flashbookFigures.attention_tiles_ch03.model = { walk };
})();
