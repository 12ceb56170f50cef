// The interactive ladder: a chapter's steps at any measured shape, and what each of them changed. Use:
// flashbookFigures.ladder_ch04(host, img), of the other chapters, and .ladder_book. ladder_data.js has the rates of
// bench/results.
(function () {
  'use strict';

  // ---- The model ----

  /**
   * The rungs of the forward pass at a shape, bottom to top: { chapter, step, words, rate, lit, before }:
   every step of `lit`, the fastest step of each other chapter in `from`, and, before chapter 5's last step,
   this step without one of its ideas.
   */
  function rungsOf(data, lit, shape, from = lit === 6 ? [1, 3, 4, 5, 6] : [1, 3, 4, 5]) {
    const rates = Object.entries(data.rates[shape]).map(([key, rate]) => {
      const [chapter, step] = key.split('.').map(Number);
      return { chapter, step, rate };
    });
    const fastest = (chapter) => rates.filter((r) => r.chapter === chapter).reduce((a, b) => (b.rate > a.rate ? b : a));
    const chapters = from.filter((chapter) => rates.some((r) => r.chapter === chapter));
    const rungs = chapters.flatMap((chapter) => (chapter === lit ? rates.filter((r) => r.chapter === lit).sort((a, b) => a.step - b.step)
      : [{ ...fastest(chapter), step: 0 }]));
    const named = rungs.map((r) => ({
      ...r, lit: r.chapter === lit || lit === 0,
      words: r.step ? `${r.chapter}.${r.step} ${data.steps[`${r.chapter}.${r.step}`]}` : `${r.chapter} ${data.chapters[r.chapter]}`,
    }));
    const found = named.map((r, i) => ({ ...r, before: named[i - 1] })), last = found.findIndex((r) => r.chapter === 5 && r.step === 5);
    const parts = (data.without[shape] || []).map(([words, rate]) => ({ chapter: 5, step: 0, words, rate })).sort((a, b) => a.rate - b.rate);
    if (last >= 0) found.splice(last, 0, ...parts);
    return found;
  }

  const peerNames = { eager: 'PyTorch, P in memory', flash: 'FlashAttention-2, by PyTorch', cudnn: 'cuDNN', flex: 'FlexAttention', flash2: 'FlashAttention-2, its window', varlen: 'varlen_attn, by PyTorch', dense: 'PyTorch, a mask of pairs' };

  /** Returns the rungs of a chapter with measurements of its own at a shape: its steps, and { peers: [[words, rate], ...] }. */
  function ownRungs(data, chapter, shape) {
    const rates = data.own[chapter][shape], steps = Object.keys(rates).filter((key) => key in peerNames === false && key > 0);
    const rungs = steps.map((step) => ({ chapter, step: Number(step), rate: rates[step], lit: true, words: `${chapter}.${step} ${data.steps[`${chapter}.${step}`]}` }));
    return { rungs: rungs.map((r, i) => ({ ...r, before: rungs[i - 1] })), peers: Object.keys(peerNames).filter((key) => key in rates).map((key) => [peerNames[key], rates[key]]) };
  }

  /** Returns the position of a rate, from 0 to 1, on a scale up to `most`; logarithmic from 0.1 on. */
  const place = (rate, most, scale) => (scale === 'log' ? Math.max(0, Math.log(rate / 0.1) / Math.log(most / 0.1)) : rate / most);

  const text = (rate, unit) => (unit === 'TB/s' ? rate.toFixed(2) : rate < 99.5 ? rate.toFixed(1) : rate.toFixed(0));

  // ---- The page ----

  const css = `
.fb-ladder .rungs{display:grid;gap:4px}
.fb-ladder button.rung{display:grid;grid-template-columns:1fr auto;width:100%;height:auto;min-height:42px;padding:4px 8px;text-align:left;font-size:14px;color:var(--soft)}
.fb-ladder button.rung.lit{color:var(--ink);font-weight:600}
.fb-ladder button.rung[aria-pressed=true]{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}
.fb-ladder .rung i{grid-column:1/3;height:8px;border-radius:2px;background:var(--line)}
.fb-ladder .rung.lit i{background:var(--accent)}
.fb-ladder .rung small{grid-column:1/3;font-weight:400;font-size:13px;color:var(--amber-ink)}
.fb-ladder .rung.peer{border:1px dashed var(--line);border-radius:6px}
.fb-ladder button.rung:disabled{opacity:1}
.fb-ladder .what{max-height:30rem;overflow:auto;margin-top:8px}
.fb-ladder .what .fragment{margin:8px 0}
@media (prefers-reduced-motion:no-preference){.fb-ladder .rung i{transition:width .2s}}
`;

  const field = (key, words, value, options) => ({ key, words, value, options: options.map((o) => (Array.isArray(o) ? o : [o, Number.isInteger(o) ? o.toLocaleString('en-US') : o])) });
  const d = field('d', 'head dim d', 128, [64, 128, 256]), mask = field('mask', 'mask', 'full', [['full', 'none'], ['causal', 'causal']]);
  const sizes = (...counts) => field('n', 'N', 4096, counts), forward = [d, mask, sizes(512, 1024, 2048, 4096, 8192, 16384)];

  const maskWords = {
    causal: 'causal', window: 'window of 1024, causal', documents: 'eight documents, causal', prefix: 'prefix of 2048, causal', lengths: 'packed sequences, causal',
    full: 'none', softcap: 'softcap', alibi: 'ALiBi, causal', bias: 'bias by distance, causal', dropout: 'dropout, causal',
  };

  /** Describes a cache from the name of its result: d128/b16h32k8/n8192. */
  function cacheWords(shape) {
    const [, dim, b, h, k, uneven, n] = shape.match(/d(\d+)\/b(\d+)h(\d+)k(\d+)(\w*)\/n(\d+)/);
    return `${b} × ${Number(n).toLocaleString('en-US')}${uneven ? ' and less' : ''} keys, ${h}/${k} heads, d ${dim}`;
  }

  /** The settings, the unit and the note of each ladder. */
  function specOf(data, lit) {
    if (lit === 2) return { fields: [sizes(512, 1024, 2048, 4096)], unit: 'GFLOP/s', note: '16 cores, one head, d = 64, no mask, float32. Steps 1 to 3 use one core.' };
    if (lit === 7) return { fields: [d, mask, sizes(512, 1024, 4096, 16384)], unit: 'TFLOP/s', note: 'Backward, BF16, on an H200. Batch times N is 16k tokens, heads times d is 2048. PyTorch’s backends for comparison.' };
    if (lit === 8) return {
      fields: [{ ...field('cache', 'cache', 'd128/b16h32k8/n8192', Object.keys(data.own[8]).map((shape) => [shape, cacheWords(shape)])), grow: true }], unit: 'TB/s',
      note: 'Keys and values read per second, one query per sequence, BF16, on an H200. Heads: query heads/key heads. Step 5 with pages of 64 keys.',
    };
    if (lit === 9) return {
      fields: [{ ...field('mask', 'mask', 'window', Object.entries(maskWords).filter(([word]) => word in data.own[9])), grow: true }], unit: 'TFLOP/s',
      note: 'Visible pairs, forward, BF16, on an H200. d 128, batch 2, 16 heads, 8192 tokens; packed sequences: 16,384 tokens in one batch entry. Steps and peers were interleaved.',
    };
    return {
      fields: lit ? forward : [field('type', 'type', 'bf16', [['bf16', 'BF16'], ['e4m3', 'FP8']]), ...forward], unit: 'TFLOP/s',
      note: `Forward, ${lit === 6 ? 'chapter 6 in FP8, others in BF16' : 'BF16'}, on an H200. Batch times N is 16k tokens, heads times d is 2048. The fastest step of ${lit ? 'each other chapter' : 'each chapter'}.${lit === 0 ? ' FP8 is chapter 6’s.' : ''}`,
    };
  }

  /** Returns what a ladder shows with these settings: { rungs, peers: [[who, rate], ...], beside: the words above the peers }. */
  function shownAt(data, lit, get) {
    if (lit === 2) return { ...ownRungs(data, 2, get('n')), beside: '' };
    if (lit === 7) return { ...ownRungs(data, 7, `${get('d')}/${get('mask')}/n${get('n')}`), beside: 'Beside them' };
    if (lit === 8) return { ...ownRungs(data, 8, get('cache')), beside: 'Beside them' };
    if (lit === 9) return { ...ownRungs(data, 9, get('mask')), beside: 'Beside them' };
    const shape = [get('d'), get('mask'), get('n')].join('/'), fp8 = lit === 6 || (lit === 0 && get('type') === 'e4m3');
    const [ours, ...others] = data.beside[fp8 ? 'e4m3' : 'bf16'][shape], us = fp8 ? 'chapter 6, step 7' : 'chapter 5, step 5';
    return { rungs: rungsOf(data, lit, shape, lit === 0 && fp8 ? [5, 6] : undefined), peers: [[us, ours], ['FlashAttention-3', others[0]], ['cuDNN', others[1]]],
      beside: `Beside the peers: ${us.replace(', ', '’s ')}${fp8 ? ', FP8' : ''}` };
  }

  function figure(host, img, lit) {
    const kit = window.flashbookKit, { el } = kit, data = window.flashbookData.ladder, name = lit ? `ladder_ch${String(lit).padStart(2, '0')}` : 'ladder_book';
    const { fields, unit, note } = specOf(data, lit);
    const settings = kit.settings([...fields, field('scale', 'scale', 'linear', [['linear', 'linear'], ['log', 'logarithmic']]),
      ...(lit ? [field('rung', 'rung', lit === 9 ? '9.3' : `${lit}.1`, Object.keys(data.steps).filter((key) => key.startsWith(`${lit}.`) && key !== '8.7').map((key) => [key, `step ${key}`]))]
        : [field('rung', 'chapter', '5.0', [1, 3, 4, 5, 6].map((chapter) => [`${chapter}.0`, `chapter ${chapter}`]))]),
    ], show);
    const rungs = el('div.rungs'), words = el('p.sentence', { 'aria-live': 'polite' }), what = el('div.what', { tabindex: 0, 'aria-label': 'What the step changes' });
    kit.frame(host, img, 'ladder', css, lit ? `The ladder, chapter ${lit} highlighted` : 'The ladder');
    host.replaceChildren(settings.root, el('div.halves', {}, el('div', {}, rungs, el('p.quiet', { style: 'margin-top:8px' }, `${unit}. ${note}${lit ? ' * No prediction was made.' : ''}`)), el('div', {}, words, what)),
      el('p.try', {}, lit === 0 ? 'Try: press a rung to open its chapter. Which chapter gains most, and is it the same one at N = 512? In FP8, where does d = 64 fall behind?' :
        lit === 8 ? 'Try: press a rung to see the lines that it changed. With which caches does step 1 read at a tenth of step 6’s rate, and why? Where does equal work gain most?' :
          lit === 2 ? 'Try: press a rung to see the lines that it changed. Why does a longer sequence help steps 4 and 5, and not step 1?' :
            lit === 9 ? 'Try: press a rung to see what the step is. Which masks does only one step support? What does a window cost as intervals, and as a mask of pairs?' :
              'Try: press a rung to see the lines that it changed. Which step gained most at d = 64, and is it the same at d = 256? Does a step gain as much at N = 512?'));

    /** Returns the page's text on a step: its idea, and the lines that change or, failing that, the first lines shown; or a link to it. */
    function sectionOf(step) {
      const section = [];
      for (let node = document.querySelector(`h2[id^="step-${step}-"]`)?.nextElementSibling; node && node.tagName !== 'H2'; node = node.nextElementSibling) section.push(node);
      const first = (wanted) => section.find((node) => node.matches(wanted));
      const idea = section.find((node) => node.textContent.startsWith('Idea.')) || first('p') || document.querySelector(`main a[href*="#step-${step}-"]`);
      const copies = [idea, first('.diff') || first('.fragment')].filter(Boolean).map((node) => node.cloneNode(true));
      for (const button of copies.flatMap((copy) => [...copy.querySelectorAll('button')])) button.remove();
      return copies;
    }

    /** Returns the address of a chapter, if the page links to it. */
    function linkTo(chapter) {
      const found = document.querySelector(`a[href*="0${chapter}_"]`);
      return found ? [el('p', {}, el('a', { href: found.getAttribute('href') }, `Chapter ${chapter}: ${data.chapters[chapter]}`))] : [];
    }

    function show() {
      const { rungs: found, peers, beside } = shownAt(data, lit, settings.get), scale = settings.get('scale');
      const most = Math.max(...found.map((r) => r.rate), ...peers.map(([, rate]) => rate));
      // What limits a step is only known for the first shape, the one that the chapters use.
      const limits = fields.every((f) => String(settings.get(f.key)) === String(f.value)) ? data.limits : {};
      const bar = (rate) => el('i', { style: `width:${(100 * place(rate, most, scale)).toFixed(1)}%` });
      rungs.replaceChildren(...found.map((r) => {
        const key = lit ? `${r.chapter}.${r.step}` : `${r.chapter}.0`, chosen = key === settings.get('rung');
        const node = el(r.lit ? 'button.rung.lit' : 'button.rung', { type: 'button', 'aria-pressed': chosen }, el('span', {}, r.words), el('span', {}, text(r.rate, unit)), bar(r.rate),
          ...(r.lit && limits[key] ? [el('small', {}, `limit: ${limits[key]}`)] : []));
        node.disabled = !r.lit;
        node.onclick = () => {
          settings.set('rung', key);
          show();
          rungs.querySelector('[aria-pressed=true]').focus();
        };
        return node;
      }), ...(peers.length ? [el('p.quiet', {}, beside)] : []), ...peers.map(([who, rate]) =>
        el('button.rung.peer', { type: 'button', disabled: '' }, el('span', {}, who), el('span', {}, text(rate, unit)), bar(rate))));
      const [chapter, step] = settings.get('rung').split('.').map(Number), r = found.find((x) => x.chapter === chapter && (lit === 0 || x.step === step));
      words.textContent = r ? `${r.words}: ${text(r.rate, unit)} ${unit}` + (r.before ? `, ${(r.rate / r.before.rate).toFixed(2)} times the rung below it (${r.before.words}).` : '.')
        : lit ? 'This step was not measured at this shape.' : 'This chapter has no kernel for this type.';
      what.replaceChildren(...(lit ? sectionOf(step) : linkTo(chapter)));
      host.dataset.rate = r ? r.rate : '';
    }
    kit.link(host, name, settings, null, show);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.ladder_book = (host, img) => figure(host, img, 0);
  window.flashbookFigures.ladder_ch01 = (host, img) => figure(host, img, 1);
  window.flashbookFigures.ladder_ch02 = (host, img) => figure(host, img, 2);
  window.flashbookFigures.ladder_ch03 = (host, img) => figure(host, img, 3);
  window.flashbookFigures.ladder_ch04 = (host, img) => figure(host, img, 4);
  window.flashbookFigures.ladder_ch05 = (host, img) => figure(host, img, 5);
  window.flashbookFigures.ladder_ch06 = (host, img) => figure(host, img, 6);
  window.flashbookFigures.ladder_ch07 = (host, img) => figure(host, img, 7);
  window.flashbookFigures.ladder_ch08 = (host, img) => figure(host, img, 8);
  window.flashbookFigures.ladder_ch09 = (host, img) => figure(host, img, 9);
  window.flashbookFigures.ladder_ch01.model = { rungsOf, ownRungs, place };
})();
