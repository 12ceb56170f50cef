// A block without and with a planted fault, side by side, event by event. Use: flashbookFigures.fault_chNN(host, img).
// fault_chNN_data.js has the simulator's events and is loaded when the reader opens the figure; `model` reads them and
// draws nothing.
(function () {
  'use strict';

  // ---- The model ----

  const fields = 5;
  const count = (rows) => rows.length / fields;

  function eventOf(data, rows, k) {
    const [group, warp, warps, says, line] = rows.slice(fields * k, fields * (k + 1));
    return { group, warp, warps, who: warp < 0 ? 'block' : warps > 1 ? `warps ${warp}-${warp + warps - 1}` : `warp ${warp}`, says: data.texts[says], line: data.texts[line] };
  }

  /** The first event that is another one with the fault. */
  function parts(data) {
    const { good, broken } = data;
    let at = 0;
    while (at < good.length && good[at] === broken[at]) ++at;
    return Math.floor(at / fields);
  }

  /** The events to step through: those around the first difference, around what the simulator reports, and the last. */
  function stepsOf(data) {
    const first = parts(data), most = Math.max(count(data.good), count(data.broken)), chosen = new Set([most - 1]);
    const around = (at, before, behind) => { for (let k = Math.max(0, at - before); k <= Math.min(most - 1, at + behind); ++k) chosen.add(k); };
    around(first, 3, 24);
    for (let k = 0, faults = 0; k < count(data.broken) && faults < 3; ++k) if (data.groups[eventOf(data, data.broken, k).group] === 'faults') around(k, 6, 2 * ++faults);
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
` + [...new Set(looks)].map((look) => `.fb-fault_traces .${look}{--of:var(--c-${look})}.fb-fault_traces svg.map path.${look}{stroke:var(--c-${look})}`).join('');

  function figure(name, host, img) {
    const { el, frame } = window.flashbookKit;
    frame(host, img, 'fault_traces', css, 'A block without a fault and with it, event by event');
    const button = el('button.main', { type: 'button', 'data-action': 'open' }, 'Step through both runs');
    const still = el('div.closed', {}, ...(img ? [el('img', { src: img.src, alt: img.alt })] : []), button);
    host.replaceChildren(still);
    const ready = () => window.flashbookData && window.flashbookData[name];
    const show = () => open(name, host, ready());
    button.onclick = () => {
      if (ready()) return show();
      button.disabled = true;
      return document.head.append(Object.assign(document.createElement('script'), { src: `interactive/${name}_data.js`, onload: show }));
    };
    if (ready() || location.hash.startsWith(`#${name}?`)) button.click();
  }

  function side(data, rows, title) {
    const { el, svg, range } = window.flashbookKit, most = Math.max(count(data.good), count(data.broken)), high = 110, tall = high / (data.warps + 1);
    const map = svg('svg.map', { viewBox: `0 0 ${most} ${high}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': title });
    const paths = {};
    range(count(rows)).forEach((k) => {
      const e = eventOf(data, rows, k), look = looks[e.group], y = tall * (e.warp < 0 ? data.warps : e.warp);
      paths[look] = (paths[look] || '') + (look === 'red' ? `M${k + 0.5} 0V${high}` : `M${k + 0.5} ${y.toFixed(1)}v${(tall * e.warps - 1).toFixed(1)}`);
    });
    for (const [look, d] of Object.entries(paths)) map.append(svg(`path.${look}`, { d, 'stroke-width': Math.max(1, most / 250) }));
    const mark = svg('line', { y1: 0, y2: high, 'vector-effect': 'non-scaling-stroke', 'stroke-width': 2 });
    map.append(mark);
    const list = el('ol'), line = el('p.quiet');
    return {
      root: el('div', {}, el('p.sentence', {}, title), map, list, line),
      show(k) {
        const last = count(rows) - 1, at = Math.min(k, last);
        mark.setAttribute('x1', at + 0.5);
        mark.setAttribute('x2', at + 0.5);
        list.replaceChildren(...range(7).map((i) => {
          const n = at + i - 3;
          if (n < 0 || n > last) return el('li.soft', {}, '\u00a0');
          const e = eventOf(data, rows, n), look = looks[e.group];
          return el(`li.${look}${look === 'red' ? '.fault' : ''}`, { title: `${e.who}: ${e.says}`, ...(n === at ? { 'aria-current': 'true' } : {}) }, `${n} ${e.who}: ${e.says}`);
        }));
        const { line: source } = eventOf(data, rows, at);
        line.textContent = k > last ? 'This run is over.' : source || 'Not a line of the kernel.';
      },
    };
  }

  function open(name, host, data) {
    const kit = window.flashbookKit, { el } = kit, steps = stepsOf(data), first = parts(data);
    const words = el('p.sentence', { 'aria-live': 'polite' });
    const said = (rows, k) => (k < count(rows) ? `${eventOf(data, rows, k).who}: ${eventOf(data, rows, k).says}` : 'nothing any more');
    const sentence = (k) => `Event ${k} without the fault: ${said(data.good, k)}. With the fault: ${said(data.broken, k)}.`;
    const walk = kit.player((step, announce) => {
      kit.say(words, sentence(steps[step]), announce);
      for (const one of sides) one.show(steps[step]);
    }, 600);
    const sides = [side(data, data.good, `Without the fault: ${count(data.good)} events`), side(data, data.broken, `With the fault: ${count(data.broken)} events`)];
    host.replaceChildren(el('div.halves', {}, ...sides.map((one) => one.root)), words, walk.root,
      el('div.legend', {}, ...[['amber', 'barriers'], ['green', 'copies'], ['blue', 'products'], ['soft', 'all else'], ['red', 'the fault']].map(([look, words]) =>
        el('span', {}, el('i', { style: `background:var(--c-${look})` }), words))),
      el('p.quiet.try', {}, `One row per warp. The order is that of the simulator, which does not model time. Event ${first} is the first that differs. Continue to the simulator’s report.`));
    kit.link(host, name, { nodes: {} }, walk, () => walk.reset(steps.length, 0));
    const reserve = () => kit.reserve(words, steps.map(sentence));
    reserve();
    kit.onWidth(host, reserve);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  const named = (name) => Object.assign((host, img) => figure(name, host, img), { model: { count, eventOf, parts, stepsOf } });
  window.flashbookFigures.fault_ch01 = named('fault_ch01');
  window.flashbookFigures.fault_ch03 = named('fault_ch03');
  window.flashbookFigures.fault_ch04 = named('fault_ch04');
  window.flashbookFigures.fault_ch05 = named('fault_ch05');
  window.flashbookFigures.fault_ch06 = named('fault_ch06');
  window.flashbookFigures.fault_ch07 = named('fault_ch07');
  window.flashbookFigures.fault_ch08 = named('fault_ch08');
})();
