// One iteration of the backward pass, event by event: the contents of shared memory, the products in flight, and the
// state of every actor. Use: flashbookFigures.backward_round(host, img). backward_round_data.js has the events of
// chapter 7's step 4 in the simulator; `model` accumulates them and draws nothing.
(function () {
  'use strict';

  // ---- The model ----

  const actors = ['brings Q', 'brings K, V, dO', 'adds dQ of 0', 'adds dQ of 1', 'consumer 0', 'consumer 1'];
  const products = ['S', 'dP', 'dV', 'dQ', 'dK'];
  /** Returns the tiles in shared memory that a product reads; stages are those of the round. */
  const operands = { S: ['K', 'Q'], dP: ['V', 'dO'], dV: ['dO'], dQ: ['dS', 'K'], dK: ['Q'] };

  /** Returns the block after the first k events: its tiles { K, V, Q0, Q1, dO0, ..., dq1 }: { is: free,
  coming or full, round }; its consumers; phases of barriers. */
  function stateAt(events, k) {
    const tiles = {}, phases = {}, loads = { Q: 0, dO: 0 }, consumers = [0, 1].map(() => ({ round: -1, of: {} }));
    for (const name of ['K', 'V', 'Q0', 'Q1', 'dO0', 'dO1', 'dS0', 'dS1', 'dq0', 'dq1']) tiles[name] = { is: 'free', round: -1 };
    let rounds = 0;
    for (const [who, what, object] of events.slice(0, k)) {
      const [name, side, stage] = object.split(' '), consumer = consumers[who - 4];
      if (what === 'over') {
        phases[object] = (phases[object] || 0) + 1;
        if (object === 'ds written') tiles[`dS${rounds % 2}`] = { is: 'full', round: rounds++ };
        else if (name === 'keys') for (const t of ['K', 'V']) tiles[t].is = side === 'full' ? 'full' : 'free';
        else if (name === 'dq') tiles[`dq${stage}`].is = side === 'full' ? 'full' : 'free';
        else tiles[`${name === 'q' ? 'Q' : 'dO'}${stage}`].is = side === 'full' ? 'full' : 'free';
      } else if (what === 'loads') {
        tiles[object.replace(' ', '')] = { is: 'coming', round: side ? loads[name]++ : 0 };
      } else if (consumer && what === 'issues') {
        if (object === 'S') { ++consumer.round; consumer.of = {}; }
        consumer.of[object] = 'under way';
      } else if (consumer && what === 'has') {
        for (const product of object.split(' ')) consumer.of[product] = 'done';
      } else if (consumer && what === 'arrives' && name === 'dq') {
        tiles[`dq${stage}`].round = consumer.round;
      }
    }
    return { tiles, phases, consumers, rounds };
  }

  /** Returns the tiles that the products in flight read. */
  function readNow(state) {
    const names = new Set();
    for (const { round, of } of state.consumers)
      for (const product of products.filter((p) => of[p] === 'under way'))
        for (const tile of operands[product]) names.add(tile === 'K' || tile === 'V' ? tile : tile + round % 2);
    return names;
  }

  const roleOf = (who) => (who < 2 ? 'producer' : who < 4 ? 'adder' : 'consumer');
  const keyOf = ([who, what, object]) => `${roleOf(who)} ${what} ${object.replace(/ \d$/, '')}`;

  // ---- The page ----

  const css = `
.fb-backward_round rect{stroke:var(--line);fill:var(--paper)}
.fb-backward_round rect.coming{fill:var(--amber-fill);stroke:var(--amber);stroke-dasharray:4 3}
.fb-backward_round rect.full{fill:var(--blue-fill);stroke:var(--accent)}
.fb-backward_round rect.read{stroke:var(--green-ink);stroke-width:3}
.fb-backward_round rect.done{fill:var(--blue-fill);stroke:var(--accent)}
.fb-backward_round rect.under{fill:var(--green-fill);stroke:var(--green-ink);stroke-width:3}
.fb-backward_round rect.now{stroke:var(--amber);stroke-width:3}
.fb-backward_round svg.picture text{font-size:14px}
.fb-backward_round svg.picture text.name{font-weight:600}
.fb-backward_round i.coming{background:var(--amber-fill);border:1px dashed var(--amber)}
.fb-backward_round i.full{background:var(--blue-fill)}
.fb-backward_round i.under{background:var(--green-fill);border:2px solid var(--green-ink)}
.fb-backward_round table.ledger td{white-space:normal;text-align:left;vertical-align:top}
.fb-backward_round table.ledger td:first-child{width:34%;color:var(--soft)}
.fb-backward_round tr.now td{font-weight:600;color:var(--ink)}
.fb-backward_round pre.line{margin:8px 0 0;padding:6px 8px;border:1px solid var(--line);border-radius:5px;background:none;color:var(--ink);
  font:13px/1.4 var(--font-family-monospace,ui-monospace,Menlo,Consolas,monospace);overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere}
`;
  const spelt = { 'q full': 'Q is there', 'q empty': 'Q may be overwritten', 'do full': 'dO is there', 'do empty': 'dO may be overwritten', 'keys full': 'K and V are there',
    'keys empty': 'K and V may be overwritten', 'dq full': 'its part of dQ is written', 'dq empty': 'its part of dQ has been read', 'ds written': 'both halves of dS are written' };

  /** Returns an event's action, as a sentence without its subject. */
  function doing([who, what, object]) {
    const barrier = object.replace(/ \d$/, ''), stage = /\d$/.test(object) ? ` (stage ${object.slice(-1)})` : '', own = barrier.startsWith('dq') ? '' : stage;
    if (what === 'passes') return `passes: ${spelt[barrier]}${own}`;
    if (what === 'arrives') return who < 2 ? `announces the bytes${stage}` : barrier === 'ds written' ? 'has written its half of dS, and arrives' : `says: ${spelt[barrier]}${own}`;
    if (what === 'loads') return `has TMA load ${object.split(' ')[0]}${stage}`;
    if (what === 'issues') return `issues ${object}${object === 'S' || object === 'dP' ? 'ᵀ' : ''}`;
    if (what === 'has') return `waits, and now has ${object.replace(' ', ' and ').replace(/\b(S|dP)\b/g, '$1ᵀ')}`;
    return what === 'adds' ? 'has TMA add the part to dQ in memory' : 'waits until TMA has read the part';
  }

  function figure(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, data = window.flashbookData.backward_round;
    let events;
    const settings = kit.settings([
      { key: 'landing', words: 'copies land', value: 'late', options: [['late', 'as late as they may'], ['at once', 'at once'], ['seed 1', 'at random; warps in any order']] },
      { key: 'who', words: 'stop at', value: 'all', options: [['all', 'every event'], ...[4, 5, 0, 1, 2].map((i) => [`${i}`, `events of: ${actors[i]}`])] },
    ], load);
    const picture = svg('svg.picture', { role: 'img', viewBox: '0 0 400 318' }), words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger'), code = el('pre.line');
    const cells = actors.map(() => el('td', {}, el('div')));
    table.append(...cells.map((cell, who) => el('tr', {}, el('td', {}, actors[who]), cell)));
    const player = kit.player(show, 500);
    kit.frame(host, img, 'backward_round', css, 'An iteration of the backward pass, event by event');
    host.replaceChildren(settings.root, el('div.halves', {},
      el('div', {}, picture, el('div.legend', {}, kit.legend('coming', 'on its way'), kit.legend('full', 'there, or done'), kit.legend('under', 'multiplied now')), player.root),
      el('div', {}, words, code, table)),
    el('p.try', {}, 'Try: which products wait for the barrier between the consumers, and which are issued before it? Which tile is released first, Q or dO, and why? ' +
      'What does the adding thread wait for before it lets the consumer write the next part?'));

    let stops = [];
    const eventAt = (k) => (k ? events[stops[k - 1]] : null);

    function sentence(k) {
      const event = eventAt(k);
      if (!event) return `A block of step 4 with one tile of 128 keys and ${data.rounds} tiles of 64 queries, d = 128. Nothing has happened yet.`;
      const [who, , object] = event;
      return who < 0 ? `Everything that the barrier expects has arrived: ${spelt[object.replace(/ \d$/, '')]}${/\d$/.test(object) ? ` (${object.startsWith('dq') ? 'consumer' : 'stage'} ${object.slice(-1)})` : ''}.`
        : `${actors[who].startsWith('consumer') ? actors[who].replace('c', 'C') : `The thread that ${actors[who]}`} ${doing(event)}.`;
    }

    function show(k, announce) {
      const end = k ? stops[k - 1] + 1 : 0, state = stateAt(events, end), read = readNow(state), parts = [], event = eventAt(k);
      const box = (x, y, width, height, kind, name, ...lines) => {
        parts.push(svg(`rect${kind ? `.${kind}` : ''}`, { x, y, width, height, rx: 4 }), svg('text.name', { x: x + 6, y: y + 17 }, name));
        lines.forEach((line, i) => parts.push(svg('text.soft', { x: x + 6, y: y + 33 + 15 * i }, line)));
      };
      const phase = (name) => state.phases[name] || 0, kindOf = (name) => [state.tiles[name].is, read.has(name) ? 'read' : ''].filter((x) => x && x !== 'free').join('.');
      const tile = (name) => (state.tiles[name].is === 'free' ? 'free' : `queries ${64 * state.tiles[name].round} to ${64 * state.tiles[name].round + 63}`);
      parts.push(svg('text.soft', { x: 2, y: 12 }, 'Shared memory; beneath, the phases of full and empty'));
      for (const [i, name] of [[0, 'K'], [1, 'V']]) box(2 + 200 * i, 20, 194, 40, kindOf(name), name, state.tiles[name].is === 'free' ? 'free' : 'keys 0 to 127');
      for (const stage of [0, 1]) {
        box(2 + 200 * stage, 66, 194, 54, kindOf(`Q${stage}`), `Q, stage ${stage}`, tile(`Q${stage}`), `full ${phase(`q full ${stage}`)}, empty ${phase(`q empty ${stage}`)}`);
        box(2 + 200 * stage, 126, 194, 54, kindOf(`dO${stage}`), `dO, stage ${stage}`, tile(`dO${stage}`), `full ${phase(`do full ${stage}`)}, empty ${phase(`do empty ${stage}`)}`);
        box(2 + 200 * stage, 186, 94, 40, kindOf(`dS${stage}`), `dS ${stage}`, state.tiles[`dS${stage}`].round < 0 ? 'nothing yet' : `of round ${state.tiles[`dS${stage}`].round + 1}`);
        box(102 + 200 * stage, 186, 94, 40, kindOf(`dq${stage}`), `dQ of ${stage}`, state.tiles[`dq${stage}`].is === 'free' ? 'free' : `of round ${state.tiles[`dq${stage}`].round + 1}`);
      }
      state.consumers.forEach(({ round, of }, c) => {
        const y = 238 + 40 * c;
        parts.push(svg('text', { x: 2, y: y + 13 }, `consumer ${c}`), svg('text.soft', { x: 2, y: y + 28 }, round < 0 ? 'not begun' : `round ${round + 1}`));
        products.forEach((p, i) => {
          parts.push(svg(`rect${of[p] === 'done' ? '.done' : of[p] ? '.under' : ''}`, { x: 92 + 61.5 * i, y, width: 57, height: 30, rx: 4 }),
            svg('text.middle', { x: 120.5 + 61.5 * i, y: y + 20 }, p + (i < 2 ? 'ᵀ' : '')));
        });
      });
      picture.replaceChildren(...parts);
      picture.setAttribute('aria-label', state.consumers.map((c, i) => `Consumer ${i}: round ${c.round + 1}, ${products.filter((p) => c.of[p] === 'under way').join(', ') || 'no product'} under way`).join('. '));
      kit.say(words, sentence(k), announce);
      code.textContent = lineOf(event);
      cells.forEach((cell, who) => {
        cell.firstChild.textContent = nextOf(events.slice(end).find((e) => e[0] === who));
        cell.parentNode.className = event && event[0] === who ? 'now' : '';
      });
      host.dataset.products = state.consumers.map((c) => products.map((p) => (c.of[p] || '-')[0]).join('')).join();
      host.dataset.rounds = state.rounds;
    }

    const nextOf = (event) => (!event ? 'has nothing more to do' : event[1] === 'passes' ? doing(event).replace('passes: ', 'waits until: ') : `next: ${doing(event)}`);
    function lineOf(event) {
      const line = event && data.code[keyOf(event)];
      return line ? `${line[0]}\n${line[1]}` : !event ? '' : event[0] < 0 ? 'the barrier itself: no line of code' : 'step4_hopper_blocks.cuh\nadd_dq: an exercise';
    }
    function reserve() {
      kit.reserve(words, kit.range(stops.length + 1).map(sentence));
      kit.reserve(code, stops.map((i) => lineOf(events[i])));
      cells.forEach((cell, who) => {
        cell.parentNode.className = 'now';  // it is wider
        kit.reserve(cell.firstChild, events.filter((e) => e[0] === who).map(nextOf));
      });
    }
    function load() {
      events = data.runs[settings.get('landing')];
      const who = settings.get('who');
      stops = kit.range(events.length).filter((i) => who === 'all' || events[i][0] === Number(who));
      reserve();
      player.reset(stops.length + 1, 0);
    }
    kit.link(host, 'backward_round', settings, player, load);
    kit.onWidth(host, () => {
      reserve();
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.backward_round = figure;
  figure.model = { stateAt, readNow, keyOf };
})();
