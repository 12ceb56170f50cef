// A paged cache, operation by operation, and which block reads which of its keys. Use:
// flashbookFigures.page_table(host, img) and .equal_work(host, img). decode_cache_data.js contains the
// results of the library and of the plans; `model` counts it and draws nothing.
(function () {
  'use strict';

  // ---- The model ----

  const names = 'ABC';

  /** Returns the pages of a step: for each page its first key, the number of rows in use, and the sequences that hold it. */
  function pagesOf(story, k) {
    const { sequences, holders } = story.steps[k];
    return holders.map((count, page) => {
      const owners = sequences.flatMap((s, i) => (s && s.pages.includes(page) ? [i] : []));
      const used = Math.max(0, ...owners.map((i) => Math.min(story.rows, sequences[i].length - sequences[i].pages.indexOf(page) * story.rows)));
      return { count, owners, first: owners.length ? sequences[owners[0]].pages.indexOf(page) * story.rows : 0, used };
    });
  }

  /** Returns the unused rows of pages in use, and the rows that separate caches of `longest` tokens would take. */
  function waste(story, k) {
    const pages = pagesOf(story, k).filter((p) => p.count);
    return { held: pages.length * story.rows, unused: pages.reduce((sum, p) => sum + story.rows - p.used, 0),
      separate: story.steps[k].sequences.reduce((sum, s) => sum + (s ? s.length : 0), 0) };
  }

  /** Returns the tiles of each block, the largest number per block, and the items split over several blocks, whose parts are merged. */
  function loads(plan) {
    const tiles = plan.segments.map((list) => list.reduce((sum, [, begin, end]) => sum + end - begin, 0));
    const merged = new Set(plan.segments.flat().filter(([, , , , parts]) => parts > 1).map(([pack]) => pack));
    return { tiles, most: Math.max(...tiles), all: tiles.reduce((a, b) => a + b, 0), merged: merged.size, parts: plan.segments.flat().filter(([, , , , parts]) => parts > 1).length };
  }

  // ---- The pages of a cache ----

  const looks = ['blue', 'green', 'amber'];
  const css = `
.fb-decode_cache rect{fill:var(--paper);stroke:var(--line)}
${['blue', 'green', 'amber', 'red'].map((look) => `.fb-decode_cache rect.${look}{fill:var(--${look}-fill);stroke:var(--${look === 'blue' ? 'accent' : `${look}-ink`})}`).join('\n')}
.fb-decode_cache rect.shared{fill:var(--line);stroke:var(--soft)}
.fb-decode_cache rect.fresh{stroke-width:3}
.fb-decode_cache path.end{stroke:var(--red-ink);stroke-width:1.5;stroke-dasharray:4 3}
.fb-decode_cache svg.picture text{font-size:14px}
.fb-decode_cache svg.picture text.bold{font-weight:600}
.fb-decode_cache p.refused{color:var(--red-ink)}
${['blue', 'green', 'amber', 'red'].map((look) => `.fb-decode_cache i.${look}{background:var(--${look}-fill)}`).join('\n')}
.fb-decode_cache i.shared{background:var(--line)}
.fb-decode_cache table.ledger td:first-child{white-space:normal}
`;

  function pageTable(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, stories = window.flashbookData.decode_cache.pages;
    let story;
    const settings = kit.settings([{ key: 'rows', words: 'keys per page', value: 4, options: stories.map((s) => [s.rows, `${s.rows}`]) }], load);
    const picture = svg('svg.picture', { role: 'img' }), words = el('p.sentence', { 'aria-live': 'polite' }), refused = el('p.refused'), table = el('table.ledger');
    const player = kit.player(show, 1600);
    kit.frame(host, img, 'decode_cache', css, 'A paged cache, operation by operation');
    host.replaceChildren(el('div.halves', {}, el('div', {}, picture, el('div.legend', {}, ...[0, 1, 2].map((i) => kit.legend(looks[i], `${names[i]} alone`)), kit.legend('shared', 'shared'))),
      el('div', {}, settings.root, words, refused, table, player.root)),
    el('p.try', {}, 'Try: which operation copies a page, and which one writes without a copy? Which pages are free after A has ended? With larger pages, what grows and what shrinks?'));

    function sentence(k) {
      const { what, copy, refused: no } = story.steps[k];
      return `${what[0].toUpperCase()}${what.slice(1)}.` + (copy.length ? ` Page ${copy[0]} is shared, so B takes page ${copy[1]} and copies the ${copy[2]} rows so far.` : '') +
        (no ? ' There are not enough pages, so nothing changes.' : '');
    }

    function show(k, announce) {
      const { sequences, holders } = story.steps[k], pages = pagesOf(story, k), before = k ? story.steps[k - 1].holders : holders, parts = [];
      parts.push(svg('text.bold', { x: 2, y: 14 }, 'Page tables'));
      sequences.forEach((s, i) => {
        const y = 24 + 34 * i;
        parts.push(svg('text.bold', { x: 2, y: y + 19 }, names[i]), svg('text.soft', { x: 22, y: y + 19 }, s ? `${s.length} keys` : '-'));
        (s ? s.pages : []).forEach((page, at) => parts.push(
          svg(`rect.${holders[page] > 1 ? 'shared' : looks[i]}`, { x: 90 + 40 * at, y, width: 34, height: 28, rx: 4 }), svg('text.middle', { x: 107 + 40 * at, y: y + 19 }, page)));
      });
      parts.push(svg('text.bold', { x: 2, y: 150 }, 'Memory'));
      pages.forEach((page, number) => {
        const x = 2 + number % 2 * 204, y = 160 + Math.floor(number / 2) * 52, cell = 190 / story.rows;
        parts.push(svg('text', { x, y: y + 12 }, `page ${number}`), svg('text.soft', { x: x + 190, y: y + 12, 'text-anchor': 'end' }, page.count ? `held by ${page.owners.map((i) => names[i]).join(', ')}` : 'free'));
        kit.range(story.rows).forEach((row) => {
          const look = row < page.used ? (page.count > 1 ? '.shared' : `.${looks[page.owners[0]]}`) : '';
          parts.push(svg(`rect${look}${look && page.count !== before[number] ? '.fresh' : ''}`, { x: x + row * cell, y: y + 18, width: cell - 1, height: 24 }));
          if (row < page.used && story.rows < 16) parts.push(svg('text.middle', { x: x + (row + 0.5) * cell, y: y + 35 }, page.first + row));
        });
      });
      kit.draw(picture, 398, 368, `Holders of pages 0 to 7: ${holders.join(', ')}`, parts);
      kit.say(words, sentence(k), announce);
      refused.textContent = story.steps[k].refused;
      const w = waste(story, k), row = (text, value) => el('tr', {}, el('td', {}, text), el('td', {}, value));
      table.replaceChildren(row('free pages of 8', holders.filter((n) => n === 0).length), row('rows of all sequences', w.separate), row('rows of allocated pages', w.held), row('unused rows among them', w.unused));
      host.dataset.holders = holders.join();
    }
    function reserve() {
      kit.reserve(words, story.steps.map((_, k) => sentence(k)));
      kit.reserve(refused, story.steps.map((step) => step.refused));
    }
    function load() {
      story = stories.find((s) => s.rows === Number(settings.get('rows')));
      reserve();
      player.reset(story.steps.length, 0);
    }
    kit.link(host, 'page_table', settings, player, load);
    kit.onWidth(host, () => {
      reserve();
      player.again();
    });
  }

  // ---- Which block reads which keys ----

  function equalWork(host, img) {
    const kit = window.flashbookKit, { el, svg } = kit, { plans } = window.flashbookData.decode_cache;
    const all = (key) => [...new Set(plans.map((p) => p[key]))];
    let plan;
    const settings = kit.settings([
      { key: 'lengths', words: 'tiles of keys', value: 'uneven', grow: true, options: all('lengths').map((name) => [name, `${name}: ${plans.find((p) => p.lengths === name).tiles.join(', ')}`]) },
      { key: 'heads', words: 'key heads', value: 1, options: all('heads').map((n) => [n, `${n}`]) },
      { key: 'blocks', words: 'multiprocessors', value: 8, options: all('blocks').map((n) => [n, `${n}`]) },
      { key: 'plan', words: 'plan', value: 'parts', options: [['parts', 'equal parts (steps 4, 5)'], ['work', 'equal work (step 6)']], grow: true },
    ], load);
    const picture = svg('svg.picture', { role: 'img' }), words = el('p.sentence', { 'aria-live': 'polite' }), table = el('table.ledger');
    const player = kit.player(show, 250);
    kit.frame(host, img, 'decode_cache', css, 'Which block reads which keys');
    host.replaceChildren(settings.root, el('div.halves', {}, el('div', {}, el('p.quiet', {}, 'A row is a block, a box a tile of keys with the number of its sequence; time runs to the right. Framed: one of several parts'), picture),
      el('div', {}, words, table, player.root)),
    el('p.try', {}, 'Try: with uneven lengths, which blocks are idle while others still read? What does equal work cost if all lengths are equal? Which sequence needs a merge?'));
    const lookOf = (sequence) => ['blue', 'green', 'amber', 'red', 'shared'][sequence % 5];

    function sentence(k) {
      const { tiles, most, all: sum } = loads(plan);
      if (k === 0) return `${plan.tiles.length} sequences, ${plan.heads} key ${plan.heads > 1 ? 'heads' : 'head'}, ${sum} tiles, divided among ${plan.segments.length} blocks. Nothing has been read yet.`;
      const idle = tiles.filter((n) => n < k).length;
      return `Tile ${k} of ${most}: ${plan.segments.length - idle} ${plan.segments.length - idle === 1 ? 'block reads' : 'blocks read'}, ${idle} ${idle === 1 ? 'has' : 'have'} nothing left.` +
        (k === most ? ` ${Math.round(100 * sum / (most * plan.blocks))} % of the time of ${plan.blocks} multiprocessors was used.` : '');
    }

    function show(k, announce) {
      const { tiles, most, all: sum, merged, parts: pieces } = loads(plan), left = 22, cell = Math.min(34, 376 / Math.max(most, 8)), parts = [];
      plan.segments.forEach((list, block) => {
        const y = 4 + 24 * block;
        let x = left, at = 0;
        parts.push(svg('text.soft', { x: 0, y: y + 15 }, block));
        for (const [pack, begin, end, , count] of list) {
          const sequence = Math.floor(pack / plan.heads);
          for (let i = begin; i < end; ++i, x += cell, ++at)
            parts.push(svg(at < k ? `rect.${lookOf(sequence)}` : 'rect', { x, y, width: cell - 1, height: 19 }));
          if (end > begin && (end - begin) * cell > 12)
            parts.push(svg('text.middle', { x: x - (end - begin) * cell / 2, y: y + 15 }, sequence + 1));
          if (count > 1) parts.push(svg('rect', { x: x - (end - begin) * cell, y: y - 1, width: (end - begin) * cell, height: 21, style: 'fill:none;stroke:var(--ink);stroke-width:1.5' }));
        }
      });
      const bottom = 4 + 24 * plan.segments.length;
      if (k) parts.push(svg('path.end', { d: `M${left + k * cell} 0V${bottom}` }));
      kit.draw(picture, 400, bottom + 2, `Tiles of each block: ${tiles.join(', ')}`, parts);
      kit.say(words, sentence(k), announce);
      const other = plans.find((p) => p.plan !== plan.plan && ['lengths', 'heads', 'blocks'].every((key) => p[key] === plan[key]));
      const row = (text, value) => el('tr', {}, el('td', {}, text), el('td', {}, value));
      table.replaceChildren(row('finished after, tiles', most), row(`under the other plan`, loads(other).most), row('the fewest possible', Math.ceil(sum / plan.blocks)), row('items with several parts', merged), row('parts to merge', pieces));
      host.dataset.most = most;
    }
    function load() {
      plan = plans.find((p) => ['lengths', 'heads', 'blocks', 'plan'].every((key) => String(p[key]) === settings.get(key)));
      const { most } = loads(plan);
      kit.reserve(words, kit.range(most + 1).map(sentence));
      player.reset(most + 1, 0);
    }
    kit.link(host, 'equal_work', settings, player, load);
    kit.onWidth(host, () => {
      kit.reserve(words, kit.range(loads(plan).most + 1).map(sentence));
      player.again();
    });
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.page_table = pageTable;
  window.flashbookFigures.equal_work = equalWork;
  pageTable.model = { pagesOf, waste, loads };
})();
