// The ladder, to climb: the steps of a chapter at any shape that was measured, each rung with what it changed. Use:
// flashbookFigures.ladder_ch04(host, img), and of the other chapters. Rates are those of bench/results, in ladder_data.js.
(function () {
  'use strict';

  // ---- The model ----

  /**
   * The rungs at a shape, bottom to top: { chapter, step, words, rate, lit, before }: every step of `lit`, of other chapters the fastest; before
   * chapter 5's last step what it is without one of its ideas.
   */
  function rungsOf(data, lit, shape) {
    const rates = Object.entries(data.rates[shape]).map(([key, rate]) => {
      const [chapter, step] = key.split('.').map(Number);
      return { chapter, step, rate };
    });
    const fastest = (chapter) => rates.filter((r) => r.chapter === chapter).reduce((a, b) => (b.rate > a.rate ? b : a));
    const chapters = [...new Set(rates.map((r) => r.chapter))].sort((a, b) => a - b);
    const rungs = chapters.flatMap((chapter) => (chapter === lit ? rates.filter((r) => r.chapter === lit).sort((a, b) => a.step - b.step)
      : [{ ...fastest(chapter), step: 0 }]));
    const named = rungs.map((r) => ({
      ...r, lit: r.chapter === lit,
      words: r.step ? `${r.chapter}.${r.step} ${data.steps[`${r.chapter}.${r.step}`]}` : `${r.chapter} ${data.chapters[r.chapter]}`,
    }));
    const found = named.map((r, i) => ({ ...r, before: named[i - 1] })), last = found.findIndex((r) => r.chapter === 5 && r.step === 5);
    const parts = (data.without[shape] || []).map(([words, rate]) => ({ chapter: 5, step: 0, words, rate })).sort((a, b) => a.rate - b.rate);
    if (last >= 0) found.splice(last, 0, ...parts);
    return found;
  }

  /** The place of a rate between 0 and 1, of rates up to `most`; logarithmic from 0.1 on. */
  const place = (rate, most, scale) => (scale === 'log' ? Math.max(0, Math.log(rate / 0.1) / Math.log(most / 0.1)) : rate / most);

  const text = (rate) => (rate < 99.5 ? rate.toFixed(1) : rate.toFixed(0));

  // ---- The page ----

  const css = `
.fb-ladder .rungs{display:grid;gap:4px}
.fb-ladder button.rung{display:grid;grid-template-columns:1fr auto;width:100%;height:auto;min-height:42px;padding:4px 8px;text-align:left;font-size:14px;color:var(--soft)}
.fb-ladder button.rung.lit{color:var(--ink);font-weight:600}
.fb-ladder button.rung[aria-pressed=true]{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}
.fb-ladder .rung i{grid-column:1/3;height:8px;border-radius:2px;background:var(--line)}
.fb-ladder .rung.lit i{background:var(--accent)}
.fb-ladder .rung.peer{border:1px dashed var(--line);border-radius:6px}
.fb-ladder button.rung:disabled{opacity:1}
.fb-ladder .what{max-height:30rem;overflow:auto;margin-top:8px}
.fb-ladder .what .fragment{margin:8px 0}
@media (prefers-reduced-motion:no-preference){.fb-ladder .rung i{transition:width .2s}}
`;

  function figure(host, img, lit) {
    const kit = window.flashbookKit, { el } = kit, data = window.flashbookData.ladder, name = `ladder_ch${String(lit).padStart(2, '0')}`;
    const settings = kit.settings([
      { key: 'd', words: 'head dim d', value: 128, options: [64, 128, 256].map((d) => [d, `${d}`]) },
      { key: 'mask', words: 'mask', value: 'full', options: [['full', 'none'], ['causal', 'causal']] },
      { key: 'n', words: 'N', value: 4096, options: [512, 1024, 2048, 4096, 8192, 16384].map((n) => [n, n.toLocaleString('en-US')]) },
      { key: 'scale', words: 'scale', value: 'linear', options: [['linear', 'linear'], ['log', 'logarithmic']] },
      { key: 'rung', words: 'rung', value: `${lit}.1`, options: Object.keys(data.steps).filter((key) => key.startsWith(`${lit}.`)).map((key) => [key, `step ${key}`]) },
    ], show);
    const rungs = el('div.rungs'), words = el('p.sentence', { 'aria-live': 'polite' }), what = el('div.what', { tabindex: 0, 'aria-label': 'What the step changes' });
    kit.frame(host, img, 'ladder', css, `The ladder, chapter ${lit} lit`);
    host.replaceChildren(settings.root, el('div.halves', {}, el('div', {}, rungs, el('p.quiet', { style: 'margin-top:8px' }, 'TFLOP/s, forward, BF16, on an H200. Batch times N is 16k tokens, ' +
      'heads times d is 2048. Of other chapters the fastest step. * predicted after it was measured.')), el('div', {}, words, what)),
    el('p.try', {}, 'Try: press a rung to see the lines that it changed. Which step brought most at d = 64, and does it at d = 256? Is a step worth as much at N = 512?'));

    /** What the page says of a step: its idea, and the lines that change, or else the first that it shows. */
    function sectionOf(step) {
      const section = [];
      for (let node = document.querySelector(`h2[id^="step-${step}-"]`)?.nextElementSibling; node && node.tagName !== 'H2'; node = node.nextElementSibling) section.push(node);
      const code = section.find((node) => node.matches('.diff')) || section.find((node) => node.matches('.fragment'));
      const copies = [section.find((node) => node.tagName === 'P'), code].filter(Boolean).map((node) => node.cloneNode(true));
      for (const button of copies.flatMap((copy) => [...copy.querySelectorAll('button')])) button.remove();
      return copies;
    }

    function show() {
      const shape = ['d', 'mask', 'n'].map(settings.get).join('/'), found = rungsOf(data, lit, shape), [ours, ...peers] = data.beside[shape];
      const most = Math.max(...found.map((r) => r.rate), ours, ...peers), scale = settings.get('scale');
      const bar = (rate) => el('i', { style: `width:${(100 * place(rate, most, scale)).toFixed(1)}%` });
      rungs.replaceChildren(...found.map((r) => {
        const key = `${r.chapter}.${r.step}`, chosen = key === settings.get('rung');
        const node = el(r.lit ? 'button.rung.lit' : 'button.rung', { type: 'button', 'aria-pressed': chosen }, el('span', {}, r.words), el('span', {}, text(r.rate)), bar(r.rate));
        node.disabled = !r.lit;
        node.onclick = () => {
          settings.set('rung', key);
          show();
          rungs.querySelector('[aria-pressed=true]').focus();
        };
        return node;
      }), el('p.quiet', {}, 'In one process: chapter 5’s step 5 and the peers'), ...[['chapter 5, step 5', ours], ['FlashAttention-3', peers[0]], ['cuDNN', peers[1]]].map(([who, rate]) =>
        el('button.rung.peer', { type: 'button', disabled: '' }, el('span', {}, who), el('span', {}, text(rate)), bar(rate))));
      const r = found.find(({ chapter, step }) => `${chapter}.${step}` === settings.get('rung'));
      words.textContent = r ? `${r.words}: ${text(r.rate)} TFLOP/s` + (r.before ? `, ${(r.rate / r.before.rate).toFixed(2)} times the rung below it (${r.before.words}).` : '.')
        : 'This step was not measured at this shape.';
      what.replaceChildren(...sectionOf(settings.get('rung').split('.')[1]));
      host.dataset.rate = r ? r.rate : '';
    }
    kit.link(host, name, settings, null, show);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.ladder_ch01 = (host, img) => figure(host, img, 1);
  window.flashbookFigures.ladder_ch03 = (host, img) => figure(host, img, 3);
  window.flashbookFigures.ladder_ch04 = (host, img) => figure(host, img, 4);
  window.flashbookFigures.ladder_ch05 = (host, img) => figure(host, img, 5);
  window.flashbookFigures.ladder_ch01.model = { rungsOf, place };
})();
