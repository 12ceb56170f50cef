// A mask and its tiles. Use: flashbookFigures.mask_tiles(host, img). mask_tiles_data.js has the classes that chapter
// 9's policies return; `model` counts them.
(function () {
  'use strict';

  const words = { '.': 'skipped', '+': 'partial', '#': 'full' };

  /** Returns, for the tile rows `rows`, the tiles by class, and the numbers of visible pairs and of pairs that the kernel multiplies. */
  function count(data, mask, rows) {
    const side = mask.classes.length, sum = { '.': 0, '+': 0, '#': 0, visible: 0, multiplied: 0 };
    for (const row of rows)
      for (let tile = 0; tile < side; ++tile) {
        const kind = mask.classes[row][tile];
        ++sum[kind];
        sum.visible += mask.pairs[row * side + tile];
        if (kind !== '.') sum.multiplied += data.tile * data.tile;
      }
    return sum;
  }

  const css = `
.fb-mask_tiles rect.tile{stroke:var(--line);fill:var(--paper)}
.fb-mask_tiles rect.full{fill:var(--accent)}
.fb-mask_tiles rect.partial{fill:var(--amber)}
.fb-mask_tiles rect.ahead{fill-opacity:.35}
.fb-mask_tiles rect.mark{fill:none;stroke:var(--ink);stroke-width:2.5;pointer-events:none}
.fb-mask_tiles svg.picture{max-width:460px;margin:0 auto;touch-action:manipulation;cursor:crosshair}
.fb-mask_tiles i.full{background:var(--accent)}
.fb-mask_tiles i.partial{background:var(--amber)}
.fb-mask_tiles table.ledger th:first-child{width:44%}
.fb-mask_tiles p.speed{min-height:3em;margin:8px 0 0}
.fb-mask_tiles p.one{min-height:4.4em;margin-top:8px}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.mask_tiles, side = data.length / data.tile;
    let mask, at = { row: side - 1, tile: 0 };

    const settings = kit.settings([
      { key: 'mask', words: 'mask', value: 'causal', grow: true, options: data.masks.map((m) => [m.name, m.words]) },
      { key: 'd', words: 'head dim d', value: 128, options: [64, 128, 256].map((d) => [d, `${d}`]) },
    ], load);
    const player = kit.player(show, 600);
    const picture = svg('svg.picture', { role: 'img', tabindex: 0, viewBox: `0 0 ${side * 20 + 2} ${side * 20 + 2}` });
    const sentence = el('p.sentence', { 'aria-live': 'polite' }), one = el('p.quiet.one', { 'aria-live': 'polite' }), speed = el('p.quiet.speed'), table = el('table.ledger');
    kit.frame(host, img, 'mask_tiles', css, 'A mask and the classes of its tiles');
    host.replaceChildren(settings.root, el('div.halves', {},
      el('div', {}, el('p.quiet', {}, `Keys run to the right, queries down, ${data.length} of each; a box is a tile of ${data.tile} by ${data.tile} pairs.`), picture,
        el('div.legend', {}, kit.legend('full', 'full: no mask needed'), kit.legend('partial', 'partial: masked by pair'), kit.legend('skipped', 'skipped: not loaded')), player.root),
      el('div', {}, sentence, table, speed, one)),
    el('p.try', {}, 'Try: which masks multiply more pairs than they show, and why? Point at a partial tile (or use the arrow keys): is it cut by an ' +
      'edge, or was the policy merely conservative?'));

    const span = (tile) => `${tile * data.tile} to ${(tile + 1) * data.tile - 1}`;

    function point(row, tile) {
      at = { row: Math.max(0, Math.min(side - 1, row)), tile: Math.max(0, Math.min(side - 1, tile)) };
      const kind = mask.classes[at.row][at.tile], pairs = mask.pairs[at.row * side + at.tile], all = data.tile * data.tile;
      const said = kind !== '+' ? '' : pairs === 0 ? ' None of its pairs is visible: the policy is conservative.' : pairs === all ? ' All are visible: the policy is conservative.' : '';
      one.textContent = `Queries ${span(at.row)}, keys ${span(at.tile)}: ${words[kind]}. ${pairs.toLocaleString('en-US')} of ${all.toLocaleString('en-US')} pairs are visible.${said}`;
      mark.setAttribute('x', at.tile * 20 + 1);
      mark.setAttribute('y', at.row * 20 + 1);
    }
    const mark = svg('rect.mark', { width: 20, height: 20 });
    const fromEvent = (event) => {
      const box = picture.getBoundingClientRect();
      point(Math.floor((event.clientY - box.top) / box.height * side), Math.floor((event.clientX - box.left) / box.width * side));
    };
    picture.onpointermove = picture.onclick = fromEvent;
    kit.onArrows(picture, (down, right) => point(at.row + down, at.tile + right));

    /** Step 0 shows all tiles; step k the lists of the first k tiles of queries, as a producer makes them. */
    function show(k, announce) {
      const rows = k ? kit.range(k) : kit.range(side);
      picture.replaceChildren(...mask.classes.flatMap((classes, row) => [...classes].map((kind, tile) =>
        svg(`rect.tile.${words[kind]}${k && row >= k ? '.ahead' : ''}`, { x: tile * 20 + 2, y: row * 20 + 2, width: 18, height: 18 }))), mark);
      const sum = count(data, mask, rows), every = count(data, mask, kit.range(side)), d = Number(settings.get('d'));
      picture.setAttribute('aria-label', `${sum['#']} tiles are full, ${sum['+']} partial, ${sum['.']} skipped`);
      kit.say(sentence, sayOf(k), announce);
      const n = (x) => x.toLocaleString('en-US'), gflop = (pairs) => (4 * d * pairs / 1e9).toFixed(2);
      const share = (pairs) => `${(100 * pairs / (data.length * data.length)).toFixed(1)} %`;
      const row = (...cells) => el('tr', {}, ...cells.map((c) => el('td', {}, c)));
      table.replaceChildren(el('tr', {}, ...['of one head', 'so far', 'in all'].map((t) => el('th', {}, t))),
        ...['#', '+', '.'].map((kind) => row(`tiles ${words[kind]}`, n(sum[kind]), n(every[kind]))),
        row('GFLOP of visible pairs', gflop(sum.visible), gflop(every.visible)), row('GFLOP multiplied', gflop(sum.multiplied), gflop(every.multiplied)),
        row('of all pairs visible', share(sum.visible), share(every.visible)), row('of all pairs multiplied', share(sum.multiplied), share(every.multiplied)));
      host.dataset.tiles = [sum['#'], sum['+'], sum['.']].join();
      point(at.row, at.tile);
    }

    /** The rate that an H200 reached under a mask of the same kind. */
    function measuredOf() {
      const rates = mask.measured, window = ', a causal window of 1024', like = { window1024: window, sinks: window, prefix: ', causal, a prefix of 2048', causal_documents: ', eight causal documents' }[mask.name] || '';
      if (!rates) return 'No mask of this kind was measured.';
      return `Measured on an H200, 8192 tokens${like}, d 128: step 3 ${rates.ours} TFLOP/s of visible pairs, FlexAttention ${rates.flex}.`;
    }

    function sayOf(k) {
      const every = count(data, mask, kit.range(side)), extra = every.multiplied / every.visible;
      if (k === 0) return `Of ${side * side} tiles ${every['.']} are skipped, ${every['#']} full and ${every['+']} partial. The kernel multiplies ${extra.toFixed(2)} times the visible pairs.`;
      const list = [...mask.classes[k - 1]].flatMap((kind, tile) => (kind === '.' ? [] : [`${tile}${kind === '+' ? '*' : ''}`]));
      return `Tile of queries ${k - 1}: the producer loads ${list.length} of ${side} tiles of keys: ${list.join(' ')}. Tiles with * are masked by pair.`;
    }

    function load() {
      mask = data.masks.find((m) => m.name === settings.get('mask'));
      speed.textContent = measuredOf();
      kit.reserve(sentence, kit.range(side + 1).map(sayOf));
      player.reset(side + 1, 0);
    }
    kit.link(host, 'mask_tiles', settings, player, load);
    kit.onWidth(host, () => {
      kit.reserve(sentence, kit.range(side + 1).map(sayOf));
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.mask_tiles = figure;
  figure.model = { count };
})();
