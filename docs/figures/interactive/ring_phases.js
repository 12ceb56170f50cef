// A ring of stages and its mbarriers, animated. Use: flashbookFigures.ring_phases(host, img). The events are in ring_phases_data.js, written by the
// simulator; `model` computes the state of every actor after a number of events, and draws nothing.
(function () {
  'use strict';

  // ---- The model: a recorded run up to a given event ----

  /** 'pAf0008' -> the producer announces at full[0], which is then in phase 0, lacks no arrival and 8 KB. */
  function parse(token) {
    const [, who, kind, barrier, stage, phase, pending, missing] = token.match(/^(.)(.)(.)(\d)(\d)(\d)(\d)$/);
    return { who, kind, barrier, stage: Number(stage), phase: Number(phase), pending: Number(pending), missing: Number(missing) };
  }

  /** Returns the recorded run with these settings, and its events. */
  function runOf(data, wanted) {
    const found = data.runs.find((r) => Object.keys(wanted).every((key) => r[key] === String(wanted[key])));
    const stages = Number(found.stages), warps = 4 * Number(found.consumers);
    return { stages, warps, fault: found.fault, report: data.reports[found.report] || '', tiles: data.tiles, events: (found.events.match(/.{7}/g) || []).map(parse) };
  }

  /** Returns the state of all barriers after k events: { full: [{ phase, pending, missing }], empty: [...] }. */
  function barriersAt(run, k) {
    const state = {
      full: Array.from({ length: run.stages }, () => ({ phase: 0, pending: 1, missing: 0 })),
      empty: Array.from({ length: run.stages }, () => ({ phase: 0, pending: run.warps, missing: 0 })),
    };
    for (const e of run.events.slice(0, k)) state[e.barrier === 'f' ? 'full' : 'empty'][e.stage] = e;
    return state;
  }

  /** Returns what an actor waits for before its n-th filling: barrier, stage and parity. 'p' is the producer, a digit a warp. */
  function wish(run, who, n) {
    const round = Math.floor(n / run.stages), stage = n % run.stages;
    if (who !== 'p') return { barrier: 'full', stage, parity: round % 2 };
    return { barrier: 'empty', stage, parity: (run.fault === 'wrong first parity' ? round : round + 1) % 2 };
  }

  /** Returns an actor's state after k events, { at, n, wish }: it waits, announces or copies (the producer), reads (a warp), or is done. */
  function actorAt(run, who, k) {
    const mine = run.events.slice(0, k).filter((e) => e.who === who);
    const passed = mine.filter((e) => e.kind === 'P').length, last = mine.length ? mine[mine.length - 1].kind : '';
    const forgets = run.fault === 'missing release' && who === '0';
    const within = last === 'P' && !(forgets && k === run.events.length);  // between its wait and the next
    const n = within || last === 'A' ? passed - 1 : passed;
    const at = n >= run.tiles.length ? 'done' : last === 'A' ? 'copies' : within ? (who === 'p' ? 'announces' : 'reads') : 'waits';
    return { at, n, wish: at === 'done' ? null : wish(run, who, n) };
  }

  /** Returns a stage's contents: its tile, and 'nothing', 'announced', 'coming', 'there' or 'read' (by all). */
  function slotAt(run, stage, k) {
    let n = stage - run.stages, state = 'nothing';
    for (const e of run.events.slice(0, k).filter((x) => x.stage === stage)) {
      if (e.kind === 'A') {
        n += run.stages;
        state = 'announced';
      }
      if (e.kind === 'C') state = 'coming';
      if (e.kind === 'O') state = e.barrier === 'f' ? 'there' : 'read';
    }
    return { state, tile: n >= 0 ? run.tiles[n] : '' };
  }

  const name = (e) => `${e.barrier[0] === 'f' ? 'full' : 'empty'}[${e.stage}]`;

  /** Returns the sentence for event k, counted from 1; 0 is the start. */
  function sentence(run, k) {
    return what(run, k) + (k < run.events.length ? '' : run.report ? ' Now every thread waits: a deadlock.' : ' All tiles are read.');
  }
  function what(run, k) {
    if (k === 0) return 'No tile has been loaded. Every barrier is in phase 0. The producer waits on empty[0] for parity ' +
      `${wish(run, 'p', 0).parity}, every warp on full[0] for parity 0.`;
    const e = run.events[k - 1], tile = slotAt(run, e.stage, k).tile;
    if (e.kind === 'P') {
      const over = e.phase === 0 ? 'Phase 0 is still running, and the phase before it counts as complete' : `Phase ${e.phase - 1} is complete`;
      const asked = `waited on ${name(e)} for parity ${(e.phase + 1) % 2}. ${over}, so the wait returns`;
      return e.who === 'p' ? `The producer ${asked}: stage ${e.stage} is free.` : `Warp ${e.who} ${asked}: it may read ${tile}.`;
    }
    if (e.kind === 'A') return `The producer arrives at ${name(e)} and announces 8 KB. No arrival is pending now, but 8 KB are missing, so the phase continues.`;
    if (e.kind === 'C') return `The producer has TMA copy ${tile} into stage ${e.stage} and continues without waiting for the copy.`;
    if (e.kind === 'G') return `Warp ${e.who} has read ${tile}. Its lane 0 arrives at ${name(e)}: ${e.pending} of ${run.warps} arrivals are pending.`;
    if (e.barrier === 'f') return `${tile} has landed. Nothing is missing any more: phase ${e.phase - 1} of ${name(e)} is complete, phase ${e.phase} waits for the next announcement.`;
    return `The last of ${run.warps} warps has arrived: phase ${e.phase - 1} of ${name(e)} is complete. ${tile} may be overwritten.`;
  }

  // ---- The page ----

  const css = `
.fb-ring_phases .ring{display:grid;grid-template-columns:minmax(0,.78fr) minmax(0,1.2fr) minmax(0,1.2fr);gap:6px}
.fb-ring_phases .ring>div{border:1px solid var(--line);border-radius:5px;padding:5px 6px;font-size:13px;white-space:nowrap;overflow:hidden}
.fb-ring_phases .ring>div.head{border:0;padding:0 2px;color:var(--soft)}
.fb-ring_phases .ring>div.touched{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}
.fb-ring_phases .slot b{display:block;font-size:20px;line-height:28px}
.fb-ring_phases :is(.announced,.coming){background:var(--amber-fill)}
.fb-ring_phases :is(.there,.parity0){background:var(--blue-fill)}
.fb-ring_phases .parity1{background:var(--amber-fill)}
.fb-ring_phases .dots{letter-spacing:1px;white-space:nowrap;font-size:12px}
.fb-ring_phases .actors{display:grid;grid-template-columns:repeat(auto-fill,minmax(160px,1fr));gap:4px}
.fb-ring_phases .actor{border-left:4px solid var(--line);padding:2px 6px;font-size:13px;line-height:1.35;white-space:nowrap;overflow:hidden}
.fb-ring_phases .actor b{font-weight:600}
.fb-ring_phases .actor:first-child{grid-column:1/-1}
.fb-ring_phases .actor.now{border-color:var(--accent);background:var(--blue-fill)}
.fb-ring_phases .actor.waits span{color:var(--amber-ink)}
.fb-ring_phases .actor:is(.reads,.announces,.copies) span{color:var(--green-ink)}
.fb-ring_phases .code{margin-top:8px;overflow-x:auto;border:1px solid var(--line);border-radius:5px;padding:4px 0;
  font:12.5px/1.5 var(--font-family-monospace,ui-monospace,Menlo,Consolas,monospace)}
.fb-ring_phases .code div{white-space:pre;padding:0 8px;width:max-content;min-width:100%}
.fb-ring_phases .code div.stand{background:var(--green-fill)}
.fb-ring_phases .code i{color:var(--soft);font-style:normal}
.fb-ring_phases .code em{color:var(--green-ink);font-style:normal}
.fb-ring_phases pre.report{margin:10px 0 0;padding:8px;border:1px solid var(--red-ink);border-radius:5px;background:var(--red-fill);color:var(--ink);
  font:12.5px/1.45 var(--font-family-monospace,ui-monospace,Menlo,Consolas,monospace);white-space:pre-wrap;overflow-wrap:anywhere}
.fb-ring_phases rect.parity0{fill:var(--blue-fill);stroke:var(--line)}
.fb-ring_phases rect.parity1{fill:var(--amber-fill);stroke:var(--line)}
.fb-ring_phases rect.ahead{fill:var(--paper);fill-opacity:.75}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.ring_phases;
    let run;

    const settings = kit.settings([
      { key: 'stages', words: 'stages', value: 2, options: [[1, '1'], [2, '2'], [3, '3']] },
      { key: 'consumers', words: 'consumers', value: 1, options: [[1, '1'], [2, '2']] },
      { key: 'landing', words: 'copies land', value: 'late', options: [['late', 'late'], ['at once', 'at once'], ['seed 1', 'random, 1'], ['seed 2', 'random, 2']] },
      { key: 'fault', words: 'fault', value: 'none', options: [['none', 'none'], ['wrong first parity', 'wrong first parity'], ['missing release', 'a missing release']] },
    ], load);
    const player = kit.player(show, (last) => (last < 80 ? 700 : 450));
    const ring = el('div.ring'), actors = el('div.actors'), code = el('div'), strip = svg('svg.picture', { role: 'img' });
    const words = el('p.sentence', { 'aria-live': 'polite' }), text = el('pre.report');
    const report = el('div', {}, text, el('p.quiet', {}, 'The report counts the warps of the block: warp 0 above is warp 4 there, and the producer is in warp 0.'));
    kit.frame(host, img, 'ring_phases', css, 'A ring of stages and its barriers, event by event');
    const left = el('div', {}, ring,
      el('div.legend', {}, kit.legend('parity0', 'a phase of parity 0'), kit.legend('parity1', 'of parity 1'), el('span', {}, '● arrived'), el('span', {}, '○ pending')),
      strip, player.root);
    host.replaceChildren(settings.root, el('div.halves', {}, left, el('div', {}, words, actors, code)), report,
      el('p.try', {}, 'Try: one stage, then two: which barrier does the producer stop at? Then a fault: before the end, say which thread waits for which; the last ' +
        'step is the simulator’s own report.'));

    function show(k, announce) {
      const state = barriersAt(run, k), event = k ? run.events[k - 1] : null;
      const touched = (barrier, stage) => (event && event.barrier === barrier[0] && event.stage === stage ? '.touched' : '');
      const box = (barrier, stage) => {
        const b = state[barrier][stage], all = barrier === 'full' ? 1 : run.warps;
        return el(`div.parity${b.phase % 2}${touched(barrier, stage)}`, { 'data-barrier': `${barrier}${stage}` },
          el('div', {}, `phase ${b.phase}, parity ${b.phase % 2}`),
          el('div.dots', {}, '●'.repeat(all - b.pending) + '○'.repeat(b.pending)),
          el('div', {}, barrier === 'full' ? (b.missing ? `${b.missing} KB missing` : '0 KB missing') : `${b.pending} pending`));
      };
      const slotWords = { nothing: 'empty', announced: 'to come', coming: 'coming', there: 'landed', read: 'used up' };
      ring.replaceChildren(...['stage', 'full', 'empty'].map((t) => el('div.head', {}, t)),
        ...kit.range(run.stages).flatMap((stage) => {
          const slot = slotAt(run, stage, k);
          return [el(`div.slot.${slot.state}`, {}, `stage ${stage}`, el('b', {}, slot.tile || '–'), slotWords[slot.state]), box('full', stage), box('empty', stage)];
        }));
      const where = new Map(['p', ...kit.range(run.warps).map(String)].map((who) => [who, actorAt(run, who, k)]));
      const saying = ({ at, n, wish: w }) => ({
        waits: w && `waits ${w.barrier}[${w.stage}], parity ${w.parity}`, announces: w && `announces 8 KB at full[${w.stage}]`, copies: `requests ${run.tiles[n]} from TMA`,
        reads: `reads ${run.tiles[n]}`, done: 'done' }[at]);
      actors.replaceChildren(...[...where].map(([who, a]) => el(`div.actor.${a.at}${event && event.who === who ? '.now' : ''}`, { 'data-actor': who },
        el('b', {}, who === 'p' ? 'producer' : `warp ${who}`), el('br'), el('span', {}, saying(a)))));
      drawCode(where);
      drawStrip(k);
      kit.say(words, sentence(run, k), announce);
      report.style.visibility = k === run.events.length ? '' : 'hidden';
      host.dataset.phases = [...state.full, ...state.empty].map((b) => b.phase).join();
    }

    /** Returns each actor's line: the producer's depends on its next load, a warp's on whether it waits or reads. */
    function drawCode(where) {
      const lineOf = (who, a) => (a.at === 'done' ? -1 : who !== 'p' ? (a.at === 'reads' ? 3 : 1) : run.tiles[a.n][0] === 'K' ? 1 : 2);
      const standing = { producer: {}, consumer: {} };
      for (const [who, a] of where) (standing[who === 'p' ? 'producer' : 'consumer'][lineOf(who, a)] ??= []).push(who);
      code.replaceChildren(...Object.entries(data.code).map(([who, { file, lines }]) => el('div.code', { tabindex: 0, 'aria-label': `code of the ${who}` },
        el('div', {}, el('i', {}, `${who}, ${file}`)),
        ...lines.map(([number, text], i) => {
          const here = standing[who][i] || [];
          const mark = who === 'producer' ? (here.length ? '▶' : ' ') : here.join('').padEnd(run.warps);
          return el(here.length ? 'div.stand' : 'div', {}, el('em', {}, `${mark} `), el('i', {}, `${number} `), text);
        }))));
    }

    /** Draws the phases of each barrier over the events, as in the static picture. */
    function drawStrip(k) {
      const width = Math.max(260, left.clientWidth || 400), label = 62, count = Math.max(1, run.events.length), x = (i) => label + (i / count) * (width - label - 2);
      const parts = [];
      ['full', 'empty'].forEach((barrier, half) => kit.range(run.stages).forEach((stage) => {
        const y = 6 + (2 * stage + half) * 22;
        const ends = run.events.map((e, i) => [e, i + 1]).filter(([e]) => e.kind === 'O' && e.barrier === barrier[0] && e.stage === stage).map(([, i]) => i);
        [0, ...ends].forEach((begin, phase) => {
          const end = ends[phase] ?? count;
          parts.push(svg(`rect.parity${phase % 2}`, { x: x(begin), y, width: Math.max(0, x(end) - x(begin)), height: 18 }));
          if (x(end) - x(begin) > 14) parts.push(svg('text.middle', { x: (x(begin) + x(end)) / 2, y: y + 13.5 }, phase));
        });
        parts.push(svg('text.soft', { x: 0, y: y + 13.5 }, `${barrier}[${stage}]`));
      }));
      const height = 8 + 44 * run.stages;
      parts.push(svg('rect.ahead', { x: x(k), y: 3, width: x(count) - x(k), height: height - 4 }),
        svg('line', { x1: x(k), x2: x(k), y1: 2, y2: height, style: 'stroke:var(--accent);stroke-width:2' }));
      kit.draw(strip, width, height, `Phases of the barriers, up to event ${k} of ${run.events.length}`, parts);
    }

    function load() {
      run = runOf(data, Object.fromEntries(['stages', 'consumers', 'landing', 'fault'].map((key) => [key, settings.get(key)])));
      text.textContent = run.report;
      report.style.display = run.report ? '' : 'none';
      kit.reserve(words, kit.range(run.events.length + 1).map((k) => sentence(run, k)));
      player.reset(run.events.length + 1, 0);
    }
    kit.link(host, 'ring_phases', settings, player, load);
    kit.onWidth(left, () => {
      kit.reserve(words, kit.range(run.events.length + 1).map((k) => sentence(run, k)));
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.ring_phases = figure;
  figure.model = { parse, runOf, barriersAt, wish, actorAt, slotAt, sentence };
})();
