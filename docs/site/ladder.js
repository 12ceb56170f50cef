// The front page's ladder with a choice of shape and type. The numbers, window.flashbookLadder, are in ladder_data.js, which
// tools/ladder_data.py makes of the result files. Without this script the still picture of one shape stays.
(function () {
  'use strict';
  const PEERS = ['FlashAttention-3', 'cuDNN'];
  const CHOICES = [
    ['type', 'type', [['bf16', 'BF16'], ['e4m3', 'FP8']]],
    ['head_dim', 'head_dim', [[64, '64'], [128, '128'], [256, '256']]],
    ['mask', 'mask', [['full', 'none'], ['causal', 'causal']]],
    ['seqlen', 'N', [512, 1024, 2048, 4096, 8192, 16384].map((n) => [n, n < 1024 ? String(n) : `${n / 1024}k`])],
  ];

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  /** [words, TFLOP/s, is it ours, does a group begin] from the bottom to the top. */
  function rows(shape, type) {
    const own = type === 'bf16' ? shape.chapters.map(([words, rate]) => [words, rate, true, false]) : [];
    const [ours, ...peers] = shape[type];
    return [...own, [type === 'bf16' ? 'chapter 5' : 'chapter 6', ours, true, 'In one process:'], ...PEERS.map((peer, i) => [peer, peers[i], false, false])];
  }

  function draw(host, shapes) {
    const chosen = { type: 'bf16', head_dim: 128, mask: 'full', seqlen: 4096 };
    const most = Math.max(...shapes.flatMap((shape) => [...shape.bf16, ...shape.e4m3]));  // one scale for all choices
    const bars = element('div', { className: 'bars' });
    const show = () => {
      const shape = shapes.find((s) => s.head_dim === chosen.head_dim && s.mask === chosen.mask && s.seqlen === chosen.seqlen);
      bars.replaceChildren(...rows(shape, chosen.type).flatMap(([words, rate, ours, group]) => [
        ...(group ? [element('p', { className: 'group' }, group)] : []),
        element('div', { className: ours ? 'bar ours' : 'bar' }, element('span', {}, words), element('b', {}, rate < 99.5 ? rate.toFixed(1) : rate.toFixed(0)),
          Object.assign(element('i'), { style: `width: ${(100 * rate / most).toFixed(1)}%` })),
      ]));
    };
    const controls = CHOICES.map(([key, words, values]) => {
      const select = element('select', { onchange: () => { chosen[key] = values[select.selectedIndex][0]; show(); } },
        ...values.map(([value, text]) => element('option', { selected: value === chosen[key] }, text)));
      return element('label', {}, `${words} `, select);
    });
    host.append(element('div', { className: 'choices' }, ...controls), bars, element('p', { className: 'group' }, 'TFLOP/s, forward, on an H200. Batch times N is 16k tokens, heads times head_dim is 2048. Of each chapter the fastest step.'));
    show();
  }

  document.addEventListener('DOMContentLoaded', () => {
    const picture = document.querySelector('main img[src$="ladder_book.svg"]');
    if (!picture || !window.flashbookLadder) return;
    const host = element('div', { className: 'interactive ladder' });
    picture.after(host);
    draw(host, window.flashbookLadder);
    picture.hidden = true;
  });
})();
