// A tile of K and one of V in shared memory, and which pieces each product reads. Use:
// flashbookFigures.wgmma_tiles(host, img). wgmma_tiles_data.js has the pieces that the simulator's tensor cores read
// while the chapter's functions issue the products; `model` only computes an element's address.
(function () {
  'use strict';

  // ---- The model: 128 rows of 128 elements of 2 bytes, in panels of 64 columns ----

  const rows = 128, columns = 128, panelBytes = rows * 128;

  /** Returns the parts of an element's address, in bytes. */
  function address(row, column) {
    const inPanel = column % 64, piece = Math.floor(inPanel / 8), place = piece ^ row % 8;
    const parts = { panel: Math.floor(column / 64) * panelBytes, group: Math.floor(row / 8) * 1024, row: row % 8 * 128, place: place * 16, byte: inPanel % 8 * 2 };
    return { ...parts, piece, at: parts.panel + parts.group + parts.row + parts.place + parts.byte };
  }

  const matrices = {
    k: {
      words: 'K: the sum runs along a row', product: (row, column) => Math.floor(column / 16), start: (n) => (n >> 2) * panelBytes + (n & 3) * 32,
      why: 'Stride 1024: from 8 rows to the next 8. The next 16 columns are 32 bytes further, after four wgmmas in the next panel.', what: (n) => `columns ${16 * n} to ${16 * n + 15} of all 128 keys`,
    },
    v: {
      words: 'V: the sum runs down the rows', product: (row) => Math.floor(row / 16), start: (n) => n * 2048,
      why: 'Stride 1024: from 8 keys to the next 8. Leading 16384: from a panel to the next. The next 16 keys are 2048 bytes further.', what: (n) => `keys ${16 * n} to ${16 * n + 15} with all 128 columns`,
    },
  };

  // ---- The page ----

  const css = `
.fb-wgmma_tiles rect.piece{fill:var(--paper);stroke:var(--line);stroke-width:.5}
.fb-wgmma_tiles rect.read{fill:var(--accent);stroke:none}
.fb-wgmma_tiles rect.chosen{fill:var(--amber)}
.fb-wgmma_tiles rect.group{fill:none;stroke:var(--ink);stroke-width:1.5}
.fb-wgmma_tiles .zoom text.on{fill:var(--paper)}
.fb-wgmma_tiles svg.picture{cursor:crosshair;touch-action:manipulation}
.fb-wgmma_tiles td:first-child{white-space:normal!important}
.fb-wgmma_tiles table.ledger th:first-child{width:76%}
.fb-wgmma_tiles tr.sum td{font-weight:600}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.wgmma_tiles;
    let reads;
    const settings = kit.settings([
      { key: 'matrix', words: 'tile', value: 'k', grow: true, options: Object.entries(matrices).map(([key, { words }]) => [key, words]) },
      { key: 'row', words: 'row (key)', value: 11, options: kit.range(rows).map((i) => [i, `${i}`]) },
      { key: 'column', words: 'column', value: 80, options: kit.range(columns).map((i) => [i, `${i}`]) },
    ], load);
    const player = kit.player(show, 900);
    const tile = svg('svg.picture', { role: 'img', tabindex: 0 }), zoom = svg('svg.picture.zoom', { role: 'img' });
    const words = el('p.sentence', { 'aria-live': 'polite' }), why = el('p.quiet'), table = el('table.ledger');
    kit.frame(host, img, 'wgmma_tiles', css, 'A tile in shared memory and what each wgmma reads of it');
    host.replaceChildren(settings.root, el('div.halves', {},
      el('div', {}, el('p.quiet', {}, 'Two panels of 64 columns; a line is a row of 128 bytes, a box a piece of 16'), tile, player.root),
      el('div', {}, words, why, el('p.quiet', { style: 'margin-top:8px' }, 'The eight rows around the element: numbers are pieces of the row'), zoom, table)),
    el('p.try', {}, 'Try: say at which byte row 5, column 24 of K lies, then set it. Which wgmma reads it, and which one in V? Step through them: by how much does the ' +
      'descriptor’s address grow?'));

    const wide = 18, high = 3, gap = 16;
    const place = (piece) => [Math.floor(piece / 1024) * (8 * wide + gap) + piece % 8 * wide, Math.floor(piece % 1024 / 8) * high];

    function show(k, announce) {
      const row = Number(settings.get('row')), column = Number(settings.get('column')), a = address(row, column), chosen = Math.floor(a.at / 16);
      const lit = new Set(k ? reads[k - 1] : []), mine = matrices[settings.get('matrix')].product(row, column);
      const box = (piece, kind) => { const [x, y] = place(piece); return svg(`rect.piece${kind}`, { x: x + 1, y: y + 1, width: wide, height: high }); };
      const [x, y] = place(a.panel / 16 + a.group / 16);
      tile.setAttribute('viewBox', `0 0 ${16 * wide + gap + 2} ${rows * high + 2}`);
      tile.setAttribute('aria-label', k ? `wgmma ${k} of ${reads.length} reads ${lit.size} pieces` : 'No wgmma yet');
      tile.replaceChildren(svg('rect.piece', { x: 1, y: 1, width: 8 * wide, height: rows * high }), svg('rect.piece', { x: 8 * wide + gap + 1, y: 1, width: 8 * wide, height: rows * high }),
        ...[...lit].map((piece) => box(piece, '.read')), box(chosen, '.chosen'), svg('rect.group', { x: x + 1, y: y + 1, width: 8 * wide, height: 8 * high }));
      const cell = 36, first = (a.panel + a.group) / 16, parts = [];
      for (let r = 0; r < 8; ++r) {
        parts.push(svg('text.soft', { x: 0, y: r * 20 + 15 }, `row ${row - row % 8 + r}`));
        for (let p = 0; p < 8; ++p) {
          const piece = first + r * 8 + p, kind = piece === chosen ? '.chosen' : lit.has(piece) ? '.read' : '';
          parts.push(svg(`rect.piece${kind}`, { x: 52 + p * cell, y: r * 20 + 1, width: cell, height: 20 }),
            svg(kind === '.read' ? 'text.on.middle' : 'text.middle', { x: 52 + (p + 0.5) * cell, y: r * 20 + 15 }, p ^ r));
        }
      }
      kit.draw(zoom, 53 + 8 * cell, 162, `Piece ${a.piece} of row ${row} is at place ${a.piece ^ row % 8}`, parts);
      kit.say(words, sentence(k), announce);
      host.dataset.at = a.at;
      const line = (text, value, kind = 'tr') => el(kind, {}, el('td', {}, text), el('td', {}, value.toLocaleString('en-US')));
      table.replaceChildren(el('tr', {}, el('th', {}, `row ${row}, column ${column}`), el('th', {}, 'bytes')),
        line(`panel ${a.panel / panelBytes}`, a.panel), line(`group ${a.group / 1024} of 8 rows: strides`, a.group), line(`row ${row % 8} of the group`, a.row),
        line(`piece ${a.piece} is at place ${a.piece} ⊕ ${row % 8} = ${a.place / 16}`, a.place), line('within the piece', a.byte), line(`together; read by wgmma ${mine + 1}`, a.at, 'tr.sum'));
    }

    function sentence(k) {
      const m = matrices[settings.get('matrix')];
      return k === 0 ? 'TMA has written the tile. The tensor cores have read nothing yet.' :
        `Product ${k} of ${reads.length} reads ${m.what(k - 1)}: 256 pieces. Its descriptor begins ${m.start(k - 1).toLocaleString('en-US')} bytes into the tile.`;
    }

    tile.onclick = (event) => {
      const box = tile.getBoundingClientRect(), x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      const row = Math.max(0, Math.min(rows - 1, Math.floor(y * rows))), across = x * (16 * wide + gap);
      const panel = across > 8 * wide + gap / 2 ? 1 : 0, at = Math.max(0, Math.min(7, Math.floor((across - panel * (8 * wide + gap)) / wide)));
      settings.set('row', row);
      settings.set('column', panel * 64 + (at ^ row % 8) * 8);
      player.again();
    };
    kit.onArrows(tile, (down, right) => {
      for (const [key, by, last] of [['row', down, rows], ['column', right, columns]])
        settings.set(key, Math.max(0, Math.min(last - 1, Number(settings.get(key)) + by)));
      player.again();
    });

    function load(key) {
      if (key === 'row' || key === 'column') return player.again();
      reads = data[settings.get('matrix')];
      why.textContent = matrices[settings.get('matrix')].why;
      kit.reserve(words, kit.range(reads.length + 1).map(sentence));
      player.reset(reads.length + 1, 0);
    }
    kit.link(host, 'wgmma_tiles', settings, player, load);
    kit.onWidth(host, () => kit.reserve(words, kit.range(reads.length + 1).map(sentence)));
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.wgmma_tiles = figure;
  figure.model = { address, matrices };
})();
