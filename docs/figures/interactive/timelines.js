// The timelines of all recorded steps. Use, after fault_traces.js: flashbookFigures.timelines(host, img).
// timelines_data.js lists the steps; the events are in fault_chNN_data.js, which is loaded when the reader chooses a step.
(function () {
  'use strict';

  /** Every recorded step: #timelines?slug=ch05/pingpong; with &at=report it starts at the simulator's report. */
  function figure(host, img) {
    const kit = window.flashbookKit, { el } = kit, { css, length, traceOf, runs, withData } = window.flashbookTraces;
    kit.frame(host, img, 'fault_traces', css, 'The timelines of the recorded steps');
    const both = runs((last) => Math.max(40, 60000 / last)), planted = el('p.quiet.planted');
    const settings = kit.settings([
      { key: 'slug', words: 'Step', value: 'ch05/single_warpgroup', options: window.flashbookData.timelines.steps, grow: true },
      { key: 'at', words: 'Begin at', value: 'start', options: [['start', 'the first event'], ['difference', 'the first difference'], ['report', 'the report']] },
    ], () => load());
    let isFirst = true;
    host.replaceChildren(settings.root, planted, both.root);
    function load() {
      const slug = settings.get('slug'), chapter = slug.slice(2, 4), name = `fault_ch${chapter}`, isHere = window.flashbookData[name];
      withData(name, (data) => {
        if (slug !== settings.get('slug')) return;  // the reader has chosen another one meanwhile
        const trace = traceOf(data, slug.slice(5)), all = kit.range(length(trace));
        planted.replaceChildren(`The kernel ${trace.kernel}; the whole trace, with lines and barriers: `, el('code', {}, `./flashbook trace ${chapter} -- ${trace.options}`),
          el('br'), `The fault, in ${trace.file}: `, el('code', {}, trace.line), ...(trace.now ? [' becomes ', el('code', {}, trace.now)] : [' is left out']), '.');
        both.show(trace, all, { start: 0, difference: trace.first, report: trace.broken.findIndex((event) => event.isFault) }[settings.get('at')]);
        both.reserve();
        if (isFirst && !isHere) setTimeout(() => dispatchEvent(new Event('hashchange')));  // the address may name an event
        isFirst = false;
      });
    }
    kit.link(host, 'timelines', settings, both.walk, load);
    kit.onWidth(host, both.reserve);
  }

  window.flashbookFigures = window.flashbookFigures || {};
  window.flashbookFigures.timelines = figure;
})();
