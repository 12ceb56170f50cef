// Run: the chapter's kernels in the simulator, in this page. The chapter's module (docs/web) is loaded on first use, and every run has its own
// worker, which is terminated after some seconds without a sign of life. If the page shows a fault (data-fault), one button runs the kernel without
// it and with it; otherwise there are fields for all settings.
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
.fb-run pre .old:empty,.fb-run pre .new:empty{display:none}
.fb-run table.ledger{max-width:34rem}
.fb-run table.ledger td.bad{color:var(--red-ink)}
.fb-run .player{margin-top:0}
.fb-run .player p{flex:1 1 12rem}
.fb-run p.words{margin:0 0 10px}
.fb-run code{font-size:13px;overflow-wrap:anywhere;white-space:normal}
.fb-run h4{margin:0 0 4px;font-size:14px;font-weight:600}
.fb-run .halves{margin-top:12px}
.listing .line.taken-out{text-decoration:line-through;opacity:.65}
.listing .line.planted{background:color-mix(in srgb,#17693a 18%,transparent)}
.listing .line.planted::before{content:"+";position:absolute;left:2.4rem}`;

  const digits = (number) => (typeof number !== 'number' ? String(number) : number && number < 1e-3 ? number.toExponential(1) : number.toPrecision(2));
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

  /** Runs a chapter with these settings, and with a fault or none. Resolves to the program's answer; stop() ends the run early. */
  function run(chapter, settings, fault) {
    const environment = { FLASHBOOK_SIM_THREADS: '1', FLASHBOOK_SIM_ASYNC: settings.mode, FLASHBOOK_SIM_SEED: settings.seed };
    if (fault) environment.FLASHBOOK_FAULT = String(chapter.faults.indexOf(fault));
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
    moduleOf(chapter.number).then((module) => {
      worker = new Worker('web/worker.js');
      worker.onmessage = ({ data }) => {
        if (data.answer) return end(data.answer);
        block = data.block;
        wait();
      };
      worker.onerror = (error) => end({ refused: error.message || 'the worker could not be started' });
      worker.postMessage({ glue: `${chapter.number}.js`, module, chapter, settings, environment });
      wait();
    }).catch((error) => settle({ refused: location.protocol === 'file:'
      ? 'browsers do not load modules for pages on a disk. python3 -m http.server in this folder serves them' : String(error) }));
    return { answer, stop: () => end({ stopped: true }) };
  }

  /** Returns a text in which places such as pipeline.h:79 link to their lines. */
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

  const isRight = (answer) => Boolean(answer.tensors) && answer.tensors.every((tensor) => tensor.ok);

  /** Returns the command that runs the same without a page. */
  function command(chapter, settings, words) {
    const mode = settings.mode === 'lazy' && settings.seed === '0' ? '' : `FLASHBOOK_SIM_ASYNC=${settings.mode} FLASHBOOK_SIM_SEED=${settings.seed} `;
    return `${mode}./flashbook run ${chapter.number} -- ${words.join(' ')}`;
  }

  /** Returns the elements that describe the outcome of a run. */
  function shown(answer, chapter, settings, fault) {
    const verdict = (good, words) => el(`p.verdict.${good ? 'good' : 'bad'}`, {}, words);
    const report = (text) => el('pre', { tabindex: 0 }, ...withPlaces(text, chapter.places));
    if (answer.stopped === true) return [el('p.quiet', {}, 'Stopped.')];
    if (answer.refused) return [verdict(false, 'This cannot run.'), report(answer.refused)];
    if (answer.endless) {
      const after = answer.block < 0 ? '' : `, after block ${answer.block} had begun`;
      return [verdict(false, 'An endless loop'), report(`no new block began for ${kSeconds} seconds${after}: usually a loop whose counter does not ` +
        'advance. The page stopped the kernel and cannot say where it was; on your machine the same run names the thread and the lines')];
    }
    if (answer.report) return [verdict(false, 'The simulator reports:'), report(answer.report)];
    const right = isRight(answer);
    const rows = answer.tensors.map((tensor) => el('tr', {}, el('td', {}, tensor.name), el('td', {}, digits(tensor.error)), el('td', {}, digits(tensor.bound)),
      el(tensor.ok ? 'td' : 'td.bad', {}, tensor.ok ? 'right' : 'wrong')));
    const wrong = answer.tensors.find((tensor) => !tensor.ok);
    const counts = answer.launches ? `${many(answer.launches, 'launch', 'launches')}, ${many(answer.blocks, 'block', 'blocks')}, ${many(answer.threads, 'thread', 'threads')}, ` +
      `which had ${many(answer.turns, 'turn', 'turns')}; ${answer.seconds.toFixed(2)} s in the simulator, which says nothing about a GPU` : `${answer.seconds.toFixed(2)} s of your processor`;
    const moved = answer.bytes ? `, ${(answer.bytes / 1e3).toPrecision(3)} kB moved` : '';
    const luck = right && fault ? fault.unseen || 'The result is right nevertheless: the fault did no harm in this order. Another mode or seed may show it, and the traced mode checks every access' : '';
    return [
      verdict(right, right ? 'Right.' : 'Wrong, and the simulator has nothing to report.'),
      ...(luck ? [el('p', {}, `${luck}.`)] : []),
      el('table.ledger', {}, el('tr', {}, ...['against FP64', 'largest error', 'allowed', ''].map((words) => el('th', {}, words))), ...rows),
      ...(wrong ? [report(`${wrong.name}: ${wrong.worst}`)] : []),
      el('p.quiet', {}, `${answer.shape}. ${counts}. By the model: ${(answer.flops / 1e6).toPrecision(3)} MFLOP${moved}.`),
      ...(fault || answer.words.includes('--made') ? [] : [el('p.quiet', {}, 'On your machine: ', el('code', {}, command(chapter, settings, answer.words)))]),
    ];
  }

  /** Returns the lines that a fault changes, as a diff. */
  function change(fault, places) {
    const file = fault.file.replace(/.*\//, '');
    const lines = (mark, text) => text.split('\n').filter(Boolean).map((line) => `${mark} ${line}`).join('\n');
    return el('pre', { tabindex: 0 }, ...withPlaces(`${file}:${fault.line}`, places), '\n', el('span.old', {}, lines('-', fault.old)), el('span.new', {}, lines('+', fault.new)));
  }

  /** Shows the planted line in the source, if it is on this page. */
  function plant(host, fault) {
    for (const line of document.querySelectorAll('.listing .line.planted')) line.remove();
    for (const line of document.querySelectorAll('.listing .line.taken-out')) line.classList.remove('taken-out');
    const line = fault && fault.file === host.dataset.file && document.getElementById(`l${String(fault.line).padStart(5, '0')}`);
    if (!line) return;
    line.classList.add('taken-out');
    const indent = line.querySelector('.text').textContent.match(/^\s*/)[0];
    line.after(el('span.line.planted', {}, el('span.text', {}, indent + fault.new)));
  }

  /** Returns the settings that show a fault. */
  const settingsOf = (fault) => Object.fromEntries(Object.entries({ step: fault.steps[0], n: 256, d: 64, mask: 'full', mode: 'lazy', seed: 0, more: '', ...fault.settings })
    .map(([key, value]) => [key, String(value)]));

  function startFault(host, chapter) {
    const fault = chapter.faults.find((one) => one.name === host.dataset.fault), settings = settingsOf(fault);
    kit.frame(host, null, 'run', style, 'Run both here');
    const button = el('button.main', { type: 'button' }, 'Run both here'), output = el('div.output', { 'aria-live': 'polite' });
    const how = [`step ${settings.step}`, `N ${settings.n}`, `d ${settings.d}`, chapter.masks[settings.mask].words, settings.mode + (settings.seed === '0' ? '' : `, seed ${settings.seed}`)];
    const note = el('p.quiet', {}, `In the simulator, in your browser: the kernel without and with this fault (${[...how, settings.more].filter(Boolean).join(', ')}). ` +
      'The traced mode, which checks every access, is not available here.');
    host.append(el('div.player', {}, button, note), output);
    host.hidden = false;
    button.onclick = async () => {
      button.disabled = true;
      output.replaceChildren();
      const halves = el('div.halves');
      for (const [words, planted] of [['Without the fault', null], ['With the fault', fault]]) {
        const answer = await run(chapter, settings, planted).answer;
        halves.append(el('div', {}, el('h4', {}, words), ...shown(answer, chapter, settings, planted)));
      }
      output.replaceChildren(halves);
      button.disabled = false;
      host.dataset.runs = Number(host.dataset.runs || 0) + 1;
    };
  }

  function startPanel(host, chapter) {
    const own = host.dataset.file;
    const faults = [...chapter.faults.filter((fault) => fault.file === own), ...chapter.faults.filter((fault) => fault.file !== own)];
    const numbers = chapter.steps.map((name, i) => [String(i + 1), `${i + 1}: ${name}`]);
    const step = chapter.steps[Number(host.dataset.step) - 1] ? host.dataset.step : String(chapter.steps.length);
    kit.frame(host, null, 'run', style, 'Run this chapter’s kernels here');
    const options = (...all) => all.map((value) => [value, value]);
    const fields = kit.settings([
      { key: 'step', words: 'Step', value: step, options: numbers, grow: true },
      { key: 'n', words: 'N', value: '256', text: true },
      { key: 'd', words: 'd', value: '64', options: options('64', '128') },
      { key: 'mask', words: 'Mask', value: 'full', options: Object.entries(chapter.masks).map(([key, mask]) => [key, mask.words]) },
      { key: 'mode', words: 'Copies land', value: 'lazy', options: options('lazy', 'eager', 'random') },
      { key: 'seed', words: 'Seed (0: in order)', value: '0', text: true },
      { key: 'fault', words: 'Fault', value: '', grow: true,
        options: [['', 'none'], ...faults.map((fault) => [fault.name, fault.about + (fault.file === own ? '' : ` (${fault.file.replace(/.*\//, '')})`)])] },
      { key: 'more', words: 'Other options of the program', value: '', text: true, grow: true },
    ], changed);
    const line = el('div'), output = el('div.output', { 'aria-live': 'polite' });
    const button = el('button.main', { type: 'submit' }, 'Run');
    const note = el('p.quiet', {}, 'In the simulator, in your browser.');
    const words = host.dataset.words ? [el('p.words', {}, host.dataset.words)] : [];
    const form = el('form', {}, ...words, fields.root, el('div.player', {}, button, note), line, output);
    host.append(form);
    host.hidden = false;
    let running = null;

    const chosen = () => faults.find((fault) => fault.name === fields.get('fault'));
    function load() {
      const fault = chosen();
      plant(host, fault);
      line.replaceChildren(...(fault ? [change(fault, chapter.places)] : []));
      output.replaceChildren();
    }
    function changed(key) {
      const fault = key === 'fault' && chosen(), takers = key === 'mask' ? chapter.masks[fields.get('mask')].steps : [];
      if (fault) {
        const { step: first, ...others } = settingsOf(fault);
        if (!fault.steps.includes(Number(fields.get('step')))) fields.set('step', first);
        for (const [name, value] of Object.entries(others)) fields.set(name, value);
      }
      if (takers.length && !takers.includes(Number(fields.get('step')))) fields.set('step', String(takers[0]));
      load();
    }
    form.onsubmit = async (event) => {
      event.preventDefault();
      if (running) return running.stop();
      const settings = Object.fromEntries(Object.keys(fields.nodes).map((key) => [key, fields.get(key).trim()])), fault = chosen();
      settings.seed ||= '0';
      if (!/^\d{1,9}$/.test(settings.seed)) return output.replaceChildren(...shown({ refused: 'the seed is a whole number' }, chapter, settings));
      output.replaceChildren();
      button.textContent = 'Stop';
      running = run(chapter, settings, fault);
      const answer = await running.answer;
      running = null;
      button.textContent = 'Run';
      output.replaceChildren(...shown(answer, chapter, settings, fault));
      host.dataset.runs = Number(host.dataset.runs || 0) + 1;
    };
    kit.link(host, 'run', fields, null, load);
  }

  const begin = () => {
    if (typeof WebAssembly !== 'object' || typeof Worker !== 'function') return;
    for (const host of document.querySelectorAll('div[data-module]')) {
      const chapter = window.flashbookModules[host.dataset.module];
      if (host.dataset.fault) startFault(host, chapter);
      else startPanel(host, chapter);
    }
  };
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', begin);
  else begin();
})();
