// The thread that holds an element of the scores, and the element's place in P, the left operand of the next product.
// Use: flashbookFigures.mma_fragments(host, img), .wgmma_fragments or .fp8_keys. fragments_data.js has the layouts of
// common/ptx and chapter 6's order of keys.
(function () {
  'use strict';

  // ---- The model: 16 columns of scores, 8 elements per thread ----

  const instructions = {
    mma: { words: 'mma.sync m16n8k16', rows: 16, float: (i) => `float c${i % 4} of product ${i / 4 | 0}` },
    wgmma: { words: 'wgmma m64, 16 bits', rows: 64, float: (i) => `float ${i}` },
    fp8: { words: 'wgmma m64, FP8', rows: 64, float: (i) => `float ${i}` },
  };

  /** Returns a function (row, column) -> { thread, i } that finds the holder of an element of `scores` or of the `operand`. */
  function holders(data, instruction, matrix) {
    const places = data[instruction][matrix], at = new Map();
    for (let n = 0; n < places.length / 2; ++n) at.set(`${places[2 * n]},${places[2 * n + 1]}`, { thread: n >> 3, i: n & 7 });
    return (row, column) => {  // a warp has 16 rows
      const { thread, i } = at.get(`${row % 16},${column}`);
      return { thread: thread + (row >> 4) * 32, i };
    };
  }

  /** Returns the key, of 16, in each column of P: in FP8, keys may be in the order in which the threads hold them. */
  const keysOf = (data, instruction, order) => (instruction === 'fp8' && order === 'packed' ? data.fp8.keys : [...Array(16).keys()]);

  // ---- The page ----

  const css = `
.fb-fragments rect.cell{fill:var(--paper);stroke:var(--line)}
.fb-fragments rect.quad{fill:var(--blue-fill)}
.fb-fragments rect.own{fill:var(--green-fill);stroke:var(--green-ink)}
.fb-fragments rect.chosen{fill:var(--amber)}
.fb-fragments svg.picture{cursor:crosshair;touch-action:manipulation}
.fb-fragments svg.picture text{font-size:12px}
.fb-fragments i.quad{background:var(--blue-fill)}
.fb-fragments i.own{background:var(--green-fill)}
.fb-fragments i.chosen{background:var(--amber)}
.fb-fragments .halves>*{flex-basis:280px}
.fb-fragments p.sentence{min-height:5.8em}
`;

  function figure(host, img, name, first) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.fragments;
    const settings = kit.settings([
      { key: 'instruction', words: 'instruction', value: first, grow: true, options: Object.entries(instructions).map(([key, { words }]) => [key, words]) },
      { key: 'order', words: 'keys in P', value: 'packed', options: [['packed', 'as chapter 6 packs them'], ['plain', 'in order']] },
      { key: 'row', words: 'row', value: 1, options: kit.range(64).map((i) => [i, `${i}`]) },
      { key: 'column', words: 'column', value: 4, options: kit.range(16).map((i) => [i, `${i}`]) },
    ], load);
    const words = el('p.sentence', { 'aria-live': 'polite' }), caption = el('p.quiet');
    const draws = { scores: svg('svg.picture', { role: 'img', tabindex: 0 }), operand: svg('svg.picture', { role: 'img', tabindex: 0 }) };
    kit.frame(host, img, 'fragments', css, 'Where an element of the scores is');
    host.replaceChildren(settings.root, words, el('div.halves', { style: 'margin-top:10px' },
      el('div', {}, el('p.quiet', {}, 'S, as the product leaves it: float32'), draws.scores),
      el('div', {}, caption, draws.operand)),
    el('div.legend', {}, kit.legend('chosen', 'the element'), kit.legend('own', 'what its thread holds'), kit.legend('quad', 'the four lanes of its row'),
      el('span', {}, 'numbers: lanes')),
    el('p.try', {}, 'Try: point at an element of S, or walk with the arrow keys. Does any element move to another thread on the way to P? Which lanes must combine their values for the ' +
      'maximum of a row? With FP8: leave the keys in order and see which thread would have to send what to which.'));

    function draw(matrix, chosen) {
      const where = holders(data, settings.get('instruction'), matrix), keys = matrix === 'scores' ? kit.range(16) : keysNow(), from = chosen.row - chosen.row % 16, cell = 20, left = 24, parts = [], lanes = [];
      const own = where(chosen.row, keys.indexOf(chosen.column)).thread;
      for (let column = 0; column < 16; ++column) parts.push(svg('text.soft.middle', { x: left + (column + 0.5) * cell, y: 12 }, keys[column]));
      for (let row = 0; row < 16; ++row) {
        parts.push(svg('text.soft', { x: 0, y: 18 + row * cell + 14 }, from + row));
        for (let column = 0; column < 16; ++column) {
          const { thread } = where(from + row, column);
          const kind = from + row === chosen.row && keys[column] === chosen.column ? '.chosen' : thread === own ? '.own' : thread >> 2 === own >> 2 ? '.quad' : '';
          parts.push(svg(`rect.cell${kind}`, { x: left + column * cell, y: 18 + row * cell, width: cell, height: cell }));
          if (column % 2 === 0) lanes.push(svg('text.middle', { x: left + (column + 1) * cell, y: 18 + row * cell + 14, 'pointer-events': 'none' }, thread % 32));
        }
      }
      kit.draw(draws[matrix], left + 16 * cell + 1, 18 + 16 * cell + 1, `Thread ${own} holds the element`, [...parts, ...lanes]);
    }

    const keysNow = () => keysOf(data, settings.get('instruction'), settings.get('order'));

    function choose(row, column) {
      const { rows } = instructions[settings.get('instruction')];
      settings.set('row', Math.max(0, Math.min(rows - 1, row)));
      settings.set('column', Math.max(0, Math.min(15, column)));
      load();
    }
    for (const [matrix, node] of Object.entries(draws)) {
      const at = (column) => (matrix === 'scores' ? column : keysNow()[Math.max(0, Math.min(15, column))]);
      node.onpointermove = node.onclick = (event) => {
        const box = node.getBoundingClientRect(), unit = box.width / 345, now = Number(settings.get('row'));
        choose(now - now % 16 + Math.max(0, Math.min(15, Math.floor(((event.clientY - box.top) / unit - 18) / 20))), at(Math.floor(((event.clientX - box.left) / unit - 24) / 20)));
      };
      kit.onArrows(node, (down, right) => choose(Number(settings.get('row')) + down, Number(settings.get('column')) + right));
    }

    function load() {
      const key = settings.get('instruction'), { rows, float } = instructions[key];
      for (const option of settings.nodes.row.options) option.hidden = option.disabled = option.value >= rows;
      if (settings.get('row') >= rows) settings.set('row', settings.get('row') % rows);
      const chosen = { row: Number(settings.get('row')), column: Number(settings.get('column')) };
      const s = holders(data, key, 'scores')(chosen.row, chosen.column), place = keysNow().indexOf(chosen.column), p = holders(data, key, 'operand')(chosen.row, place);
      settings.nodes.order.parentNode.style.visibility = key === 'fp8' ? '' : 'hidden';
      caption.textContent = `P, as the next product takes it: ${key === 'fp8' ? '8 bits; above, the keys' : '16 bits'}`;
      const who = (thread) => (key !== 'mma' ? `thread ${thread} (warp ${thread >> 5}, lane ${thread % 32})` : `lane ${thread}`);
      words.textContent = `S[${chosen.row}][${chosen.column}] is in ${who(s.thread)}, ${float(s.i)}. P takes it ${p.thread === s.thread ? 'from the same thread' : `from ${who(p.thread)}`}, ` +
        (key === 'fp8' ? `as column ${place}: byte ${p.i % 4} of register a${p.i >> 2}. ` : `in the ${p.i % 2 ? 'upper' : 'lower'} half of register a${p.i >> 1}. `) + `Its row is held by lanes ${s.thread % 32 & 28} to ${s.thread % 32 | 3}.`;
      host.dataset.thread = s.thread;
      host.dataset.taken = p.thread;
      draw('scores', chosen);
      draw('operand', chosen);
    }
    kit.link(host, name, settings, null, load);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.mma_fragments = (host, img) => figure(host, img, 'mma_fragments', 'mma');
  window.flashbookFigures.wgmma_fragments = (host, img) => figure(host, img, 'wgmma_fragments', 'wgmma');
  window.flashbookFigures.fp8_keys = (host, img) => figure(host, img, 'fp8_keys', 'fp8');
  window.flashbookFigures.mma_fragments.model = { instructions, holders, keysOf };
})();
