// The size of a tile: what it costs and what it brings in chapter 3's step 2. Use: flashbookFigures.block_sizes(host, img). Times are the sweep's,
// in block_sizes_data.js; `model` has the kernel's shared memory, blocks and bytes for any size.
(function () {
  'use strict';

  // ---- The model: queries outside, tiles of B queries and B keys, 256 threads, an H100 or H200 ----

  const shape = { batch: 4, n: 4096, width: 2048 };  // of the sweep; heads times d is the width
  const blockLimit = 227 * 1024, perMultiprocessor = 228 * 1024, reserved = 1024, threads = 256;

  /** Shared memory of a block: Q, K and V in rows of d + 4 elements of `size` bytes, weights in rows of B + 4 floats. */
  const sharedBytes = (b, d, size) => 3 * b * (d + 4) * size + 4 * b * (b + 4);

  /** Blocks on a multiprocessor: by shared memory, by its 2,048 threads, and by its registers if it is known how many a thread has. */
  function blocks(b, d, size, registers) {
    const bytes = sharedBytes(b, d, size);
    if (bytes > blockLimit) return { count: 0, by: 'a block has 227 KB' };
    const limits = [[Math.floor(perMultiprocessor / (bytes + reserved)), 'shared memory'], [2048 / threads, 'threads']];
    if (registers) limits.push([Math.floor(65536 / (Math.ceil(registers / 8) * 8 * threads)), 'registers']);
    const [count, by] = limits.reduce((least, limit) => (limit[0] < least[0] ? limit : least));
    return { count, by };
  }

  /** Bytes that all blocks ask for: Q and O once, K and V for each tile of queries, and the log-sum-exp. */
  function asked(b, d, size) {
    const heads = shape.batch * shape.width / d, tiles = Math.ceil(shape.n / b), keys = tiles * Math.min(tiles * b, shape.n);
    return heads * (size * d * (2 * shape.n + 2 * keys) + 4 * shape.n);
  }

  // ---- The page ----

  const css = `
.fb-block_sizes label.slider{flex:3 1 14rem}
.fb-block_sizes label.slider input{display:block;width:100%}
.fb-block_sizes .panels{display:grid;grid-template-columns:repeat(auto-fit,minmax(145px,1fr));gap:12px}
.fb-block_sizes svg.picture text{font-size:12px}
.fb-block_sizes path.curve{fill:none;stroke:var(--accent);stroke-width:2}
.fb-block_sizes path.limit{stroke:var(--red-ink);stroke-dasharray:4 3}
.fb-block_sizes path.axis{stroke:var(--line);fill:none}
.fb-block_sizes circle{fill:var(--paper);stroke:var(--amber);stroke-width:2.5}
.fb-block_sizes path.here{stroke:var(--soft)}
.fb-block_sizes circle.here{fill:var(--amber)}
.fb-block_sizes p.sentence{margin-top:10px;min-height:4.4em}
.fb-block_sizes i.measured{border-radius:7px;border:2.5px solid var(--amber)}
.fb-block_sizes i.computed{height:3px;vertical-align:3px;background:var(--accent);border:0}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.block_sizes;
    const sizes = kit.range(30).map((i) => 16 + 8 * i);
    const settings = kit.settings([
      { key: 'b', words: 'rows of a tile: B', value: 64, options: sizes.map((b) => [b, `${b}`]) },
      { key: 'd', words: 'head dim d', value: 128, options: [64, 128, 256].map((d) => [d, `${d}`]) },
      { key: 'size', words: 'type', value: 2, options: [[2, 'bf16'], [4, 'float32']] },
    ], show);
    const slider = el('input', { type: 'range', min: 0, max: sizes.length - 1, step: 1, 'aria-label': 'Rows of a tile' });
    const pictures = kit.range(4).map(() => svg('svg.picture', { role: 'img' }));
    const words = el('p.sentence', { 'aria-live': 'polite' });
    kit.frame(host, img, 'block_sizes', css, 'The size of a tile');
    settings.root.append(el('label.slider', {}, 'B', slider));
    slider.oninput = () => {
      settings.set('b', sizes[slider.value]);
      show();
    };
    host.replaceChildren(settings.root, el('div.panels', {}, ...pictures), words,
      el('div.legend', {}, el('span', {}, el('i.computed'), 'computed'), el('span', {}, el('i.measured'), 'measured on an H200, bf16, N = 4,096')),
      el('p.try', {}, 'Try: which is the largest tile that leaves room for two blocks? Which does not fit? Between which two sizes do the bytes halve, and does the time?'));

    const kb = (bytes) => `${(bytes / 1024).toFixed(0)} KB`, gb = (bytes) => `${(bytes / 1e9).toPrecision(3)} GB`;

    /** A panel over all sizes: a curve, points that were measured, and where the reader is. */
    function panel(node, title, value, points, here, most, limit) {
      const x = (b) => 8 + (b - 8) / 248 * 140, y = (v) => 104 - Math.min(1, v / most) * 80, parts = [];
      parts.push(svg('text', { x: 8, y: 13 }, title), svg('path.axis', { d: 'M8 104H154' }));
      if (limit) parts.push(svg('path.limit', { d: `M8 ${y(limit)}H154` }));
      parts.push(svg('path.here', { d: `M${x(here)} 20V104` }));
      if (value) parts.push(svg('path.curve', { d: sizes.filter((b) => value(b) <= most).map((b, i) => `${i ? 'L' : 'M'}${x(b)} ${y(value(b))}`).join('') }));
      for (const [b, v] of points) parts.push(svg(b === here ? 'circle.here' : 'circle', { cx: x(b), cy: y(v), r: 4 }));
      parts.push(svg('text.soft.middle', { x: x(16), y: 119 }, 16), svg('text.soft.middle', { x: x(128), y: 119 }, 128), svg('text.soft', { x: 154, y: 119, 'text-anchor': 'end' }, 'B'));
      node.setAttribute('viewBox', '0 0 156 122');
      node.setAttribute('aria-label', title);
      node.replaceChildren(...parts);
    }

    function show() {
      const [b, d, size] = ['b', 'd', 'size'].map((key) => Number(settings.get(key))), sweep = size === 2 ? data[d] : {}, of = sweep[b];
      slider.value = sizes.indexOf(b);
      slider.setAttribute('aria-valuetext', `${b} rows`);
      const points = (key) => Object.entries(sweep).map(([rows, values]) => [Number(rows), values[key]]);
      const shared = sharedBytes(b, d, size), found = blocks(b, d, size, of && of.registers), bytes = asked(b, d, size), fits = found.count > 0;
      const title = (text, value) => `${text}: ${value}`;
      panel(pictures[0], title('shared', kb(shared)), (rows) => sharedBytes(rows, d, size), points('shared'), b, 250 * 1024, blockLimit);
      panel(pictures[1], title('blocks', fits ? `${of ? '' : 'at most '}${found.count}` : 'none'), (rows) => blocks(rows, d, size).count, points('blocks'), b, 8.4);
      panel(pictures[2], title('asked for', gb(bytes)), (rows) => asked(rows, d, size), points('bytes'), b, asked(16, d, size));
      panel(pictures[3], title('time', of ? `${of.ms} ms` : 'not measured'), null, points('ms'), b, 50);
      words.textContent = (fits ? `Tiles of ${b} rows take ${kb(shared)}: ${of ? '' : 'at most '}${found.count} ${found.count === 1 ? 'block' : 'blocks'} of 256 threads on a multiprocessor, by its ${found.by}. `
        : `Tiles of ${b} rows would take ${kb(shared)}: they do not fit, since ${found.by}. `) + `All blocks together ask for ${gb(bytes)}. ` +
        (of ? `On an H200 step 2 takes ${of.ms} ms so, with ${of.registers} registers a thread.` : fits ? 'This size was not measured: registers may allow fewer blocks.' : '');
      host.dataset.shared = shared;
      host.dataset.blocks = found.count;
    }
    kit.link(host, 'block_sizes', settings, null, show);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.block_sizes = figure;
  figure.model = { sharedBytes, blocks, asked };
})();
