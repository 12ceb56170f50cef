// Issue slots: how many warps hide a latency. Use: flashbookFigures.issue_slots(host, img). Latencies and what the card takes are measured, in
// issue_slots_data.js; `model` is four schedulers that know nothing else of a multiprocessor.
(function () {
  'use strict';

  // ---- The model ----

  const schedulers = 4;

  /**
   * Which warp each scheduler issues from in each of `clocks` clocks, or -1. A warp may have `ahead` instructions under way; each is over `latency`
   * clocks after it was issued. Warp w is scheduler w mod 4's, and of those that may, the one that has waited longest issues.
   */
  function slots(warps, latency, ahead, clocks) {
    return Array.from({ length: schedulers }, (_, scheduler) => {
      const own = Array.from({ length: warps }, (_, w) => w).filter((w) => w % schedulers === scheduler).map((warp) => ({ warp, over: [], last: -1 }));
      return Array.from({ length: clocks }, (_, clock) => {
        for (const w of own) w.over = w.over.filter((end) => end > clock);
        const ready = own.filter((w) => w.over.length < ahead).sort((a, b) => a.last - b.last || a.warp - b.warp)[0];
        if (!ready) return -1;
        ready.over.push(clock + latency);
        ready.last = clock;
        return ready.warp;
      });
    });
  }

  /** Instructions a clock of the multiprocessor, when it runs on. */
  const rate = (warps, latency, ahead) => [...Array(schedulers).keys()].reduce((sum, scheduler) =>
    sum + Math.min(1, Math.ceil((warps - scheduler) / schedulers) * ahead / latency), 0);

  // ---- The page ----

  const css = `
.fb-issue_slots rect.idle{fill:var(--paper);stroke:var(--line)}
.fb-issue_slots rect.busy{fill:var(--accent)}
.fb-issue_slots svg.picture text.on{fill:var(--paper);font-size:11px}
.fb-issue_slots p.sentence{margin-top:10px;min-height:4.4em}
`;
  const names = { multiply_add: 'a multiply-add', shared: 'shared memory', l1: 'the L1 cache', l2: 'the L2 cache', device: 'device memory' };

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.issue_slots;
    const settings = kit.settings([
      { key: 'what', words: 'each instruction waits for', value: 'multiply_add', grow: true, options: Object.keys(data.latency).map((key) => [key, `${names[key]}: ${data.latency[key]} clocks`]) },
      { key: 'warps', words: 'resident warps', value: 4, options: [1, 2, 4, 8, 16, 32, 64].map((n) => [n, `${n}`]) },
      { key: 'ahead', words: 'under way in a warp', value: 1, options: [1, 2, 4, 8].map((n) => [n, `${n}`]) },
    ], load);
    const picture = svg('svg.picture', { role: 'img' }), words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger');
    kit.frame(host, img, 'issue_slots', css, 'Issue slots of four schedulers');
    host.replaceChildren(settings.root, el('p.quiet', {}, 'Four schedulers, from left to right the clocks; a filled slot issues, a number is its warp'), picture,
      el('div.halves', {}, words, table),
      el('p.try', {}, 'Try: how many warps fill the slots if each instruction waits for the L2 cache? How many if eight loads of a warp are under way? And for device memory?'));

    function load() {
      const latency = data.latency[settings.get('what')], warps = Number(settings.get('warps')), ahead = Number(settings.get('ahead'));
      const width = Math.max(260, host.clientWidth - 30), left = 20, shown = Math.ceil(latency * 1.3 / 16) * 16, issued = slots(warps, latency, ahead, shown);
      const cells = Math.min(shown, width < 500 ? 32 : 64), each = shown / cells, cell = (width - left) / cells, parts = [];
      issued.forEach((row, scheduler) => {
        const y = 2 + scheduler * 26;
        parts.push(svg('text.soft', { x: 0, y: y + 15 }, scheduler));
        for (let i = 0; i < cells; ++i) {
          const x = left + i * cell, here = row.slice(Math.round(i * each), Math.round((i + 1) * each)), busy = here.filter((w) => w >= 0);
          parts.push(svg('rect.idle', { x, y, width: cell - 1.5, height: 22 }));
          if (busy.length) parts.push(svg('rect.busy', { x, y, width: (cell - 1.5) * busy.length / here.length, height: 22 }));
          if (each === 1 && busy.length && cell > 14) parts.push(svg('text.on.middle', { x: x + cell / 2 - 1, y: y + 15 }, busy[0]));
        }
      });
      parts.push(svg('text.soft', { x: left, y: 120 }, `clock 0`), svg('text.soft', { x: width, y: 120, 'text-anchor': 'end' }, shown));
      picture.setAttribute('viewBox', `0 0 ${width} 124`);
      const now = rate(warps, latency, ahead), full = Math.ceil(schedulers * latency / ahead);
      picture.setAttribute('aria-label', `${now.toFixed(2)} instructions a clock of ${schedulers}`);
      picture.replaceChildren(...parts);
      words.textContent = `${warps} ${warps === 1 ? 'warp' : 'warps'} with ${ahead} under way issue ${Number(now.toPrecision(2))} instructions a clock, ${Math.round(100 * now / schedulers)} % of the slots. ` +
        (full > 64 ? `To fill them would take ${full} warps: more than the 64 that may be resident.` : `${full} warps would fill them.`);
      const measured = data.warps[settings.get('what')];
      table.style.visibility = measured ? '' : 'hidden';
      table.replaceChildren(el('tr', {}, ...['warps, 1 each', 'clocks each', 'H200'].map((t) => el('th', {}, t))),
        ...Object.entries(measured || data.warps.l2).map(([w, clocks]) => el('tr', {}, el('td', {}, w), el('td', {}, (1 / rate(Number(w), latency, 1)).toFixed(2)), el('td', {}, clocks.toFixed(2)))));
      host.dataset.rate = now;
    }
    kit.link(host, 'issue_slots', settings, null, load);
    kit.onWidth(host, load);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.issue_slots = figure;
  figure.model = { slots, rate };
})();
