// A cache of keys and values: token by token, and what one weighs. Use: flashbookFigures.kv_cache(host, img). The rates are measured ones, in
// kv_cache_data.js; `model` counts and draws nothing.
(function () {
  'use strict';

  // ---- The model ----

  /** Keys that the first n tokens compute. */
  const keysWithout = (n) => n * (n + 1) / 2;
  const keysWith = (n) => n;

  /** Published configurations (the sources are in chapter 8's appendix). */
  const models = {
    'gpt-3': { layers: 96, heads: 96, keyHeads: 96, d: 128 },
    'llama-2-7b': { layers: 32, heads: 32, keyHeads: 32, d: 128 },
    'llama-2-70b': { layers: 80, heads: 64, keyHeads: 8, d: 128 },
    'llama-3-8b': { layers: 32, heads: 32, keyHeads: 8, d: 128 },
    'llama-3-405b': { layers: 126, heads: 128, keyHeads: 8, d: 128 },
    'gemma-2b': { layers: 18, heads: 8, keyHeads: 1, d: 256 },
  };

  /** Bytes and FLOPs of a model { layers, heads, keyHeads, d }, for a batch of sequences of `tokens` with `size` bytes an element. */
  function weigh(m, batch, tokens, size) {
    const token = 2 * m.layers * m.keyHeads * m.d * size, cache = token * tokens * batch;
    return {
      token, sequence: token * tokens, cache, own: cache * m.heads / m.keyHeads,
      scores: 6 * batch * m.heads * tokens * tokens,      // S in float32 and P in 16 bits, of the one layer that runs
      logSumExp: 4 * batch * m.heads * tokens,            // what a fused kernel keeps beside O
      flops: 2 * m.d * tokens * tokens * m.heads * batch * m.layers,  // causal prefill: 4 d for each of N²/2 pairs
      more: 4 * m.d * tokens * m.heads * batch * m.layers,            // one more token of each sequence
    };
  }

  /** Of the head dims that were measured, the one that is nearest to d. */
  const nearest = (rates, d) => Object.keys(rates).map(Number).reduce((a, b) => (Math.abs(b - d) < Math.abs(a - d) ? b : a));

  function bytes(x) {
    let unit = 0;
    for (; x >= 1024 && unit < 5; ++unit) x /= 1024;
    return `${Number(x.toFixed(x < 10 ? 2 : x < 100 ? 1 : 0))} ${['bytes', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][unit]}`;
  }
  const duration = (s) => (s < 1e-3 ? `${(1e6 * s).toPrecision(2)} µs` : s < 1 ? `${Number((1e3 * s).toPrecision(3))} ms` : `${Number(s.toPrecision(3))} s`);

  // ---- The page ----

  const css = `
.fb-kv_cache rect.computed{fill:var(--amber)}
.fb-kv_cache rect.once{fill:var(--accent)}
.fb-kv_cache rect.kept{fill:var(--blue-fill)}
.fb-kv_cache rect.frame{fill:none;stroke:var(--line)}
.fb-kv_cache i.computed{background:var(--amber)}
.fb-kv_cache i.once{background:var(--accent)}
.fb-kv_cache i.kept{background:var(--blue-fill)}
.fb-kv_cache .both{display:grid;grid-template-columns:1fr 1fr;gap:14px}
.fb-kv_cache .count{font-size:22px;font-weight:600}
.fb-kv_cache .weights{margin-top:16px;padding-top:10px;border-top:1px solid var(--line)}
.fb-kv_cache table.ledger td:first-child{width:64%;white-space:normal}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, rates = window.flashbookData.kv_cache;
    let tokens;
    const settings = kit.settings([
      { key: 'tokens', words: 'tokens to write', value: 5, options: [5, 10, 100].map((n) => [n, `${n}`]) },
      { key: 'model', words: 'model', value: 'llama-3-8b', grow: true, options: Object.keys(models).map((name) => [name, name]) },
      ...[['layers', 'layers'], ['heads', 'heads'], ['keyHeads', 'key heads'], ['d', 'head dim d']].map(([key, words]) => ({ key, words, value: '', text: true })),
      { key: 'batch', words: 'sequences', value: 16, text: true },
      { key: 'length', words: 'tokens of each', value: 8192, text: true },
      { key: 'size', words: 'type', value: 2, options: [[2, 'bf16'], [1, 'e4m3']] },
    ], (key) => (key === 'tokens' ? load() : key === 'model' ? loadModel() : drawWeights()));
    const fields = [...settings.root.children];
    const player = kit.player(show, (last) => (last <= 10 ? 900 : 120));
    const pictures = [svg('svg.picture', { role: 'img' }), svg('svg.picture', { role: 'img' })], counts = [el('div.count'), el('div.count')];
    const words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger'), money = el('p.sentence');
    kit.frame(host, img, 'kv_cache', css, 'A cache of keys and values, token by token');
    const legend = (kind, text) => el('span', {}, el(`i.${kind}`), text);
    settings.root.replaceChildren(...fields.slice(1));
    host.replaceChildren(
      el('div.halves', {}, el('div.both', {}, el('div', {}, 'without a cache', pictures[0], counts[0]), el('div', {}, 'with the cache', pictures[1], counts[1])),
        el('div', {}, el('div.settings', {}, fields[0]), words, player.root, el('div.legend', {}, legend('computed', 'a key computed anew'), legend('once', 'computed, and kept'), legend('kept', 'read from the cache')))),
      el('div.weights', {}, settings.root, el('div.halves', {}, table, money)),
      el('p.try', {}, 'Try: write 100 tokens. Then take Llama-2-70B, and let it have as many key heads as heads: what does its cache weigh, and how long does a token take at the least? ' +
        'Which of the numbers grow with the square of the length?'));

    function show(n, announce) {
      const side = 150, cell = side / tokens;
      pictures.forEach((node, cached) => {
        node.setAttribute('viewBox', `0 0 ${side + 2} ${side + 2}`);
        node.replaceChildren(svg('rect.frame', { x: 1, y: 1, width: side, height: side }), ...kit.range(n).flatMap((t) => {
          const y = 1 + t * cell, high = Math.max(cell - (cell > 6 ? 2 : 0.2), 0.5), box = (kind, from, count) => svg(`rect.${kind}`, { x: 1 + from * cell, y, width: Math.max(count * cell - (cell > 6 ? 2 : 0), 0), height: high });
          return cached ? [box('kept', 0, t), box('once', t, 1)] : [box('computed', 0, t + 1)];
        }));
        const count = cached ? keysWith(n) : keysWithout(n);
        node.setAttribute('aria-label', `${count} keys computed`);
        counts[cached].textContent = `${count.toLocaleString('en-US')} keys`;
      });
      words.setAttribute('aria-live', announce ? 'polite' : 'off');
      words.textContent = sentence(n);
      host.dataset.keys = [keysWithout(n), keysWith(n)].join();
    }

    function sentence(n) {
      if (n === 0) return 'A row is a token that is written, from left to right the keys that it needs: its own and those of all tokens before it.';
      const sum = `So far ${keysWithout(n).toLocaleString('en-US')} keys without a cache, ${keysWith(n).toLocaleString('en-US')} with it.`;
      return n === 1 ? `Token 1 needs its own key only. ${sum}` :
        `Token ${n}: without a cache the keys of ${n === 2 ? 'token 1 is' : `tokens 1 to ${n - 1} are`} computed again, and are what they were. With it they are read. ${sum}`;
    }

    function drawWeights() {
      const numbers = Object.fromEntries(['layers', 'heads', 'keyHeads', 'd', 'batch', 'length'].map((key) => [key, Number(settings.get(key).replace(/[, ]/g, ''))]));
      const valid = (key) => Number.isInteger(numbers[key]) && numbers[key] > 0 && numbers[key] <= 1e9 && (key !== 'keyHeads' || numbers.heads % numbers.keyHeads === 0);
      for (const key of Object.keys(numbers)) settings.nodes[key].setAttribute('aria-invalid', !valid(key));
      if (!Object.keys(numbers).every(valid)) {
        money.textContent = 'Whole numbers above 0, please; and as many heads share a key head as any other.';
        return;
      }
      const { batch, length, ...m } = numbers, size = Number(settings.get('size')), w = weigh(m, batch, length, size);
      const dtype = size === 1 ? 'e4m3' : 'bf16', d = nearest(rates.prefill[dtype], m.d), { tflops, kernel } = rates.prefill[dtype][d];
      const row = (text, value) => el('tr', {}, el('td', {}, text), el('td', {}, value)), flop = (x) => x.toExponential(2).replace(/e\+(\d+)/, (_, digits) => ` · 10${[...digits].map((digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit]).join('')}`);
      table.replaceChildren(row('a token: 2 · layers · key heads · d · size', bytes(w.token)), row(`a sequence of ${length.toLocaleString('en-US')}`, bytes(w.sequence)), row(`the cache of ${batch}`, bytes(w.cache)),
        row('S and P of standard attention, one layer', bytes(w.scores)), row('beside O in a fused kernel, one layer', bytes(w.logSumExp)), row('FLOP to read the prompts, all layers', flop(w.flops)),
        row('FLOP to write one more token of each', flop(w.more)));
      money.textContent = `To write one more token of each sequence a card reads the whole cache: at ${rates.decode.tbps} TB/s, which chapter 8's step 6 reaches on an H200, that takes at least ` +
        `${duration(w.cache / (rates.decode.tbps * 1e12))}. Attention over the prompts takes ${duration(w.flops / (tflops * 1e12))} at the ${tflops} TFLOP/s of ${kernel} (${dtype}, causal, d = ${d}, 16k). ` +
        (w.cache > 141e9 ? 'The cache alone is more than the 141 GB of an H200.' : `An H200 has 141 GB: ${Math.round(100 * w.cache / 141e9)} % of it.`);
      host.dataset.cache = w.cache;
    }

    /** The numbers of the model, over those that were there. */
    function loadModel() {
      for (const [key, value] of Object.entries(models[settings.get('model')])) settings.set(key, value);
      drawWeights();
    }

    function load() {
      tokens = Number(settings.get('tokens'));
      kit.reserve(words, kit.range(tokens + 1).map(sentence));
      player.reset(tokens + 1, 0);
      drawWeights();
    }
    loadModel();
    kit.link(host, 'kv_cache', settings, player, load);
    kit.onWidth(host, () => kit.reserve(words, kit.range(tokens + 1).map(sentence)));
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.kv_cache = figure;
  figure.model = { keysWithout, keysWith, models, weigh, nearest, bytes };
})();
