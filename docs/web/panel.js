// Run: the chapter's kernels in the simulator, in this page. The chapter's module (docs/web) is loaded when it is first asked for, and every run has
// a worker of its own, which is ended when it gives no sign of life for some seconds.
(function () {
  'use strict';
  const kit = window.flashbookKit, { el } = kit;
  const kSeconds = 5;  // without a new block

  const style = `
.fb-run .output:empty{display:none}
.fb-run .output{margin-top:12px}
.fb-run .verdict{font-weight:600}
.fb-run .verdict.good{color:var(--green-ink)}
.fb-run .verdict.bad{color:var(--red-ink)}
.fb-run pre{margin:8px 0 0;padding:8px 10px;border:1px solid var(--line);border-radius:6px;overflow-x:auto;white-space:pre-wrap;overflow-wrap:anywhere;
  font:13px/1.5 var(--font-family-monospace,ui-monospace,Menlo,Consolas,monospace);background:none;color:inherit}
.fb-run pre .old{display:block;background:var(--red-fill)}
.fb-run pre .new{display:block;background:var(--green-fill)}
.fb-run table.ledger{max-width:34rem}
.fb-run table.ledger td.bad{color:var(--red-ink)}
.fb-run .player{margin-top:0}
.fb-run .player p{flex:1 1 12rem}
.listing .line.taken-out{text-decoration:line-through;opacity:.65}
.listing .line.planted{background:color-mix(in srgb,#17693a 18%,transparent)}
.listing .line.planted::before{content:"+";position:absolute;left:2.4rem}`;

  const digits = (number) => (typeof number === 'number' ? number.toPrecision(2).replace('e', ' e') : String(number));
  const grouped = (number) => String(number).replace(/\B(?=(\d{3})+$)/g, '\u202f');
  const many = (count, one, all) => `${grouped(count)} ${count === 1 ? one : all}`;

  /** A chapter's module, compiled once for all runs. */
  const compiled = {};
  function moduleOf(number) {
    const load = async () => {
      const response = await fetch(`web/${number}.wasm`);
      if (!response.ok) throw new Error(`web/${number}.wasm: ${response.status}`);
      return WebAssembly.compile(await response.arrayBuffer());
    };
    return compiled[number] ||= load().catch((error) => {
      delete compiled[number];
      throw error;
    });
  }

  /** Runs it. Resolves to what the program answers; stop() ends it before. */
  function run(number, words, environment) {
    let worker, timer, settle, block = -1;
    const end = (answer) => {
      clearTimeout(timer);
      worker?.terminate();
      worker = null;
      settle(answer);
    };
    const wait = () => {
      clearTimeout(timer);
      timer = setTimeout(() => end({ endless: true, block }), 1000 * kSeconds);
    };
    const answer = new Promise((resolve) => { settle = resolve; });
    moduleOf(number).then((module) => {
      worker = new Worker('web/worker.js');
      worker.onmessage = ({ data }) => {
        if (data.answer) return end(data.answer);
        block = data.block;
        wait();
      };
      worker.onerror = (error) => end({ refused: error.message || 'the worker cannot be started' });
      worker.postMessage({ glue: `${number}.js`, module, words, environment });
      wait();
    }).catch((error) => settle({ refused: location.protocol === 'file:'
      ? 'browsers load no modules for pages from a disk. python3 -m http.server in this folder serves them' : String(error) }));
    return { answer, stop: () => end({ stopped: true }) };
  }

  /** A text whose places, like pipeline.h:79, lead to the lines. */
  function withPlaces(text, places) {
    const nodes = [];
    let past = 0;
    for (const found of text.matchAll(/\b([\w.]+\.(?:cuh|cu|h|cpp)):(\d+)/g)) {
      const url = places[found[1]];
      if (!url) continue;
      nodes.push(text.slice(past, found.index), el('a', { href: `${url}#l${found[2].padStart(5, '0')}` }, found[0]));
      past = found.index + found[0].length;
    }
    return [...nodes, text.slice(past)];
  }

  /** What is said of a run. */
  function shown(answer, chapter) {
    const verdict = (good, words) => el(`p.verdict.${good ? 'good' : 'bad'}`, {}, words);
    const report = (text) => el('pre', { tabindex: 0 }, ...withPlaces(text, chapter.places));
    if (answer.stopped === true) return [el('p.quiet', {}, 'Stopped.')];
    if (answer.refused) return [verdict(false, 'This cannot run.'), report(answer.refused)];
    if (answer.endless) {
      const after = answer.block < 0 ? '' : `, after block ${answer.block} had begun`;
      return [verdict(false, 'An endless loop'), report(`the kernel gives no sign of life for ${kSeconds} seconds${after}: most often a loop whose counter does not ` +
        'move. The page has ended it, and cannot say where it was: on your machine the same run names the thread and the lines')];
    }
    if (answer.report) return [verdict(false, 'The simulator reports:'), report(answer.report)];
    const right = answer.tensors.every((tensor) => tensor.ok);
    const rows = answer.tensors.map((tensor) => el('tr', {}, el('td', {}, tensor.name), el('td', {}, digits(tensor.error)), el('td', {}, digits(tensor.bound)),
      el(tensor.ok ? 'td' : 'td.bad', {}, tensor.ok ? 'right' : 'wrong')));
    const wrong = answer.tensors.find((tensor) => !tensor.ok);
    return [
      verdict(right, right ? 'Right.' : 'Wrong, and the simulator has nothing to report.'),
      el('table.ledger', {}, el('tr', {}, ...['against FP64', 'largest error', 'allowed', ''].map((words) => el('th', {}, words))), ...rows),
      ...(wrong ? [report(`${wrong.name}: ${wrong.worst}`)] : []),
      el('p.quiet', {}, `${answer.shape}. ${many(answer.launches, 'launch', 'launches')}, ${many(answer.blocks, 'block', 'blocks')}, ` +
        `${many(answer.threads, 'thread', 'threads')}, which had ${many(answer.turns, 'turn', 'turns')}; ${answer.seconds.toFixed(2)} s in the simulator, which say nothing of a GPU. ` +
        `By the model: ${(answer.flops / 1e6).toPrecision(3)} MFLOP, ${(answer.bytes / 1e3).toPrecision(3)} kB moved.`),
    ];
  }

  /** Shows the planted line in the source, if it is on this page. */
  function plant(host, fault, places) {
    for (const line of document.querySelectorAll('.listing .line.planted')) line.remove();
    for (const line of document.querySelectorAll('.listing .line.taken-out')) line.classList.remove('taken-out');
    const line = fault && fault.file === host.dataset.file && document.getElementById(`l${String(fault.line).padStart(5, '0')}`);
    if (line) {
      line.classList.add('taken-out');
      const indent = line.querySelector('.text').textContent.match(/^\s*/)[0];
      line.after(el('span.line.planted', {}, el('span.text', {}, indent + fault.new)));
    }
    if (!fault) return [];
    const file = fault.file.replace(/.*\//, '');
    return [el('pre', { tabindex: 0 }, ...withPlaces(`${file}:${fault.line}`, places), '\n', el('span.old', {}, `- ${fault.old}`), el('span.new', {}, `+ ${fault.new}`))];
  }

  function start(host) {
    const number = host.dataset.module, chapter = window.flashbookModules[number], own = host.dataset.file;
    const faults = [...chapter.faults.filter((fault) => fault.file === own), ...chapter.faults.filter((fault) => fault.file !== own)];
    const numbers = chapter.steps.map((name, i) => [String(i + 1), `${i + 1}: ${name}`]);
    const step = chapter.steps[Number(host.dataset.step) - 1] ? host.dataset.step : String(chapter.steps.length);
    kit.frame(host, null, 'run', style, 'Run this chapter’s kernels here');
    const options = (...all) => all.map((value) => [value, value]);
    const fields = kit.settings([
      { key: 'step', words: 'Step', value: step, options: numbers, grow: true },
      { key: 'n', words: 'N', value: '256', text: true },
      { key: 'd', words: 'd', value: '64', options: options('64', '128') },
      { key: 'mask', words: 'Mask', value: 'full', options: options('full', 'causal') },
      { key: 'mode', words: 'Copies land', value: 'lazy', options: options('lazy', 'eager', 'random') },
      { key: 'seed', words: 'Seed (0: in order)', value: '0', text: true },
      { key: 'fault', words: 'Fault', value: '', grow: true,
        options: [['', 'none: the kernel as it is'], ...faults.map((fault) => [fault.name, fault.about + (fault.file === own ? '' : ` (${fault.file.replace(/.*\//, '')})`)])] },
    ], changed);
    const change = el('div'), output = el('div.output', { 'aria-live': 'polite' });
    const button = el('button.main', { type: 'submit' }, 'Run');
    const note = el('p.quiet', {}, 'The kernels of this page, in the simulator, in your browser.');
    const form = el('form', {}, fields.root, el('div.player', {}, button, note), change, output);
    host.append(form);
    host.hidden = false;
    let running = null;

    const chosen = () => faults.find((fault) => fault.name === fields.get('fault'));
    function load() {
      change.replaceChildren(...plant(host, chosen(), chapter.places));
      output.replaceChildren();
    }
    function changed(key) {
      const fault = key === 'fault' && chosen();
      if (fault) {  // what shows it
        if (!fault.steps.includes(Number(fields.get('step')))) fields.set('step', String(fault.steps[0]));
        for (const [name, value] of Object.entries({ mask: 'full', mode: 'lazy', seed: '0', n: '256', ...fault.settings })) fields.set(name, String(value));
      }
      load();
    }
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (running) return running.stop();
      const seed = fields.get('seed').trim() || '0';
      if (!/^\d{1,9}$/.test(seed)) return output.replaceChildren(...shown({ refused: 'the seed is a whole number' }, chapter));
      output.replaceChildren();
      button.textContent = 'Stop';
      const environment = { FLASHBOOK_SIM_THREADS: '1', FLASHBOOK_SIM_ASYNC: fields.get('mode'), FLASHBOOK_SIM_SEED: seed };
      if (chosen()) environment.FLASHBOOK_FAULT = String(chapter.faults.indexOf(chosen()));
      running = run(number, ['step', 'n', 'd', 'mask'].map((key) => `${key}=${fields.get(key).trim()}`), environment);
      const answer = await running.answer;
      running = null;
      button.textContent = 'Run';
      output.replaceChildren(...shown(answer, chapter));
      host.dataset.runs = Number(host.dataset.runs || 0) + 1;
    };
    kit.link(host, 'run', fields, null, load);
  }

  const begin = () => {
    if (typeof WebAssembly !== 'object' || typeof Worker !== 'function') return;
    for (const host of document.querySelectorAll('div[data-module]')) start(host);
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', begin);
  else begin();
})();
