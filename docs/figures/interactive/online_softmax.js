// Online softmax, block by block. Use: flashbookFigures.online_softmax(host, img), host an empty <div>, img the picture
// it replaces. `model` computes the numbers, independently of the page; the rest draws them.
(function () {
  'use strict';

  // ---- The model: everything that is computed ----

  const presets = [
    { name: 'the worked example', scores: [2, 5, 3], blockSize: 2 },
    { name: 'twelve scores', scores: [1, 0, 2, 1.5, 3, 2, 0.5, 4, 3.5, 1, 5, 4], blockSize: 3 },
    { name: 'three blocks of four', scores: [2.1, 0.5, -1.2, 0.8, 1.5, 3.2, 0.3, -0.4, -0.8, 0.9, 2.5, 1.1], blockSize: 4 },
    { name: 'all equal', scores: [2, 2, 2, 2, 2, 2], blockSize: 2 },
    { name: 'a huge late maximum', scores: [3, 1, 2, 5, 0, 1e4], blockSize: 2 },
    { name: 'a masked first block', scores: [-Infinity, -Infinity, 1, 3], blockSize: 2 },
  ];
  const maxScores = 16;

  /** "2, 5 -inf" -> [2, 5, -Infinity]; null if it is not a row of 1 to 16 numbers. */
  function parse(text) {
    const scores = text.replace(/\u2212/g, '-').split(/[\s,;]+/).filter(Boolean)
      .map((word) => (/^-(inf(inity)?|∞)$/i.test(word) ? -Infinity : Number(word)));
    const valid = scores.length >= 1 && scores.length <= maxScores && scores.every((s) => s < Infinity);  // false for NaN as well
    return valid ? scores : null;
  }

  /** exp(x - m), the term of a score x. The term of a masked score is 0, even if no other score has been seen: -inf - -inf would be NaN. */
  const term = (x, m) => (x === -Infinity ? 0 : Math.exp(x - m));
  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

  /** Key i has the value i, counted from 1: one column of V. */
  const value = (i) => i + 1;

  /** The safe softmax: a pass for the maximum, a pass for the sum; and the row of the output, o. */
  function twoPass(scores) {
    const m = Math.max(...scores);
    const l = sum(scores.map((x) => term(x, m)));
    const weights = scores.map((x) => (l > 0 ? term(x, m) / l : 0));
    return { m, l, weights, o: sum(weights.map((w, i) => w * value(i))) };
  }

  /** One entry per block: its effect on the running maximum m, the running sum l and the unfinished output o. */
  function online(scores, blockSize) {
    const blocks = [];
    let m = -Infinity, l = 0, o = 0;
    for (let begin = 0; begin < scores.length; begin += blockSize) {
      const block = scores.slice(begin, begin + blockSize);
      const newMax = Math.max(m, ...block);
      const correction = newMax === -Infinity ? 1 : Math.exp(m - newMax);  // while all scores are masked, the sum stays 0
      const terms = block.map((x) => term(x, newMax));
      const carried = l * correction;
      const newSum = carried + sum(terms);
      const added = sum(terms.map((t, i) => t * value(begin + i))), newOutput = o * correction + added;
      blocks.push({ begin, end: begin + block.length, block, oldMax: m, m: newMax, correction, oldSum: l, carried, terms, l: newSum, oldOutput: o, added, o: newOutput });
      m = newMax;
      l = newSum;
      o = newOutput;
    }
    return { m, l, o: l > 0 ? o / l : 0, weights: scores.map((x) => (l > 0 ? term(x, m) / l : 0)), blocks };
  }

  /** The reader's steps: start; for each block `correct` and `add`; `compare`. */
  function run(scores, blockSize) {
    const result = online(scores, blockSize);
    const check = twoPass(scores);
    const steps = [{ kind: 'start' }];
    result.blocks.forEach((b, index) => steps.push({ kind: 'correct', index }, { kind: 'add', index }));
    steps.push({ kind: 'compare' });
    const worst = Math.max(...result.weights.map((w, i) => Math.abs(w - check.weights[i])));
    return { scores, blockSize, ...result, twoPass: check, difference: Math.abs(result.l - check.l), worstWeight: worst, steps };
  }

  // ---- Numbers as text ----

  const superscript = (n) => String(n).replace('-', '⁻').replace(/\d/g, (c) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[c]);

  /** Up to `digits` decimals; a number that would round to 0 is written as a power of ten. */
  function text(x, digits = 4) {
    if (x === -Infinity) return '−∞';
    if (x === Infinity) return '∞';
    let s = String(Number(x.toFixed(digits)));
    if (x !== 0 && Number(s) === 0) {
      const [mantissa, power] = x.toExponential(1).split('e');
      s = `${Number(mantissa)}·10${superscript(Number(power))}`;
    }
    return s.replace('-', '−');
  }
  const short = (x) => (x > 0 && x < 0.005 ? '≈0' : String(Number(x.toFixed(2))).replace(/^0\./, '.'));
  const times = (a, b) => `${text(a)} · ${text(b)}`;
  const inParentheses = (x) => (x < 0 ? `(${text(x)})` : text(x));

  /** Returns the sentence for a step. */
  function sentence(r, k) {
    const { kind, index } = r.steps[k];
    const name = `Block ${index + 1} of ${r.blocks.length}`;
    if (kind === 'start') return 'No score has been read yet. The running maximum m starts at −∞, the running sum ℓ at 0.';
    if (kind === 'compare') {
      const overflow = r.m > 88.7 ? ` Without subtracting the maximum, exp(${text(r.m)}) would be ∞ in float32.` : '';
      const repaired = (blocks) => blocks.some((b) => b.correction > 0 && b.correction < 1);
      const moved = !repaired(r.blocks) && repaired(online(r.scores, 1).blocks)
        ? ' No correction was needed between two blocks: try block size 1 to see one.' : '';
      if (r.l === 0) return 'Every score is masked: the sum is empty, and the softmax of the row is defined as 0.';
      const same = r.difference === 0 ? 'exactly the same' : `the same up to a rounding error of ${text(r.difference)}`;
      return `Every score was read once. Two passes over the whole row, first for the maximum, then for the sum, give ${same}.` +
        ` Divided by ℓ, the bars are the softmax.${overflow}${moved}`;
    }
    const b = r.blocks[index], largest = Math.max(...b.block), one = b.block.length === 1;
    if (kind === 'add') {
      if (b.l === 0) return `${name}: its scores are masked, exp(−∞) = 0. The sum stays 0.`;
      return `${name}: add ${one ? 'its term' : 'its terms'} exp(s\u00a0−\u00a0m). The sum is now ${text(b.l)}, and no later step looks at ` +
        `${one ? 'this score' : 'these scores'} again.`;
    }
    const seen = `${name}: ${one ? 'its score' : 'its largest score'} is ${text(largest)}`;
    if (b.m === -Infinity) return `${seen}: masked. There is no maximum yet, and −∞ − (−∞) would be NaN, so the sum stays unchanged.`;
    if (b.oldMax === -Infinity) return `${seen}, so m becomes ${text(b.m)}. ` +
      'Nothing has been summed yet: the correction is exp(−∞) = 0, and 0 · 0 = 0.';
    if (b.m === b.oldMax) return `${seen}, not above m = ${text(b.m)}. The maximum stays, the correction is exp(0) = 1: nothing to repair.`;
    const gone = b.correction === 0 ? ' So small that it is 0: what was summed no longer counts.' : '';
    return `${seen}, above m\u00a0=\u00a0${text(b.oldMax)}. Everything summed so far was relative to ${text(b.oldMax)}. ` +
      `One factor corrects it: exp(${text(b.oldMax)}\u00a0−\u00a0${inParentheses(b.m)})\u00a0=\u00a0${text(b.correction)}.${gone}`;
  }

  // ---- The page ----

  const css = `
.fb-online_softmax .chart{display:grid;grid-template-rows:auto auto 92px auto 10px auto 110px auto}
.fb-online_softmax .bracket{text-align:center;font-size:13px;color:var(--soft);border-bottom:3px solid var(--line);white-space:nowrap}
.fb-online_softmax .bracket.now{color:var(--ink);border-color:var(--accent)}
.fb-online_softmax .what{font-size:13px;color:var(--soft);padding:6px 0 2px}
.fb-online_softmax .field{background:var(--odd-color,rgba(128,128,128,.05));border-bottom:1px solid var(--line)}
.fb-online_softmax .cell{position:relative}
.fb-online_softmax .tick{position:absolute;left:14%;right:14%;height:5px;border-radius:3px;border:1.5px solid var(--soft)}
.fb-online_softmax .seen .tick{background:var(--soft)}
.fb-online_softmax .now .tick{background:var(--accent);border-color:var(--accent)}
.fb-online_softmax .gap{position:absolute;left:50%;border-left:2px dotted var(--soft);opacity:0}
.fb-online_softmax .seen .gap{opacity:.8}
.fb-online_softmax .number{text-align:center;font-size:13px;white-space:nowrap}
.fb-online_softmax .ahead .number,.fb-online_softmax .number.ahead{color:var(--soft)}
.fb-online_softmax .level{position:absolute;left:0;right:0;border-top:2px solid var(--amber)}
.fb-online_softmax .beside{position:absolute;left:6px;font-size:13px;white-space:nowrap;transform:translateY(50%)}
.fb-online_softmax .bar,.fb-online_softmax .ghost{position:absolute;bottom:0;left:14%;right:14%;border-radius:3px 3px 0 0}
.fb-online_softmax .bar{background:var(--accent)}
.fb-online_softmax .seen .bar{opacity:.5}
.fb-online_softmax .now .bar{opacity:1}
.fb-online_softmax .ghost{border:1.5px dashed var(--amber);border-bottom:0}
.fb-online_softmax .over{position:absolute;left:0;right:0;text-align:center;font-size:12px;white-space:nowrap}
.fb-online_softmax .sumline{display:grid;grid-template-columns:minmax(0,1fr) 5.2rem}
.fb-online_softmax .strip{position:relative;height:22px;background:var(--odd-color,rgba(128,128,128,.05));border-bottom:1px solid var(--line)}
.fb-online_softmax .strip>div{position:absolute;top:0;bottom:0}
.fb-online_softmax .strip .carried{left:0;background:var(--accent);opacity:.5}
.fb-online_softmax .strip .added{background:var(--accent)}
.fb-online_softmax .strip .before{left:0;border:1.5px dashed var(--amber);color:var(--amber-ink);font-size:13px;line-height:20px;text-align:right;padding-right:6px;overflow:hidden;white-space:nowrap}
.fb-online_softmax .rules{margin-top:8px;border-top:1px solid var(--line)}
.fb-online_softmax .rule{padding:5px 0 5px 10px;border-left:3px solid transparent;opacity:.8}
.fb-online_softmax .rule.now{opacity:1;border-color:var(--accent)}
.fb-online_softmax .rule.amber.now{border-color:var(--amber)}
.fb-online_softmax .rule b{font-weight:600}
.fb-online_softmax .rule .values{padding-left:1.1em;color:var(--ink);overflow-x:auto;white-space:nowrap;scrollbar-width:none}
.fb-online_softmax sub{font-size:.75em;line-height:0}
.fb-online_softmax tr.now td{font-weight:600}
.fb-online_softmax .later{color:var(--soft)}
.fb-online_softmax table.ledger :is(th,td){line-height:20px;height:25px;padding:2px 4px}
@media (prefers-reduced-motion:no-preference){.fb-online_softmax .smooth :is(.bar,.level,.gap,.over,.beside,.strip>div){
  transition:height .6s ease,bottom .6s ease,left .6s ease,width .6s ease}}
`;

  function figure(host, img) {
    const kit = window.flashbookKit, { el } = kit;
    const panelHeight = 92, barHeight = 92;  // heights of the two charts' rows, as in the style sheet
    let result;

    const settings = kit.settings([
      { key: 'preset', words: 'example', grow: true, value: 0, options: presets.map((p, i) => [i, p.name]) },
      { key: 'scores', words: 'scores of one row', grow: true, value: '', text: true },
      { key: 'block', words: 'block size', value: 1, options: kit.range(maxScores).map((i) => [i + 1, i + 1]) },
    ], (key) => (key === 'preset' ? loadPreset() : load()));
    const input = settings.nodes.scores, inputLabel = input.previousSibling, blockSize = settings.nodes.block;
    const chart = el('div.chart', { role: 'img' });
    const strip = {
      before: el('div.before'), carried: el('div.carried'), added: el('div.added'), label: el('span.beside'),
    };
    const picture = el('div', {}, chart,
      el('div.what', {}, 'running sum ℓ, the bars end to end'),
      el('div.sumline', {}, el('div.strip', {}, strip.carried, strip.added, strip.before), el('div.cell', {}, strip.label)));
    const player = kit.player(show, 1600);
    const words = el('p.sentence', { 'aria-live': 'polite' });
    const rules = el('div.rules');
    const history = el('table.ledger');
    const verdict = el('table.ledger');
    kit.frame(host, img, 'online_softmax', css, 'Online softmax, step by step');
    host.replaceChildren(settings.root,
      el('div.halves', {}, el('div', {}, picture, player.root), el('div', {}, words, rules, history, verdict)));

    // -- The chart: built once per row, updated at every step --
    let cells, brackets, level, levelLabel, divided, rows;

    function build() {
      const { scores, blocks } = result;
      const columns = [], columnOf = [];
      blocks.forEach((b, index) => {
        if (index) columns.push('8px');
        for (let i = b.begin; i < b.end; ++i) {
          columns.push('minmax(0,1fr)');
          columnOf[i] = columns.length;
        }
      });
      columns.push('5.2rem');
      const end = columns.length;
      chart.style.gridTemplateColumns = columns.join(' ');
      const place = (node, row, from, to) => {
        node.style.gridArea = `${row} / ${from} / ${row + 1} / ${to}`;
        chart.append(node);
        return node;
      };

      chart.replaceChildren();
      const wide = blocks.length <= 4;
      brackets = blocks.map((b, i) => place(
        el('div.bracket', {}, wide && scores.length / blocks.length >= 1.5 ? `block ${i + 1}` : `${i + 1}`),
        1, columnOf[b.begin], columnOf[b.end - 1] + 1));
      place(el('div.what', {}, 'scores s, and how far they are below m'), 2, 1, -1);
      place(el('div.what', {}, 'terms exp(s − m)'), 6, 1, -1);
      divided = place(el('div.what', {}, '÷ ℓ: softmax'), 8, end, -1);
      divided.style.paddingLeft = '6px';
      blocks.forEach((b) => [3, 7].forEach((row) => place(el('div.field'), row, columnOf[b.begin], columnOf[b.end - 1] + 1)));

      // The line of m is below the ticks, from the first column to the label next to the last.
      const levelCell = place(el('div.cell', {}, level = el('div.level')), 3, 1, end);
      levelCell.style.pointerEvents = 'none';
      place(el('div.cell', {}, levelLabel = el('span.beside')), 3, end, -1);

      const finite = scores.filter((s) => s > -Infinity);
      const low = Math.min(...finite), high = Math.max(...finite);
      const height = (s) => (s === -Infinity || !finite.length ? 0
        : high === low ? panelHeight / 2 : 14 + ((s - low) / (high - low)) * (panelHeight - 32));
      cells = scores.map((s, i) => {
        const c = {
          gap: el('div.gap'), tick: el('div.tick'), number: el('div.number', {}, text(s, 2)), ghost: el('div.ghost'), bar: el('div.bar'),
          over: el('div.over'), weight: el('div.number'), height: height(s),
        };
        c.tick.style.bottom = `${c.height}px`;
        c.top = place(el('div.cell', {}, c.gap, c.tick), 3, columnOf[i], columnOf[i] + 1);
        place(c.number, 4, columnOf[i], columnOf[i] + 1);
        c.bottom = place(el('div.cell', {}, c.bar, c.ghost, c.over), 7, columnOf[i], columnOf[i] + 1);
        c.weight.style.paddingTop = '6px';
        if (scores.length > 8) c.weight.style.fontSize = c.over.style.fontSize = '11px';
        place(c.weight, 8, columnOf[i], columnOf[i] + 1);
        return c;
      });
      result.levelHeight = height;

      const head = ['block', 'm', 'correction', 'ℓ', 'O'];
      rows = blocks.map((b, i) => el('tr', {}, ...[`${i + 1}`, '', '', '', ''].map((t) => el('td', {}, t))));
      history.replaceChildren(el('tr', {}, ...head.map((h) => el('th', {}, h))), ...rows);
    }

    function show(k, announce) {
      const { scores, blocks, steps } = result;
      const step = steps[k], compare = step.kind === 'compare', start = step.kind === 'start';
      const index = start ? -1 : compare ? blocks.length : step.index;
      const b = blocks[index], adding = step.kind === 'add';
      const m = b ? b.m : compare ? result.m : -Infinity;
      const l = b ? (adding ? b.l : b.carried) : compare ? result.l : 0;

      // During the correction a block's scores are known but its terms are not yet added, so it has no bars.
      brackets.forEach((node, i) => node.classList.toggle('now', i === index));
      blocks.forEach((block, i) => {
        for (let j = block.begin; j < block.end; ++j) {
          const c = cells[j], seen = i <= index, summed = i < index || (i === index && adding);
          const now = i === index;
          for (const node of [c.top, c.bottom]) {
            node.classList.toggle('seen', seen);
            node.classList.toggle('now', now);
          }
          c.number.classList.toggle('ahead', !seen);
          const value = summed ? term(scores[j], m) : 0;
          const before = step.kind === 'correct' && summed ? term(scores[j], b.oldMax) : 0;
          const drop = result.levelHeight(m) + 1 - (c.height + 5);
          c.gap.style.bottom = `${c.height + 5}px`;
          c.gap.style.height = `${seen && scores[j] > -Infinity ? Math.max(0, drop) : 0}px`;
          c.bar.style.height = `${summed ? Math.max(value > 0 ? 1 : 0, value * barHeight) : 0}px`;
          c.ghost.style.height = `${before * barHeight}px`;
          c.ghost.style.display = before - value > 0.005 ? '' : 'none';
          c.over.style.bottom = `${value * barHeight + 1}px`;
          c.over.textContent = summed ? short(value) : '';
          c.weight.textContent = compare ? short(result.weights[j]) : '\u00a0';
        }
      });
      divided.style.visibility = compare ? '' : 'hidden';
      level.style.bottom = levelLabel.style.bottom = `${result.levelHeight(m) + (m === -Infinity ? 0 : 2)}px`;
      levelLabel.textContent = `m = ${text(m)}`;

      const longest = Math.max(...blocks.map((x) => Math.max(x.oldSum, x.l)), 1e-9);
      const percent = (x) => `${(100 * x) / longest}%`;
      const carried = b ? b.carried : l;
      strip.carried.style.width = percent(carried);
      strip.added.style.left = percent(carried);
      strip.added.style.width = percent(l - carried);
      strip.before.style.width = percent(step.kind === 'correct' ? b.oldSum : 0);
      strip.before.textContent = b ? `× ${text(b.correction)}` : '';
      strip.before.style.display = step.kind === 'correct' && b.oldSum - b.carried > 0 ? '' : 'none';
      strip.label.textContent = `ℓ = ${text(l)}`;
      strip.label.style.bottom = '11px';

      kit.say(words, sentence(result, k), announce);
      chart.setAttribute('aria-label', `Scores ${scores.map((s) => text(s, 2)).join(', ')}. Running maximum ${text(m)}, running sum ${text(l)}.`);
      host.dataset.m = m;
      host.dataset.l = l;

      drawRules(step, compare ? blocks[blocks.length - 1] : b);
      rows.forEach((row, i) => {
        const x = blocks[i], known = i < index, half = i === index;
        row.className = half ? 'now' : '';
        const values = [`${i + 1}`, text(x.m), text(x.correction), text(x.l), text(x.o)];
        [...row.children].forEach((td, c) => { td.textContent = known || c === 0 || (half && (adding || c < 3)) ? values[c] : '·'; });
      });
      drawVerdict(compare);
    }

    function drawRules(step, b) {
      const old = (x) => `<i>${x}</i><sub>old</sub>`;
      const blockMax = b && b.block.length > 4 ? `block’s ${text(Math.max(...b.block))}` : b && b.block.map((x) => text(x)).join(', ');
      const added = b && (b.terms.length > 2 ? `${text(sum(b.terms))}` : b.terms.map((x) => text(x)).join(' + '));
      const lines = [
        ['correct', '', `<b>maximum</b> <i>m</i> = max(${old('m')}, scores of the block)`,
          b && `= max(${text(b.oldMax)}, ${blockMax}) = <b>${text(b.m)}</b>`],
        ['correct', '.amber', `<b>correction</b> <i>c</i> = exp(${old('m')} − <i>m</i>)`,
          b && (b.m === -Infinity ? '= 1, set by hand: −∞ − (−∞) is NaN' : `= exp(${text(b.oldMax)} − ${inParentheses(b.m)}) = <b>${text(b.correction)}</b>`)],
        ['add', '', `<b>sum</b> <i>ℓ</i> = ${old('ℓ')} · <i>c</i> + Σ exp(<i>s</i> − <i>m</i>)`,
          b && (step.kind !== 'correct' ? `= ${times(b.oldSum, b.correction)} + ${added} = <b>${text(b.l)}</b>` : `= ${times(b.oldSum, b.correction)} + …`)],
        ['add', '', `<b>output</b> <i>O</i> = ${old('O')} · <i>c</i> + Σ exp(<i>s</i> − <i>m</i>) <i>v</i>, <i>v</i> = 1, 2, …`,
          b && (step.kind !== 'correct' ? `= ${times(b.oldOutput, b.correction)} + ${text(b.added)} = <b>${text(b.o)}</b>` : `= ${times(b.oldOutput, b.correction)} + …`)],
      ];
      rules.replaceChildren(...lines.map(([kind, extra, symbols, values]) => {
        const line = el(`div.rule${extra}${kind === step.kind ? '.now' : ''}`, {}, el('div'), el('div.values'));
        line.children[0].innerHTML = symbols;  // our own markup and numbers that text() wrote
        line.children[1].innerHTML = values || '…';
        return line;
      }));
    }

    function drawVerdict(compare) {
      const row = (kind, ...values) => el('tr', {}, ...values.map((v) => el(kind, {}, v)));
      const t = result.twoPass;
      verdict.classList.toggle('later', !compare);
      verdict.replaceChildren(
        row('th', 'at the end', 'm', 'ℓ', 'O / ℓ'),
        row('td', 'online', ...(compare ? [text(result.m), text(result.l, 6), text(result.o, 6)] : ['·', '·', '·'])),
        row('td', 'two passes', ...(compare ? [text(t.m), text(t.l, 6), text(t.o, 6)] : ['·', '·', '·'])),
        row('td', 'difference', ...(compare ? [t.m === result.m ? '0' : text(Math.abs(t.m - result.m)), text(result.difference, 6), text(Math.abs(t.o - result.o), 6)]
          : ['·', '·', '·'])));
    }

    const reserve = () => kit.reserve(words, result.steps.map((_, k) => sentence(result, k)));

    // -- Settings --
    /** Shows the scores and the block size that are set; invalid scores leave the previous row in place. */
    function load() {
      const scores = parse(input.value);
      input.setAttribute('aria-invalid', !scores);
      inputLabel.textContent = scores ? 'scores of one row' : `1 to ${maxScores} numbers, please`;
      if (!scores) return;
      const size = Math.min(Number(blockSize.value), scores.length);
      result = run(scores, size);
      for (const option of blockSize.options) option.hidden = option.disabled = option.value > scores.length;
      blockSize.value = size;
      picture.classList.remove('smooth');
      build();
      reserve();
      player.reset(result.steps.length, 0);
      void picture.offsetHeight;  // forces a layout without transitions
      picture.classList.add('smooth');
    }
    function loadPreset() {
      const p = presets[settings.get('preset')];
      input.value = p.scores.map((s) => (s === -Infinity ? '-inf' : s)).join(', ');
      blockSize.value = p.blockSize;
      load();
    }
    loadPreset();
    kit.link(host, 'online_softmax', settings, player, load);
    kit.onWidth(host, () => {
      reserve();
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.online_softmax = figure;
  figure.model = { presets, parse, twoPass, online, run, sentence };
})();
