// A warp's memory request: 32 lanes, their addresses, and the sectors moved. Use: flashbookFigures.sectors(host, img),
// in chapter 1 flashbookFigures.sectors_ch01. sectors_data.js contains the simulator's counts, in the traced
// mode, for chapter 1's kernels.
(function () {
  'use strict';

  // ---- The model ----

  const SECTOR = 32;
  /**
   * The loads: { words, row, at(lane, s), bytes(s), loads(s) }: a lane's address, the number of bytes that it loads, and how many such loads a
   * thread executes one after another. s has stride and offset in floats, e the bytes of an element, d the head dimension, c the load. `row` is
   * the bytes of a row of the matrix, or 0.
   */
  const patterns = {
    stride: { words: 'strided floats', at: (lane, s) => 4 * (lane * s.stride + s.offset), bytes: () => 4, row: () => 0, loads: () => 1 },
    textbook_k: {
      words: 'textbook_scores: K', kernel: 'textbook_scores', at: (lane, s) => (lane % 16 * s.d + s.c) * s.e, bytes: (s) => s.e, row: (s) => s.d * s.e, loads: (s) => s.d,
      why: 'Lane i reads key i mod 16, all in the same column: one element of each of 16 rows.',
    },
    textbook_q: {
      words: 'textbook_scores: Q', kernel: 'textbook_scores', at: (lane, s) => (Math.floor(lane / 16) * s.d + s.c) * s.e, bytes: (s) => s.e, row: (s) => s.d * s.e, loads: (s) => s.d,
      why: 'The two rows of 16 lanes are two queries: 16 lanes read the same element.',
    },
    textbook_softmax: {
      words: 'textbook_softmax: S', kernel: 'textbook_softmax', at: (lane, s) => 4 * (lane * 64 + s.c), bytes: () => 4, row: () => 256, loads: () => 64,
      why: 'Each lane walks along its own row of scores, here of 64 keys, so 32 rows are read at once.',
    },
    coalesced: {
      words: 'coalesced_scores: transposed K', kernel: 'coalesced_scores', at: (lane, s) => (lane + s.c * 64) * s.e, bytes: (s) => s.e, row: (s) => 64 * s.e, loads: (s) => s.d,
      why: 'A row of transposed K has one column of all keys, here 64: the 32 lanes read 32 neighbours.',
    },
    tiled: {
      words: 'tiled_scores: a row of Q or K', kernel: 'tiled_scores', at: (lane, s) => lane * s.e + s.c * s.d * s.e, bytes: (s) => s.e, row: (s) => s.d * s.e, loads: () => 16,
      why: 'The 32 lanes read 32 neighbours of one row. The tile then serves the whole block from shared memory.',
    },
  };

  const sectorsOf = (address, bytes) => {
    const first = Math.floor(address / SECTOR), last = Math.floor((address + bytes - 1) / SECTOR);
    return first === last ? [first] : [first, last];
  };

  /** Returns the requests of `lanes` lanes: { sectors: Map of a sector to its requested bytes, wanted, moved }. */
  function ask(name, s, lanes) {
    const p = patterns[name], used = new Map();
    for (let lane = 0; lane < lanes; ++lane) {
      const at = p.at(lane, s), bytes = p.bytes(s);
      for (const sector of sectorsOf(at, bytes)) if (!used.has(sector)) used.set(sector, new Set());
      for (let byte = at; byte < at + bytes; ++byte) used.get(Math.floor(byte / SECTOR)).add(byte % SECTOR);
    }
    const wanted = [...used.values()].reduce((sum, bytes) => sum + bytes.size, 0);
    return { sectors: used, wanted, moved: SECTOR * used.size };
  }

  // ---- The page ----

  const css = `
.fb-sectors .sector{fill:var(--paper);stroke:var(--line)}
.fb-sectors .moved{fill:var(--amber-fill);stroke:var(--amber)}
.fb-sectors .used{fill:var(--green-ink)}
.fb-sectors .lane{fill:var(--paper);stroke:var(--line)}
.fb-sectors .lane.done{fill:var(--blue-fill);stroke:var(--accent)}
.fb-sectors .lane.now{fill:var(--accent)}
.fb-sectors svg.picture text.on{fill:var(--paper)}
.fb-sectors table.ledger th:first-child{width:40%}
.fb-sectors table.ledger td:first-child{white-space:normal}
.fb-sectors tr.now td{font-weight:600}
.fb-sectors i.moved{background:var(--amber-fill);border-color:var(--amber)}
.fb-sectors i.used{background:var(--green-ink)}
`;

  function figure(host, img, first) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.sectors;
    let s, name;

    const settings = kit.settings([
      { key: 'pattern', words: 'the warp reads', value: first, grow: true, options: Object.entries(patterns).map(([key, p]) => [key, p.words]) },
      { key: 'stride', words: 'stride, in floats', value: 1, options: [1, 2, 3, 4, 8, 32].map((x) => [x, `${x}`]) },
      { key: 'offset', words: 'first float', value: 0, options: [0, 1, 4, 8].map((x) => [x, `${x}`]) },
      { key: 'type', words: 'type', value: 2, options: [[2, 'bf16'], [4, 'f32']] },
      { key: 'd', words: 'head dim d', value: 64, options: [[64, '64'], [128, '128']] },
      { key: 'c', words: 'load', value: 0, options: [0, 1, 2, 15, 16].map((x) => [x, `number ${x}`]) },
    ], load);
    const player = kit.player(show, 350);
    const lanes = svg('svg.picture', { role: 'img' }), memory = svg('svg.picture', { role: 'img' });
    const words = el('p.sentence', { 'aria-live': 'polite' }), why = el('p.quiet'), table = el('table.ledger');
    kit.frame(host, img, 'sectors', css, 'The sectors that one load of a warp moves');
    const left = el('div', {}, el('p.quiet', {}, 'Lanes 0 to 31'), lanes, el('p.quiet', {}, 'Memory: a box is a sector of 32 bytes'), memory,
      el('div.legend', {}, kit.legend('used', 'wanted'), kit.legend('moved', 'moved with it')));
    host.replaceChildren(settings.root, el('div.halves', {}, left, el('div', {}, words, why, player.root, table,
      el('p.quiet', {}, `Counted by the simulator's traced mode: one head, ${data.seqlen} queries and keys, d = ${data.head_dim}, bf16. KB count sectors, which may come from a cache.`))),
      el('p.try', {}, 'Try: which strides move 32 sectors? What does the first float cost at stride 1? Then compare textbook_scores with coalesced_scores: at which load ' +
        'does a warp of textbook_scores need new sectors of K?'));

    /** Step 0 shows the whole load, the others the lanes one by one. */
    function draw(step) {
      const k = step || 32;
      const width = Math.max(260, left.clientWidth || 400), box = width / 32;
      lanes.setAttribute('viewBox', `0 0 ${width} 22`);
      lanes.setAttribute('aria-label', `${k} of 32 lanes have requested`);
      lanes.replaceChildren(...kit.range(32).flatMap((lane) => [
        svg(`rect.lane${lane === step - 1 ? '.now' : lane < k ? '.done' : ''}`, { x: lane * box + 0.5, y: 1, width: box - 1, height: 18 }),
        ...(lane % 4 ? [] : [svg(lane === step - 1 ? 'text.on.middle' : 'text.middle', { x: (lane + 0.5) * box, y: 14, style: 'font-size:11px' }, lane)])]));
      const p = patterns[name], all = ask(name, s, 32), now = ask(name, s, k);
      const perRow = p.row(s) ? p.row(s) / SECTOR : 16, rows = Math.ceil((Math.max(...all.sectors.keys()) + 1) / perRow);
      const label = p.row(s) ? 44 : 0, cell = (width - label) / perRow, high = Math.max(7, Math.min(20, 260 / rows)), parts = [];
      for (let row = 0; row < rows; ++row) {
        if (label && high > 10) parts.push(svg('text.soft', { x: 0, y: row * high + high / 2 + 4, style: 'font-size:12px' }, `row ${row}`));
        for (let i = 0; i < perRow; ++i) {
          const x = label + i * cell + 1, y = row * high + 1, used = now.sectors.get(row * perRow + i);
          parts.push(svg(used ? 'rect.moved' : 'rect.sector', { x, y, width: cell - 2, height: high - 2 }));
          for (const byte of used || []) parts.push(svg('rect.used', { x: x + byte * (cell - 2) / 32, y, width: (cell - 2) / 32, height: high - 2 }));
        }
      }
      kit.draw(memory, width, rows * high + 2, `${now.sectors.size} sectors are moved`, parts);
      return now;
    }

    function sentence(k, now) {
      const sum = `${now.sectors.size} sector${now.sectors.size > 1 ? 's' : ''}, ${now.moved} bytes, for ${now.wanted} requested bytes: ${Math.round(100 * now.wanted / now.moved)} %.`;
      if (k === 0) return `One load instruction of a warp: 32 lanes, each with an address. Each sector that any of them touches is moved once: ${sum}`;
      const own = sectorsOf(patterns[name].at(k - 1, s), patterns[name].bytes(s)), before = ask(name, s, k - 1).sectors;
      return `Lane ${k - 1} requests byte ${patterns[name].at(k - 1, s)}: sector ${own[0]}, ${own.every((x) => before.has(x)) ? 'which is already moved' : 'a new one'}. So far ${sum}`;
    }

    function show(k, announce) {
      const now = draw(k);
      kit.say(words, sentence(k, now), announce);
      host.dataset.sectors = now.sectors.size;
    }

    function load() {
      name = settings.get('pattern');
      const kernel = patterns[name].kernel;
      for (const [key, applies] of [['stride', !kernel], ['offset', !kernel], ['type', kernel && kernel !== 'textbook_softmax'], ['d', kernel && kernel !== 'textbook_softmax'], ['c', kernel]])
        settings.nodes[key].parentNode.style.display = applies ? '' : 'none';
      s = { stride: Number(settings.get('stride')), offset: Number(settings.get('offset')), e: Number(settings.get('type')), d: Number(settings.get('d')), c: Number(settings.get('c')) };
      why.textContent = patterns[name].why || 'The address of lane i is 4 · (stride · i + first).';
      const kb = (sectors) => `${Number((sectors * SECTOR / 1024).toFixed(1)).toLocaleString('en-US')}`;
      table.replaceChildren(el('tr', {}, ...['kernel, line', 'loads', 'sectors each', 'KB'].map((t) => el('th', {}, t))),
        ...data.lines.map((line) => el(line.kernel === kernel ? 'tr.now' : 'tr', {}, el('td', {}, `${line.kernel} ${line.place}`),
          el('td', {}, line.requests.toLocaleString('en-US')), el('td', {}, line.sectors / line.requests), el('td', {}, kb(line.sectors)))));
      kit.reserve(words, kit.range(33).map((k) => sentence(k, ask(name, s, k || 32))));
      player.reset(33, 0);
    }
    kit.link(host, first === 'stride' ? 'sectors' : 'sectors_ch01', settings, player, load);
    kit.onWidth(left, () => {
      kit.reserve(words, kit.range(33).map((k) => sentence(k, ask(name, s, k || 32))));
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.sectors = (host, img) => figure(host, img, 'stride');
  window.flashbookFigures.sectors_ch01 = (host, img) => figure(host, img, 'textbook_k');
  window.flashbookFigures.sectors.model = { patterns, ask };
})();
