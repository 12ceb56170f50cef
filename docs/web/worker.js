// Runs a chapter's module once, in a worker, so that the page stays responsive and can end runs that never finish. It
// receives { glue, module, chapter, settings, environment }, regularly sends { block } as a sign of life, and finally {
// answer }, the program's output with its arguments.
const kSignEvery = 100;  // milliseconds

/** Maps engines' messages, which differ between browsers, to sim::Trap. */
function trapOf(error) {
  const words = String(error.message || error);
  if (error instanceof RangeError || /recursion|call stack/i.test(words)) return 1;
  if (/table|null function|signature|indirect/i.test(words)) return 3;
  if (/divi|remainder|by zero|integer overflow/i.test(words)) return 2;
  if (/bounds/i.test(words)) return 0;
  return 3;
}

/** Returns the settings as options of the chapter's program, without those that the mask, the step or the reader sets. */
function wordsOf(chapter, settings) {
  const more = [chapter.masks[settings.mask].options, chapter.of_step[settings.step] || '', settings.more || ''].join(' ').split(' ').filter(Boolean);
  const named = [['--step', settings.step], [chapter.keys, settings.n], ['--head-dim', settings.d]];
  const isSaid = (name) => more.includes(name) || (name === '--seqlen' && more.includes('--lengths'));
  return [...named.filter(([name]) => !isSaid(name)).flat().map(String), ...more];
}

onmessage = ({ data: { glue, module, chapter, settings, environment } }) => {
  const words = chapter ? wordsOf(chapter, settings) : ['describe'];
  importScripts(glue);
  const said = [];
  let lastSign = 0;
  self.flashbookModule({
    print: (line) => said.push(line),
    printErr: () => {},
    blockBegins: (block) => {
      const now = performance.now();
      if (now - lastSign < kSignEvery) return;
      lastSign = now;
      postMessage({ block });
    },
    instantiateWasm: (imports, done) => {
      WebAssembly.instantiate(module, imports).then((instance) => done(instance, module));
      return {};
    },
    preRun: [(program) => Object.assign(program.ENV, environment)],
  }).then((program) => {
    try {
      program.callMain(words);
    } catch (error) {  // a call was stopped; memory is unchanged since then
      const report = program.UTF8ToString(program._flashbook_trap(trapOf(error)));
      return { report, stopped: String(error.message || error) };
    }
    return JSON.parse(said.join('\n'));
  }).then((answer) => postMessage({ answer: { ...answer, words } }), (error) => postMessage({ answer: { refused: String(error), words } }));
};
