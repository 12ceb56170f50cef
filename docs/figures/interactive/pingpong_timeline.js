// The warpgroups of a block over time, as measured on an H200. Use: flashbookFigures.pingpong_timeline(host, img).
// pingpong_timeline_data.js has the timestamps of bench/results; `model` reads them and draws nothing.
(function () {
  'use strict';

  // ---- The model ----

  const spans = [['turn', 'issued', 'issues', 'issues its products'], ['issued', 'scores', 'waits', 'waits for its scores'], ['scores', 'end', 'softmax', 'softmax, output rescaled']];

  /** Returns the passes of a run: { tile, warpgroup, and its moments in clocks }, the first moment of a consumer at 0; tiles count from 1 in their order. */
  function passesOf({ moments, stamps }) {
    const all = stamps.map(([warpgroup, tile, ...times]) => ({ warpgroup, tile, ...Object.fromEntries(moments.map((m, i) => [m, times[i]]).filter(([, t]) => t !== null)) }));
    const first = Math.min(...all.filter((p) => p.warpgroup).map((p) => p.turn)), newest = Math.max(...all.filter((p) => p.warpgroup).map((p) => p.tile));
    for (const p of all) {
      p.number = newest - p.tile + 1;
      for (const m of moments) if (m in p) p[m] -= first;
    }
    return all.sort((a, b) => (a.turn ?? a.keys_sent ?? a.values_sent) - (b.turn ?? b.keys_sent ?? b.values_sent));
  }

  /** Returns the share of the consumers' time between two clocks that each span takes. */
  function shares(passes, from, to) {
    const consumers = passes.filter((p) => p.warpgroup), groups = new Set(consumers.map((p) => p.warpgroup)).size;
    const within = (a, b) => Math.max(0, Math.min(b, to) - Math.max(a, from));
    return Object.fromEntries(spans.map(([a, b, key]) => [key, consumers.reduce((sum, p) => sum + within(p[a], p[b]), 0) / ((to - from) * groups)]));
  }

  // ---- The page ----

  const css = `
.fb-pingpong_timeline rect.issues{fill:var(--accent)}
.fb-pingpong_timeline rect.waits{fill:var(--green-fill);stroke:var(--green-ink)}
.fb-pingpong_timeline rect.softmax{fill:var(--amber)}
.fb-pingpong_timeline line{stroke:var(--line)}
.fb-pingpong_timeline line.keys{stroke:var(--ink);stroke-width:2}
.fb-pingpong_timeline line.values{stroke:var(--red-ink);stroke-width:2}
.fb-pingpong_timeline line.now{stroke:var(--ink);stroke-width:1.5}
.fb-pingpong_timeline i.issues{background:var(--accent)}
.fb-pingpong_timeline i.waits{background:var(--green-fill)}
.fb-pingpong_timeline i.softmax{background:var(--amber)}
.fb-pingpong_timeline i.keys{background:var(--ink);width:3px}
.fb-pingpong_timeline i.values{background:var(--red-ink);width:3px}
.fb-pingpong_timeline table.ledger th:first-child{width:58%}
.fb-pingpong_timeline table.ledger td:first-child{white-space:normal}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.pingpong_timeline;
    const steps = { 2: '2: no order', 3: '3: pingpong', 4: '4: and overlap', 5: '5: its loop' }, choices = Object.entries(steps);
    let runs, window_;
    const settings = kit.settings([
      { key: 'a', words: 'step', value: 2, options: choices },
      { key: 'b', words: 'below it', value: 4, options: choices },
      { key: 'd', words: 'head dim d', value: 128, options: [[64, '64'], [128, '128']] },
      { key: 'clocks', words: 'clocks shown', value: 9000, options: [3000, 9000, 18000].map((c) => [c, c.toLocaleString('en-US')]) },
    ], load);
    const player = kit.player(show, 450), last = 30;
    const pictures = [svg('svg.picture', { role: 'img' }), svg('svg.picture', { role: 'img' })], titles = [el('p.quiet'), el('p.quiet')];
    const words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger');
    kit.frame(host, img, 'pingpong_timeline', css, 'The warpgroups of a block over time');
    host.replaceChildren(settings.root, titles[0], pictures[0], titles[1], pictures[1],
      el('div.legend', {}, ...spans.map(([, , kind, text]) => kit.legend(kind, text)), kit.legend('keys', 'TMA is told to load keys'), kit.legend('values', 'values')), player.root,
      el('div.halves', {}, words, table),
      el('p.try', {}, 'Try: in step 2, how long do the consumers run together before they alternate? Which colour has almost disappeared in step 4, and at which ' +
        'head dim was there more of it? Then compare step 3 with step 2.'));

    function draw(node, passes, step, at) {
      const width = Math.max(260, host.clientWidth - 30), left = width < 500 ? 22 : 84, high = 22, groups = [...new Set(passes.map((p) => p.warpgroup))].sort();
      const x = (clock) => left + Math.max(0, Math.min(window_, clock)) * (width - left - 4) / window_, parts = [];
      groups.forEach((group, row) => {
        const y = 4 + row * (high + 5), inside = passes.filter((p) => p.warpgroup === group);
        parts.push(svg('line', { x1: left, x2: width, y1: y + high / 2, y2: y + high / 2 }),
          svg('text.soft', { x: 0, y: y + 15 }, left < 80 ? (group ? `c${group - 1}` : 'p') : group ? `consumer ${group - 1}` : 'producer'));
        for (const p of inside) {
          for (const [from, to, kind] of group ? spans : []) {
            const w = x(p[to]) - x(p[from]);
            if (w > 0) parts.push(svg(`rect.${kind}`, { x: x(p[from]), y, width: w, height: high }));
            if (w > 16 && kind === 'softmax') parts.push(svg('text.middle', { x: x(p[from]) + w / 2, y: y + 15, style: 'fill:#1c1d1f' }, p.number));
          }
          for (const [moment, kind] of group ? [] : [['keys_sent', 'keys'], ['values_sent', 'values']])
            if (p[moment] >= 0 && p[moment] <= window_) parts.push(svg(`line.${kind}`, { x1: x(p[moment]), x2: x(p[moment]), y1: y, y2: y + high }));
        }
      });
      const foot = 8 + groups.length * (high + 5);
      for (const tick of [0, window_ / 3, 2 * window_ / 3]) parts.push(svg('text.soft', { x: x(tick), y: foot + 10 }, tick === 0 ? '0 clocks' : tick));
      parts.push(svg('line.now', { x1: x(at), x2: x(at), y1: 0, y2: foot }));
      kit.draw(node, width, foot + 14, `Step ${step}, the first ${window_} clocks of the loop`, parts);
    }

    /** Describes what each consumer does at a clock. */
    function doing(passes, at) {
      return [...new Set(passes.map((p) => p.warpgroup))].filter(Boolean).sort().map((group) => {
        const pass = passes.find((p) => p.warpgroup === group && p.turn <= at && at < p.end), span = pass && spans.find(([from, to]) => pass[from] <= at && at < pass[to]);
        return `consumer ${group - 1} ${span ? `${{ issues: 'issues', waits: 'waits for scores', softmax: 'takes exponentials' }[span[2]]} (tile ${pass.number})` : 'waits for its turn'}`;
      }).join(', ');
    }
    const sentence = (k) => {
      const at = k * window_ / last;
      return `At clock ${Math.round(at).toLocaleString('en-US')}. ${runs.map(({ step, passes }) => `Step ${step}: ${doing(passes, at)}.`).join(' ')}`;
    };

    function show(k, announce) {
      runs.forEach(({ step, passes }, i) => {
        titles[i].textContent = `Step ${steps[step]}`;
        draw(pictures[i], passes, step, k * window_ / last);
      });
      kit.say(words, sentence(k), announce);
    }

    function load() {
      window_ = Number(settings.get('clocks'));
      runs = ['a', 'b'].map((key) => {
        const run = data.runs.find(({ step, d }) => step === Number(settings.get(key)) && d === Number(settings.get('d')));
        return { ...run, passes: passesOf(run) };
      });
      const found = runs.map(({ passes }) => shares(passes, 0, window_)), percent = (x) => `${Math.round(100 * x)} %`;
      table.replaceChildren(el('tr', {}, el('th', {}, `of the first ${window_.toLocaleString('en-US')} clocks`), ...runs.map(({ step }) => el('th', {}, `step ${step}`))),
        ...[['issues', 'a consumer issues'], ['waits', 'waits for its scores'], ['softmax', 'softmax, output rescaled']].map(([key, text]) =>
          el('tr', {}, el('td', {}, text), ...found.map((s) => el('td', {}, percent(s[key]))))),
        el('tr', {}, el('th', {}, 'of the whole record'), el('th'), el('th')),
        el('tr', {}, el('td', {}, 'no consumer has a product in flight'), ...runs.map((run) => el('td', {}, percent(run.idle_share)))),
        el('tr', {}, el('td', {}, 'clocks per tile, median of the middle'), ...runs.map((run) => el('td', {}, run.tile_cycles.toLocaleString('en-US')))));
      host.dataset.idle = runs.map((run) => percent(run.idle_share)).join();
      kit.reserve(words, kit.range(last + 1).map(sentence));
      player.reset(last + 1, 0);
    }
    kit.link(host, 'pingpong_timeline', settings, player, load);
    kit.onWidth(host, () => {
      kit.reserve(words, kit.range(last + 1).map(sentence));
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.pingpong_timeline = figure;
  figure.model = { passesOf, shares };
})();
