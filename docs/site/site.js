// Optional features of pages: light and dark, search, copying code, interactive figures. Without this script the pages are complete.
(function () {
  'use strict';
  const root = document.documentElement;
  const icon = (path) => `<svg viewBox="0 0 20 20" width="18" height="18" aria-hidden="true"><path d="${path}"/></svg>`;
  const icons = {
    search: icon('M9 3.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M13 13l4 4'),
    mode: icon('M10 3a7 7 0 1 0 0 14a7 7 0 1 0 0-14M10 3v14M10 6l5-1M10 9l7 0M10 12l6.500 0M10 15l4 0'),
  };

  function element(name, properties, ...children) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  // ---- Light and dark: as the system says until the reader chooses ----

  function setMode(mode) {
    root.classList.toggle('dark-mode', mode === 'dark');
    root.classList.toggle('light-mode', mode === 'light');
  }
  function remembered() {
    try { return localStorage.getItem('flashbook-mode'); } catch { return null; }  // pages opened from a disk may have no storage
  }
  function toggleMode() {
    const dark = root.classList.contains('dark-mode') ||
      (!root.classList.contains('light-mode') && matchMedia('(prefers-color-scheme: dark)').matches);
    const mode = dark ? 'light' : 'dark';
    setMode(mode);
    try { localStorage.setItem('flashbook-mode', mode); } catch { /* then only this page remembers */ }
  }
  setMode(remembered());

  // ---- Search: every word must occur; titles rank highest, then text, source and reference ----

  function search(index, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const score = ([, title, section, text, rank]) => {
      let sum = 0;
      for (const word of words) {
        const found = [[title, 8], [section, 12], [text, 1]].filter(([where]) => where.toLowerCase().includes(word));
        if (!found.length) return 0;
        sum += found.reduce((total, [, weight]) => total + weight, 0);
      }
      return sum / [1, 3, 8][rank];
    };
    return index.map((entry) => [score(entry), entry]).filter(([s]) => s > 0).sort((a, b) => b[0] - a[0]).slice(0, 20).map(([, e]) => e);
  }

  /** The text around the first word, with it marked. */
  function excerpt(text, query) {
    const word = query.trim().toLowerCase().split(/\s+/)[0];
    const at = text.toLowerCase().indexOf(word);
    if (at < 0) return [text.slice(0, 120)];
    const begin = Math.max(0, at - 50);
    return [(begin ? '…' : '') + text.slice(begin, at), element('mark', {}, text.slice(at, at + word.length)), text.slice(at + word.length, at + 90) + '…'];
  }

  function makeSearch() {
    const input = element('input', { type: 'search', placeholder: 'Search the book', autocomplete: 'off' });
    const results = element('ol');
    const panel = element('div', { id: 'search', hidden: true }, element('div', {}, input, results));
    const close = () => { panel.hidden = true; };
    const show = () => results.replaceChildren(...search(window.flashbookIndex || [], input.value).map(([url, title, section, text]) =>
      element('li', {}, element('a', { href: url, onclick: close }, section ? `${title}: ${section}` : title, element('small', {}, ...excerpt(text, input.value))))));
    const open = () => {
      if (!window.flashbookIndex) document.head.append(element('script', { src: 'search_index.js', onload: show }));
      panel.hidden = false;
      input.select();
      input.focus();
    };
    input.oninput = show;
    panel.onclick = (event) => { if (event.target === panel) close(); };
    document.addEventListener('keydown', (event) => {
      const typing = /INPUT|TEXTAREA|SELECT/.test(event.target.tagName);
      if (event.key === '/' && !typing) { event.preventDefault(); open(); }
      if (panel.hidden) return;
      if (event.key === 'Escape') close();
      if (event.key === 'Enter' && event.target === input) results.querySelector('a')?.click();
      if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
        const stops = [input, ...results.querySelectorAll('a')];
        const next = stops[stops.indexOf(document.activeElement) + (event.key === 'ArrowDown' ? 1 : -1)];
        if (next) { event.preventDefault(); next.focus(); }
      }
    });
    document.body.append(panel);
    return open;
  }

  // ---- The menu marks the section that has scrolled past the top ----

  function showPlace() {
    const entries = [...document.querySelectorAll('.menu a[href^="#"]')];
    const headings = entries.map((entry) => document.getElementById(decodeURIComponent(entry.hash.slice(1))));
    const mark = () => {
      const passed = headings.filter((heading) => heading && heading.getBoundingClientRect().top < 120).length;
      entries.forEach((entry, i) => entry.classList.toggle('seen', i === passed - 1));
    };
    addEventListener('scroll', mark, { passive: true });
    mark();
  }

  // ---- When the page has loaded ----

  document.addEventListener('DOMContentLoaded', () => {
    document.querySelector('header .tools').append(
      element('button', { type: 'button', title: 'Search (/)', innerHTML: icons.search, onclick: makeSearch() }),
      element('button', { type: 'button', title: 'Light or dark', innerHTML: icons.mode, onclick: toggleMode }));

    document.querySelector('.menu [aria-current]')?.scrollIntoView({ block: 'center' });
    showPlace();
    addEventListener('beforeprint', () => { for (const hint of document.querySelectorAll('main details')) hint.open = true; });
    document.querySelector('.menu').addEventListener('click', (event) => {
      if (event.target.closest('a[href^="#"]')) document.getElementById('menu-open').checked = false;
    });

    for (const code of document.querySelectorAll('body:not(.reference) div.fragment')) {
      const text = [...code.querySelectorAll('.line')].map((line) => line.textContent).join('\n');
      const button = element('button', { type: 'button', className: 'copy', onclick: () => navigator.clipboard.writeText(text).then(() => {
        button.textContent = 'copied';
        setTimeout(() => { button.textContent = 'copy'; }, 1500);
      }) }, 'copy');
      code.append(button);
    }

    // figures/interactive/NAME.js replaces pictures named NAME.svg.
    for (const picture of document.querySelectorAll('main img')) {
      const draw = window.flashbookFigures?.[picture.src.replace(/.*\/|\.svg$/g, '')];
      if (!draw) continue;
      const host = element('div', { className: 'interactive' });
      picture.after(host);
      draw(host, picture);
      picture.hidden = true;
    }
  });
})();
