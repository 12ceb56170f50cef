// The places where numbers lie: point at one. Use: flashbookFigures.memory_levels(host, img). Clocks and bytes are measured, in
// memory_levels_data.js; `model` says what follows from them.
(function () {
  'use strict';

  // ---- The model ----

  /** What goes by while a load waits: multiply-adds of the multiprocessor; bytes that must be under way to have all of the bandwidth, or null. */
  const wait = (level, multiplyAdds) => ({ missed: level.clocks * multiplyAdds, underWay: level.bytes && level.clocks * level.bytes });

  // ---- The page ----

  const css = `
.fb-memory_levels .levels{display:grid;gap:4px}
.fb-memory_levels button.level{display:grid;grid-template-columns:1fr auto;width:100%;height:auto;min-height:46px;padding:5px 8px;text-align:left;font-size:14px}
.fb-memory_levels button.level[aria-pressed=true]{border-color:var(--accent);box-shadow:0 0 0 2px var(--accent)}
.fb-memory_levels .level b{font-weight:600}
.fb-memory_levels .level i{grid-column:1/3;height:10px;border-radius:2px;background:var(--accent)}
.fb-memory_levels table.ledger td{white-space:normal;vertical-align:top}
.fb-memory_levels table.ledger td:first-child{width:48%;color:var(--soft)}
.fb-memory_levels p.sentence{margin-top:10px;min-height:9.3em}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el } = kit, data = window.flashbookData.memory_levels, { levels } = data;
    const settings = kit.settings([{ key: 'level', words: 'level', value: 'device memory', options: levels.map((l) => [l.name, l.name]) }], show);
    const table = el('table.ledger'), words = el('p.sentence', { 'aria-live': 'polite' });
    const longest = Math.max(...levels.map((l) => l.clocks));
    const buttons = levels.map((l) => {
      const node = el('button.level', { type: 'button' }, el('b', {}, l.name), el('span', {}, `${l.clocks} clocks`),
        el('i', { style: `width:${Math.max(0.6, 100 * l.clocks / longest).toFixed(1)}%` }));
      node.onfocus = node.onpointerenter = node.onclick = () => {
        settings.set('level', l.name);
        show();
      };
      return node;
    });
    kit.frame(host, img, 'memory_levels', css, 'The memories of an H200');
    host.replaceChildren(el('div.halves', {}, el('div', {}, el('div.levels', {}, ...buttons), el('p.quiet', { style: 'margin-top:8px' }, 'Clocks that a load waits, measured on an H200')),
      el('div', {}, settings.root, table, words)),
    el('p.try', {}, 'Try: which level is larger and slower than the one above, and by how much? How many warps, each with one request of 128 bytes under way, does a multiprocessor need to have ' +
      'all that device memory can give it?'));

    const n = (x) => Number(x.toPrecision(x < 10 ? 2 : 3)).toLocaleString('en-US');

    function show() {
      const level = levels.find((l) => l.name === settings.get('level')), { missed, underWay } = wait(level, data.multiplyAdds), all = data.together[level.name];
      buttons.forEach((node, i) => node.setAttribute('aria-pressed', levels[i] === level));
      const row = (what, value) => el('tr', {}, el('td', {}, what), el('td', {}, value));
      table.replaceChildren(row('whose', level.whose), row('size', level.size), row('latency', `${level.clocks} clocks`),
        row('bandwidth, a multiprocessor', level.bytes ? `${n(level.bytes)} bytes a clock` : 'not measured'),
        row('bandwidth, all 132', all ? `${all} TB/s` : level.bytes ? '132 times as much' : 'not measured'));
      const register = level === levels[0];
      words.textContent = (register ? `A result can be used ${level.clocks} clocks after its multiply-add was issued. ` :
        `While one load waits, the multiprocessor has time for ${n(missed)} multiply-adds. `) +
        (underWay ? `To have all of this bandwidth it must have ${level.clocks} · ${n(level.bytes)} = ${n(underWay)} bytes under way at any time` +
          (register ? ', the operands of many warps.' : `: ${Math.ceil(underWay / 128).toLocaleString('en-US')} requests of 128 bytes, a warp’s load of a float each.`) : 'Its bandwidth was not measured.');
      host.dataset.clocks = level.clocks;
    }
    kit.link(host, 'memory_levels', settings, null, show);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.memory_levels = figure;
  figure.model = { wait };
})();
