// A block without and with a planted fault, side by side, event by event. Use: flashbookFigures.fault_chNN(host, img).
// fault_chNN_data.js has the simulator's events and is loaded when the reader opens the figure; `model` reads them and
// draws nothing. timelines.js uses the parts in flashbookTraces.
(function () {
  'use strict';

  // ---- The model ----

  const fields = 4, digits = 57;  // recorded/fault_traces.py describes how events are written

  /** Returns the events encoded in a text. */
  function unpacked(data, text) {
    const events = [];
    for (let at = 0, warp = -1; at < text.length; at += 2) {
      if (text[at] > '\\') warp = text.charCodeAt(at++) - 94;
      const kind = fields * ((text.charCodeAt(at) - 35) * digits + text.charCodeAt(at + 1) - 35);
      const [group, warps, says, line] = data.events.slice(kind, kind + fields);
      const who = warp < 0 ? 'block' : warps > 1 ? `warps ${warp}-${warp + warps - 1}` : `warp ${warp}`;
      events.push({ group, warp, warps, who, says: data.texts[says], line: data.texts[line], isFault: data.groups[group] === 'faults' });
    }
    return events;
  }

  /** Returns a step's two runs; `first` is the first event that differs. */
  function traceOf(data, slug) {
    const step = data.steps[slug], good = unpacked(data, step.good);
    return { ...step, good, broken: [...good.slice(0, step.same), ...unpacked(data, step.broken)], first: step.same };
  }

  const length = ({ good, broken }) => Math.max(good.length, broken.length);

  /** Returns the events to step through: those around the first difference and around the simulator's report, and the last one. */
  function stepsOf(trace) {
    const most = length(trace), chosen = new Set([most - 1]);
    const around = (at, before, behind) => { for (let k = Math.max(0, at - before); k <= Math.min(most - 1, at + behind); ++k) chosen.add(k); };
    around(trace.first, 3, 24);
    for (let k = 0, faults = 0; k < trace.broken.length && faults < 3; ++k) if (trace.broken[k].isFault) around(k, 6, 2 * ++faults);
    return [...chosen].sort((a, b) => a - b);
  }

  // ---- The page ----

  const looks = ['soft', 'amber', 'green', 'blue', 'soft', 'soft', 'soft', 'soft', 'red'];
  const css = `
.fb-fault_traces{--c-soft:var(--soft);--c-amber:var(--amber);--c-green:var(--green-ink);--c-blue:var(--accent);--c-red:var(--red-ink)}
.fb-fault_traces svg.map{display:block;width:100%;height:110px;border:1px solid var(--line);border-radius:4px}
.fb-fault_traces svg.map path{fill:none}
.fb-fault_traces svg.map line{stroke:var(--ink)}
.fb.fb-fault_traces ol{list-style:none;margin:6px 0 0;padding:0;font-size:13px;line-height:1.5}
.fb.fb-fault_traces li{font-size:13px;margin:0;padding:0 6px;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;border-left:4px solid var(--of);min-height:1.5em}
.fb-fault_traces li[aria-current]{background:var(--blue-fill)}
.fb-fault_traces li.fault{color:var(--red-ink);font-weight:600}
.fb-fault_traces .halves p.quiet{height:6em;overflow:hidden;overflow-wrap:anywhere;margin-top:4px}
.fb-fault_traces .closed img{display:block;max-width:100%;margin:0 auto 10px}
.fb-fault_traces .planted{margin:0 0 12px;overflow-wrap:anywhere}
.fb-fault_traces .planted code{font-size:12px;background:none;border:0;padding:0;white-space:pre-wrap}
` + [...new Set(looks)].map((look) => `.fb-fault_traces .${look}{--of:var(--c-${look})}.fb-fault_traces svg.map path.${look}{stroke:var(--c-${look})}`).join('');

  /** Calls done(data) with a chapter's data, immediately if they are loaded. */
  function withData(name, done) {
    const data = window.flashbookData && window.flashbookData[name];
    if (data) done(data);
    else document.head.append(Object.assign(document.createElement('script'), { src: `interactive/${name}_data.js`, onload: () => done(window.flashbookData[name]) }));
  }

  function side(rows, warps, most, title, goTo) {
    const { el, svg, range } = window.flashbookKit, high = 110, tall = high / (warps + 1);
    const map = svg('svg.map', { viewBox: `0 0 ${most} ${high}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
    const paths = {};
    rows.forEach((e, k) => {
      const look = looks[e.group], y = tall * (e.warp < 0 ? warps : e.warp);
      paths[look] = (paths[look] || '') + (look === 'red' ? `M${k + 0.5} 0V${high}` : `M${k + 0.5} ${y.toFixed(1)}v${(tall * e.warps - 1).toFixed(1)}`);
    });
    for (const [look, d] of Object.entries(paths)) map.append(svg(`path.${look}`, { d, 'stroke-width': Math.max(1, most / 250) }));
    const mark = svg('line', { y1: 0, y2: high, 'vector-effect': 'non-scaling-stroke', 'stroke-width': 2 });
    map.append(mark);
    map.onclick = (event) => goTo(Math.floor(most * (event.clientX - map.getBoundingClientRect().left) / map.clientWidth));
    const list = el('ol'), line = el('p.quiet');
    return {
      root: el('div', {}, el('p.sentence', {}, title), map, list, line),
      show(k) {
        const last = rows.length - 1, at = Math.min(k, last);
        mark.setAttribute('x1', at + 0.5);
        mark.setAttribute('x2', at + 0.5);
        list.replaceChildren(...range(7).map((i) => {
          const n = at + i - 3, e = rows[n];
          if (!e) return el('li.soft', {}, '\u00a0');
          return el(`li.${looks[e.group]}${e.isFault ? '.fault' : ''}`, { title: `${e.who}: ${e.says}`, ...(n === at ? { 'aria-current': 'true' } : {}) }, `${n} ${e.who}: ${e.says}`);
        }));
        line.textContent = k > last ? 'This run is over.' : rows[at].line || 'Not a line of the kernel.';
      },
    };
  }

  /** Both runs and a player, in `root`. show(trace, steps, at) shows another trace, which `steps` leads through. */
  function runs(delay) {
    const kit = window.flashbookKit, { el } = kit, halves = el('div.halves'), words = el('p.sentence', { 'aria-live': 'polite' }), hint = el('p.quiet.try');
    let trace = null, steps = [], sides = [];
    const said = (rows, k) => (rows[k] ? `${rows[k].who}: ${rows[k].says}` : 'nothing any more');
    const sentence = (k) => `Event ${k} without the fault: ${said(trace.good, k)}. With the fault: ${said(trace.broken, k)}.`;
    const walk = kit.player((step, announce) => {
      if (!trace) return;  // its data are still being loaded
      kit.say(words, sentence(steps[step]), announce);
      for (const one of sides) one.show(steps[step]);
    }, delay);
    return {
      walk,
      root: el('div', {}, halves, words, walk.root,
        el('div.legend', {}, ...[['amber', 'barriers'], ['green', 'copies'], ['blue', 'products'], ['soft', 'all else'], ['red', 'the fault']].map(([look, meant]) =>
          el('span', {}, el('i', { style: `background:var(--c-${look})` }), meant))), hint),
      show(newTrace, newSteps, at) {
        [trace, steps] = [newTrace, newSteps];
        const goTo = (k) => walk.go(steps.findIndex((event) => event >= k)), made = (rows, title) => side(rows, trace.warps, length(trace), `${title}: ${rows.length} events`, goTo);
        sides = [made(trace.good, 'Without the fault'), made(trace.broken, 'With the fault')];
        halves.replaceChildren(...sides.map((one) => one.root));
        hint.textContent = `One row per warp. The order is that of the simulator, which does not model time. Event ${trace.first} is the first that differs. Continue to the simulator’s report.`;
        walk.reset(steps.length, Math.max(0, steps.indexOf(at)));
      },
      reserve() {
        if (trace) kit.reserve(words, steps.map(sentence).sort((a, b) => b.length - a.length).slice(0, 40));
      },
    };
  }

  /** The fault of a chapter's page; the reader opens it. */
  function figure(name, host, img) {
    const kit = window.flashbookKit, { el } = kit;
    kit.frame(host, img, 'fault_traces', css, 'A block without a fault and with it, event by event');
    const button = el('button.main', { type: 'button', 'data-action': 'open' }, 'Step through both runs');
    const still = el('div.closed', {}, ...(img ? [el('img', { src: img.src, alt: img.alt })] : []), button);
    host.replaceChildren(still);
    const open = (data) => {
      const both = runs(600), trace = traceOf(data, Object.keys(data.steps).find((slug) => data.steps[slug].on_page));
      host.replaceChildren(both.root);
      kit.link(host, name, { nodes: {} }, both.walk, () => both.show(trace, stepsOf(trace), 0));
      both.reserve();
      kit.onWidth(host, both.reserve);
    };
    button.onclick = () => {
      button.disabled = true;
      withData(name, open);
    };
    if ((window.flashbookData && window.flashbookData[name]) || location.hash.startsWith(`#${name}?`)) button.click();
  }

  window.flashbookTraces = { css, length, traceOf, runs, withData };
  window.flashbookFigures = window.flashbookFigures || {};
  const named = (name) => Object.assign((host, img) => figure(name, host, img), { model: { traceOf, stepsOf } });
  window.flashbookFigures.fault_ch01 = named('fault_ch01');
  window.flashbookFigures.fault_ch03 = named('fault_ch03');
  window.flashbookFigures.fault_ch04 = named('fault_ch04');
  window.flashbookFigures.fault_ch06 = named('fault_ch06');
  window.flashbookFigures.fault_ch07 = named('fault_ch07');
  window.flashbookFigures.fault_ch08 = named('fault_ch08');
})();
