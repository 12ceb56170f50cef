// Shared by the interactive figures: elements, colours, settings, a player, and their state in the page's address.
// Use: window.flashbookKit, once the page is loaded; call `frame` first and `link` last.
(function () {
  'use strict';

  /** Creates an element: el('div.note', { title: 'x' }, child, ...). */
  const el = (selector, attributes, ...children) => make((tag) => document.createElement(tag), selector, attributes, children);
  /** The same for SVG. */
  const svg = (selector, attributes, ...children) => make((tag) => document.createElementNS('http://www.w3.org/2000/svg', tag), selector, attributes, children);

  function make(create, selector, attributes, children) {
    const [tag, ...classes] = selector.split('.');
    const node = create(tag);
    if (classes.length) node.setAttribute('class', classes.join(' '));
    for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
    node.append(...children);
    return node;
  }

  const range = (count) => [...Array(count).keys()];

  // ---- Colours and looks. The page's variables serve both modes; other colours are listed here once for each mode
  // ----

  const light = '--amber:#d9822b;--amber-ink:#825200;--green-ink:#17693a;--red-ink:#b3402a;' +
    '--blue-fill:#dce9f7;--amber-fill:#f8e9cd;--green-fill:#d9efe1;--red-fill:#f9e0da';
  const dark = '--amber:#d9822b;--amber-ink:#e5a95a;--green-ink:#5fbf88;--red-ink:#ee8d78;' +
    '--blue-fill:#20364d;--amber-fill:#41351d;--green-fill:#1d3a2b;--red-fill:#4a2620';
  const font = 'var(--font-family,system-ui,sans-serif)';
  const css = `
.fb{--ink:var(--page-foreground-color,#24313d);--paper:var(--page-background-color,#fff);--soft:var(--page-secondary-foreground-color,#566472);
  --line:var(--separator-color,#dedede);--accent:var(--primary-color,#1668ab);${light};
  color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:8px;padding:14px;margin:1rem 0;box-sizing:border-box;
  font:15px/1.45 ${font};font-variant-numeric:tabular-nums;text-align:left}
@media (prefers-color-scheme:dark){html:not(.light-mode) .fb{--ink:var(--page-foreground-color,#d5dce2);--paper:var(--page-background-color,#16191d);
  --soft:var(--page-secondary-foreground-color,#93a0ac);--line:var(--separator-color,#38393b);--accent:var(--primary-color,#62aef0);${dark}}}
html.dark-mode .fb{${dark}}
.fb :where(*){box-sizing:border-box}
.fb :where(div,p,table,tbody,tr,td,th,span,label){font-family:inherit;font-size:inherit;line-height:inherit;margin:0;padding:0}
.fb .settings{display:flex;flex-wrap:wrap;gap:8px 12px;align-items:end;margin-bottom:12px}
.fb label{display:block;font-size:13px;color:var(--soft);flex:1 1 6.5rem;white-space:nowrap}
.fb label.grow{flex:3 1 17rem}
.fb input[type=text],.fb select{display:block;width:100%;height:38px;padding:0 8px;font:16px ${font};
  color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:5px;margin:2px 0 0}
.fb input.formula{font-family:var(--font-family-monospace,ui-monospace,Menlo,Consolas,monospace)}
.fb input[aria-invalid=true]{border-color:var(--amber);border-width:2px}
.fb .halves{display:flex;flex-wrap:wrap;gap:14px 28px}
.fb .halves>*{flex:1 1 300px;min-width:0}
.fb .player{display:flex;flex-wrap:wrap;gap:8px;align-items:center;margin-top:12px}
.fb button{min-width:58px;height:42px;padding:0 10px;font:15px ${font};color:var(--ink);background:var(--paper);
  border:1px solid var(--line);border-radius:6px;cursor:pointer;touch-action:manipulation;margin:0}
.fb button.main{background:var(--accent);border-color:var(--accent);color:var(--paper)}
.fb button:disabled{opacity:.7;cursor:default}
.fb :is(button,input,select,[tabindex]):focus-visible{outline:3px solid var(--accent);outline-offset:2px}
.fb input[type=range]{flex:1 1 120px;min-width:0;height:42px;margin:0;accent-color:var(--accent)}
.fb p.sentence{margin:0;line-height:1.45}
.fb p.quiet{color:var(--soft);font-size:13px;line-height:1.45}
.fb p.try{margin-top:10px;padding-top:8px;border-top:1px solid var(--line);font-size:14px}
.fb svg.picture{display:block;width:100%;height:auto;overflow:visible}
.fb svg.picture text{font:13px ${font};fill:var(--ink)}
.fb svg.picture text.soft{fill:var(--soft)}
.fb svg.picture text.middle{text-anchor:middle}
.fb .legend{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:13px;color:var(--soft);margin-top:10px}
.fb .legend i{display:inline-block;width:13px;height:13px;vertical-align:-2px;margin-right:5px;border:1px solid var(--line);border-radius:2px}
.fb table.ledger{width:100%!important;display:table!important;table-layout:fixed;border-collapse:collapse;margin:8px 0 0;font-size:14px;border:0;box-shadow:none}
.fb table.ledger :is(th,td){text-align:right;padding:2px 6px;border:0;border-bottom:1px solid var(--line);background:none;color:inherit;font-weight:400;white-space:nowrap}
.fb table.ledger th{color:var(--soft);font-size:13px}
.fb table.ledger :is(th,td):first-child{text-align:left;padding-left:0}
`;

  function addStyle(id, text) {
    if (!document.getElementById(id)) document.head.append(el('style', { id }, text));
  }

  /** Turns `host` into the figure NAME, with its own style on top of the common one, and labels it like the picture `img`. */
  function frame(host, img, name, style, title) {
    addStyle('fb-style', css);
    addStyle(`fb-style-${name}`, style);
    host.classList.add('fb', `fb-${name}`);
    host.setAttribute('role', 'group');
    host.setAttribute('aria-label', (img && img.alt) || title);
  }

  // ---- Controls ----

  /**
   * Fields in a row. A field is { key, words, value, options: [[value, words], ...], grow }, or { ..., text: true } for a text input. Calls
   * changed(key) when the reader changes one. Values are texts.
   */
  function settings(fields, changed) {
    const nodes = {};
    const root = el('div.settings', {}, ...fields.map((field) => {
      const node = field.text ? el('input.formula', { type: 'text', autocomplete: 'off', spellcheck: 'false', 'data-setting': field.key })
        : el('select', { 'data-setting': field.key }, ...field.options.map(([value, words]) => el('option', { value }, words)));
      node.value = field.value;
      node[field.text ? 'oninput' : 'onchange'] = () => changed(field.key);
      nodes[field.key] = node;
      return el(field.grow ? 'label.grow' : 'label', {}, field.words, node);
    }));
    return {
      root, nodes,
      get: (key) => nodes[key].value,
      /** Sets a field to a value if the field offers it. */
      set(key, value) {
        const node = nodes[key], before = node.value;
        node.value = value;
        if (node.tagName === 'SELECT' && node.selectedIndex < 0) node.value = before;
      },
    };
  }

  /**
   * Start, Back, Play, Next and a slider over steps 0 to `last`. Calls show(k, announce); announce is false during playback. delay is the
   * milliseconds per step, or a function that returns them: delay(last).
   */
  function player(show, delay) {
    const button = (action, words) => el(action === 'next' ? 'button.main' : 'button', { type: 'button', 'data-action': action }, words);
    const start = button('start', 'Start'), back = button('back', 'Back'), play = button('play', 'Play'), next = button('next', 'Next');
    const slider = el('input', { type: 'range', min: 0, step: 1, 'aria-label': 'Step' });
    const root = el('div.player', {}, start, back, play, next, slider);
    let k = 0, last = 0, timer = 0;

    function stop() {
      clearInterval(timer);
      timer = 0;
      play.textContent = 'Play';
    }
    function go(to) {
      k = Math.max(0, Math.min(last, to));
      if (k === last && timer) stop();
      slider.max = last;
      slider.value = k;
      slider.setAttribute('aria-valuetext', `step ${k} of ${last}`);
      start.disabled = back.disabled = k === 0;
      next.disabled = k === last;
      show(k, !timer);
    }
    function step(distance) {
      stop();
      go(k + distance);
    }
    start.onclick = () => step(-k);
    back.onclick = () => step(-1);
    next.onclick = () => step(1);
    slider.oninput = () => step(slider.value - k);
    play.onclick = () => {
      if (timer) return stop();
      play.textContent = 'Pause';
      timer = setInterval(() => go(k + 1), typeof delay === 'function' ? delay(last) : delay);
      go(k === last ? 0 : k + 1);
    };
    root.onkeydown = (event) => {
      const distance = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!distance || event.target === slider) return;  // the slider handles arrow keys itself
      event.preventDefault();
      step(distance);
    };
    return {
      root,
      /** Sets the number of steps to `count` and shows step `at`. */
      reset(count, at) { stop(); last = count - 1; go(at); },
      go(to) { stop(); go(to); },
      again() { go(k); },
      step: () => k,
      plays: () => timer !== 0,
    };
  }

  /** Gives a node the height of the longest of its texts, so that nothing below it moves. */
  function reserve(node, texts) {
    const now = node.textContent;
    node.style.minHeight = '';
    let height = 0;
    for (const text of new Set(texts)) {
      node.textContent = text;
      height = Math.max(height, Math.ceil(node.getBoundingClientRect().height));
    }
    node.textContent = now;
    node.style.minHeight = `${height}px`;
  }

  /** Creates an entry of a legend, in the colour of the class `kind`. */
  const legend = (kind, text) => el('span', {}, el(`i.${kind}`), text);

  /** Puts `parts` into a picture of this size, described by `label`. */
  function draw(picture, width, height, label, parts) {
    picture.setAttribute('viewBox', `0 0 ${width} ${height}`);
    picture.setAttribute('aria-label', label);
    picture.replaceChildren(...parts);
  }

  /** Sets a text, which screen readers read aloud if it is announced. */
  function say(node, text, announce) {
    node.setAttribute('aria-live', announce ? 'polite' : 'off');
    node.textContent = text;
  }

  /** Calls draw() whenever the width of `node` has changed. */
  function onWidth(node, draw) {
    let width = node.clientWidth;
    new ResizeObserver(() => {
      if (node.clientWidth === width) return;
      width = node.clientWidth;
      draw();
    }).observe(node);
  }

  // ---- The state in the address: #NAME?key=value&step=7 ----

  function stateOf(name) {
    const [found, query] = location.hash.slice(1).split(/\?(.*)/s);
    return found === name ? Object.fromEntries(new URLSearchParams(query)) : null;
  }

  /**
   * Loads the state in the address, or else the figure's default, and keeps the address up to date once the reader has touched the figure.
   * load() shows the settings from their first step. fields are kit.settings, walk a player or null.
   */
  function link(host, name, fields, walk, load) {
    const keys = Object.keys(fields.nodes), normal = Object.fromEntries(keys.map((key) => [key, fields.get(key)]));
    function take(state) {
      for (const key of keys) fields.set(key, key in state ? state[key] : normal[key]);
      load();
      if (walk && state.step) walk.go(Number(state.step) || 0);
    }
    let timer = 0;
    const write = () => {
      clearTimeout(timer);  // browsers limit changes per second
      timer = setTimeout(writeNow, 200);
    };
    function writeNow() {
      if (!host.isConnected || (walk && walk.plays())) return;
      const state = new URLSearchParams(keys.filter((key) => fields.get(key) !== normal[key]).map((key) => [key, fields.get(key)]));
      if (walk && walk.step()) state.set('step', walk.step());
      try { history.replaceState(null, '', `#${name}?${state}`); } catch { /* not allowed for a page on a disk, which then has no link */ }
    }
    for (const event of ['click', 'input', 'keyup']) host.addEventListener(event, write);
    addEventListener('hashchange', () => {
      const state = stateOf(name);
      if (state && host.isConnected) {
        take(state);
        host.scrollIntoView();
      }
    });
    const state = stateOf(name);
    take(state || {});
    if (state) requestAnimationFrame(() => host.scrollIntoView());
  }

  window.flashbookKit = { el, svg, range, frame, settings, player, legend, draw, say, reserve, onWidth, link };
})();
