// Shared memory's banks: where a formula puts a tile's pieces, and the wavefronts of a warp's request. Use:
// flashbookFigures.swizzle(host, img). `model` counts like the simulator's traced mode
// (common/simulator/trace/counts.cpp); tests/docs/figures_test.py compares the two.
(function () {
  'use strict';

  // ---- The model ----

  const rows = 16;  // rows drawn
  const layouts = {
    plain: ['unpadded', 'row * rowBytes + piece * 16'],
    padded: ['padded by 16 bytes', 'row * (rowBytes + 16) + piece * 16'],
    swizzled: ['swizzled, as in the kernel', 'row * rowBytes + (piece ^ row % 8) * 16'],
    own: ['your formula', ''],
  };
  /** Returns a lane's access: its row, its first byte in the row, and the number of bytes. `step` counts 16 columns. */
  const accesses = {
    qk_plain: ['plain loads of Q and K, 4 bytes', (lane, step) => [Math.floor(lane / 4), 32 * step + 4 * (lane % 4), 4]],
    v_plain: ['plain loads of V, 2 bytes', (lane, step) => [2 * (lane % 4), 32 * step + 2 * Math.floor(lane / 4), 2]],
    ldmatrix: ['ldmatrix_x4 of Q', (lane, step) => [lane % 16, 32 * step + 16 * Math.floor(lane / 16), 16]],
    ldmatrix_k: ['ldmatrix_x4 of K', (lane, step) => [lane % 8 + 8 * Math.floor(lane / 16), 32 * step + 16 * (Math.floor(lane / 8) % 2), 16]],
    trans: ['ldmatrix_x4_trans of V', (lane, step) => [lane % 16, 32 * step + 16 * Math.floor(lane / 16), 16]],
    copy: ['cp.async writes the tile', (lane, step, rowBytes) => [Math.floor(16 * lane / rowBytes), 16 * lane % rowBytes, 16]],
  };

  /** Returns the function of a C formula of whole numbers, place(row, piece, rowBytes) in bytes; null if it is invalid. */
  function parse(text) {
    const tokens = text.match(/<<|>>|\d+|[A-Za-z_]\w*|\S/g) || [];
    const strength = { '|': 1, '^': 2, '&': 3, '<<': 4, '>>': 4, '+': 5, '-': 5, '*': 6, '/': 6, '%': 6 };
    const work = {
      '|': (a, b) => a | b, '^': (a, b) => a ^ b, '&': (a, b) => a & b, '<<': (a, b) => a << b, '>>': (a, b) => a >> b, '+': (a, b) => a + b,
      '-': (a, b) => a - b, '*': (a, b) => a * b, '/': (a, b) => Math.trunc(a / b), '%': (a, b) => a % b,
    };
    let at = 0;
    function operand() {
      const token = tokens[at++];
      if (token === '(') {
        const inner = expression(1);
        if (tokens[at++] !== ')') throw new Error('a parenthesis is open');
        return inner;
      }
      if (token === '-' || token === '~') {
        const inner = operand();
        return token === '-' ? (v) => -inner(v) : (v) => ~inner(v);
      }
      if (/^\d+$/.test(token)) return () => Number(token);
      if (['row', 'piece', 'rowBytes'].includes(token)) return (v) => v[token];
      throw new Error('neither a number nor a name');
    }
    function expression(least) {
      let left = operand();
      while (strength[tokens[at]] >= least) {
        const operator = tokens[at++], a = left, b = expression(strength[operator] + 1);
        left = (v) => work[operator](a(v), b(v));
      }
      return left;
    }
    try {
      const found = expression(1);
      return at === tokens.length ? (row, piece, rowBytes) => found({ row, piece, rowBytes }) : null;
    } catch {
      return null;
    }
  }

  /** Returns why a formula is not a layout of the tile; '' if it is one. */
  function fault(place, rowBytes) {
    if (!place) return 'This is not a formula in row, piece and rowBytes.';
    const owner = new Map();
    for (let row = 0; row < rows; ++row)
      for (let piece = 0; piece < rowBytes / 16; ++piece) {
        const at = place(row, piece, rowBytes), who = `piece ${piece} of row ${row}`;
        if (!Number.isInteger(at) || at < 0 || at > 65536) return `${who} would be at ${at}, which is not an address.`;
        if (at % 16) return `${who} would be at ${at}, which is not a multiple of 16.`;
        if (owner.has(at)) return `${owner.get(at)} and ${who} would be at the same address, ${at}.`;
        owner.set(at, who);
      }
    return '';
  }

  /** Returns the request of a warp: { bytes, lanes: [{ row, piece, address }] }. */
  function request(access, step, place, rowBytes) {
    let bytes;
    const lanes = Array.from({ length: 32 }, (_, lane) => {
      const [row, first, size] = accesses[access][1](lane, step, rowBytes);
      const inRow = first % rowBytes, piece = Math.floor(inRow / 16);
      bytes = size;
      return { row, piece, address: place(row, piece, rowBytes) + inRow % 16 };
    });
    return { bytes, lanes };
  }

  /** Returns the request's wavefronts in order, { first, lanes, words: [[bank, word], ...] }, and the minimum number of wavefronts. */
  function wavefronts({ bytes, lanes }) {
    const together = bytes > 8 ? 8 : bytes > 4 ? 16 : 32, waves = [];
    for (let first = 0; first < 32; first += together) {
      const banks = Array.from({ length: 32 }, () => []);
      for (const { address } of lanes.slice(first, first + together))
        for (let word = Math.floor(address / 4); word <= Math.floor((address + bytes - 1) / 4); ++word)
          if (!banks[word % 32].includes(word)) banks[word % 32].push(word);
      const count = Math.max(...banks.map((words) => words.length));
      for (let w = 0; w < count; ++w)
        waves.push({ first, lanes: together, words: banks.flatMap((words, bank) => (w < words.length ? [[bank, words[w]]] : [])) });
    }
    return { waves, fewest: 32 / together };
  }

  // ---- The page ----

  const css = `
.fb-swizzle .cell{fill:var(--paper);stroke:var(--line)}
.fb-swizzle .cell.asked{fill:var(--blue-fill);stroke:var(--accent)}
.fb-swizzle .word{fill:var(--accent)}
.fb-swizzle .word.done{fill-opacity:.45}
.fb-swizzle .word.todo{fill:var(--blue-fill);stroke:var(--accent);stroke-width:.7}
.fb-swizzle svg.picture text.on{fill:var(--paper)}
.fb-swizzle table.ledger th:first-child{width:52%}
.fb-swizzle table.ledger td:first-child{white-space:normal}
.fb-swizzle tr.now td{font-weight:600}
.fb-swizzle .bad{color:var(--red-ink)!important}
.fb-swizzle .good{color:var(--green-ink)!important}
.fb-swizzle p.sentence{min-height:2.9em}
.fb-swizzle p.sentence[aria-live]{min-height:4.4em}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit;
    let place = parse(layouts.plain[1]), asked, cost;

    const settings = kit.settings([
      { key: 'layout', words: 'a piece lies', value: 'plain', options: Object.entries(layouts).map(([key, [words]]) => [key, words]) },
      { key: 'bytes', words: 'bytes per row', value: 128, options: [64, 128, 256, 512].map((b) => [b, `${b}`]) },
      { key: 'access', words: 'the warp', value: 'ldmatrix', grow: true, options: Object.entries(accesses).map(([key, [words]]) => [key, words]) },
      { key: 'step', words: 'columns', value: 0, options: [0, 1, 2, 3].map((s) => [s, `${16 * s} to ${16 * s + 15}`]) },
      { key: 'formula', words: 'formula', value: layouts.plain[1], text: true, grow: true },
    ], (key) => {
      if (key === 'formula') settings.set('layout', Object.keys(layouts).find((k) => layouts[k][1] === settings.get('formula')) || 'own');
      load();
    });
    const player = kit.player(show, 900);
    const tile = svg('svg.picture', { role: 'img' }), banks = svg('svg.picture', { role: 'img' });
    const words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger'), complaint = el('p.sentence.bad');
    kit.frame(host, img, 'swizzle', css, 'The banks of a tile, and the wavefronts of a request');
    const left = el('div', {}, el('p.quiet', {}, 'Memory in lines of 128 bytes, one line for all 32 banks. A box is a piece of 16 bytes: row.piece'), tile);
    const right = el('div', {}, words, el('p.quiet', {}, 'Words of 4 bytes requested from each bank'), banks, player.root, complaint, table);
    host.replaceChildren(settings.root, el('div.halves', {}, left, right),
      el('p.try', {}, 'Try: ldmatrix unpadded, padded and swizzled; then the plain loads. Then write a formula of your own, in C’s notation: which ones ' +
        'are free of conflicts, and which of them need no more memory?'));

    const isAsked = (at) => asked.lanes.some((l) => Math.floor(l.address / 16) === Math.floor(at / 16));

    function drawTile(k) {
      const rowBytes = Number(settings.get('bytes')), pieces = rowBytes / 16, width = Math.max(260, left.clientWidth || 400);
      const where = [];
      for (let row = 0; row < rows; ++row) for (let piece = 0; piece < pieces; ++piece) where.push([row, piece, place(row, piece, rowBytes)]);
      const lines = Math.floor(Math.max(...where.map(([, , at]) => at)) / 128) + 1;
      const cell = (width - 2) / 8, high = Math.max(5, Math.min(20, 430 / lines)), top = 18, parts = [];
      for (let group = 0; group < 8; ++group) parts.push(svg('text.soft.middle', { x: cell * (group + 0.5), y: 12 }, cell < 46 ? `${4 * group}` : `${4 * group}–${4 * group + 3}`));
      for (const [row, piece, at] of where) {
        const x = 1 + (at % 128) / 16 * cell, y = top + Math.floor(at / 128) * high;
        parts.push(svg(isAsked(at) ? 'rect.cell.asked' : 'rect.cell', { x, y, width: cell, height: high }));
        if (high >= 13) parts.push(svg('text.middle', { x: x + cell / 2, y: y + high / 2 + 4.5, style: 'font-size:12px' }, `${row}.${piece}`));
      }
      // The words of the wavefronts so far, with the current one filled.
      cost.waves.slice(0, k).forEach((wave, i) => wave.words.forEach(([bank, word]) => parts.push(svg(i === k - 1 ? 'rect.word' : 'rect.word.done',
        { x: 1 + bank * cell / 4, y: top + Math.floor(word / 32) * high + high - Math.min(6, high), width: cell / 4, height: Math.min(6, high) }))));
      kit.draw(tile, width, top + lines * high + 2, `${rows} rows of ${rowBytes} bytes in ${lines} lines`, parts);
    }

    function drawBanks(k) {
      const width = Math.max(260, right.clientWidth || 400), cell = width / 32, parts = [];
      const groups = kit.range(32).map(() => []);
      cost.waves.forEach((wave, i) => wave.words.forEach(([bank]) => groups[bank].push(i)));
      const most = Math.max(...groups.map((g) => g.length)), high = Math.min(9, 120 / most), floor = 126;
      groups.forEach((waves, bank) => waves.forEach((wave, i) => parts.push(svg(`rect.word${wave === k - 1 ? '' : wave < k ? '.done' : '.todo'}`,
        { x: bank * cell + 0.5, y: floor - (i + 1) * high, width: cell - 1, height: high - 0.8 }))));
      for (let bank = 0; bank < 32; bank += 4) parts.push(svg('text.soft', { x: bank * cell, y: 142 }, bank));
      kit.draw(banks, width, 146, `The busiest bank has ${most} requested words`, parts);
    }

    function sentence(k) {
      const count = cost.waves.length, name = accesses[settings.get('access')][0];
      if (k === 0) return `One request of ${name}: ${count} ${count === 1 ? 'wavefront' : 'wavefronts'}, where ${cost.fewest} would suffice. ` +
        (count === cost.fewest ? 'No bank conflict.' : `A bank conflict: ${count / cost.fewest} times as long.`);
      const wave = cost.waves[k - 1], who = wave.lanes === 32 ? 'all lanes' : `lanes ${wave.first} to ${wave.first + wave.lanes - 1}`;
      return `Wavefront ${k} of ${count}, for ${who}: ${wave.words.length} of 32 banks answer, each with one word.`;
    }

    function show(k, announce) {
      drawTile(k);
      drawBanks(k);
      kit.say(words, sentence(k), announce);
      host.dataset.wavefronts = cost.waves.length;
    }

    /** Shows the current settings; a formula that is not a layout leaves the previous one in place. */
    function load() {
      if (settings.get('layout') !== 'own') settings.set('formula', layouts[settings.get('layout')][1]);
      const rowBytes = Number(settings.get('bytes')), wanted = parse(settings.get('formula')), wrong = fault(wanted, rowBytes);
      settings.nodes.formula.setAttribute('aria-invalid', Boolean(wrong));
      complaint.textContent = wrong;
      if (!wrong) place = wanted;
      else if (fault(place, rowBytes)) place = parse(layouts.plain[1]);
      const costOf = (access) => wavefronts(request(access, Number(settings.get('step')), place, rowBytes));
      asked = request(settings.get('access'), Number(settings.get('step')), place, rowBytes);
      cost = wavefronts(asked);
      table.replaceChildren(el('tr', {}, ...['a request of', 'wavefronts', 'at least'].map((t) => el('th', {}, t))),
        ...Object.entries(accesses).map(([access, [name]]) => {
          const c = costOf(access), good = c.waves.length === c.fewest;
          return el(access === settings.get('access') ? 'tr.now' : 'tr', { 'data-access': access }, el('td', {}, name),
            el(good ? 'td.good' : 'td.bad', {}, c.waves.length), el('td', {}, c.fewest));
        }),
        el('tr', {}, el('td', {}, `bytes of ${rows} rows`), el('td', {}, Math.max(...kit.range(rows * rowBytes / 16).map((i) =>
          place(Math.floor(16 * i / rowBytes), i % (rowBytes / 16), rowBytes))) + 16), el('td', {}, rows * rowBytes)));
      player.reset(cost.waves.length + 1, 0);
    }
    kit.link(host, 'swizzle', settings, player, load);
    kit.onWidth(left, () => player.again());
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.swizzle = figure;
  figure.model = { layouts, accesses, parse, fault, request, wavefronts };
})();
