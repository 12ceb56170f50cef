// Runs a module as the page does, each time in a worker of its own: node run_in_node.js MODULE < JOBS, a JSON list of { settings, environment,
// seconds } or {} to have the module describe itself. Prints the list of answers.
'use strict';
const fs = require('fs'), os = require('os'), path = require('path'), vm = require('vm');
const { Worker, isMainThread, parentPort } = require('worker_threads');

vm.runInThisContext(fs.readFileSync(path.join(__dirname, 'worker.js'), 'utf8'));

function beWorker() {  // provides what worker.js finds in a browser
  const self = globalThis.self = globalThis;
  self.importScripts = (glue) => { self.flashbookModule = require(glue); };
  self.postMessage = (message) => parentPort.postMessage(message);
  parentPort.on('message', (data) => self.onmessage({ data }));
}

async function main() {
  const target = path.resolve(process.argv[2]), jobs = JSON.parse(fs.readFileSync(0, 'utf8'));
  const module = new WebAssembly.Module(fs.readFileSync(`${target}.wasm`));
  const about = `${target}.json`, chapter = fs.existsSync(about) ? JSON.parse(fs.readFileSync(about, 'utf8')) : null;
  const answers = [];
  const run = (job) => new Promise((done) => {
    const worker = new Worker(__filename);
    const end = (answer) => {
      clearTimeout(timer);
      worker.terminate();
      done(answer);
    };
    const timer = setTimeout(() => end({ endless: true, words: globalThis.wordsOf(chapter, job.settings) }), 1000 * (job.seconds || 60));
    worker.on('message', ({ answer }) => answer && end(answer));
    worker.on('error', (error) => end({ broken: String(error.stack || error) }));
    const environment = { FLASHBOOK_SIM_THREADS: '1', ...job.environment };
    worker.postMessage({ glue: `${target}.js`, module, chapter: job.settings && chapter, settings: job.settings, environment });
  });
  let next = 0;
  const some = async () => {
    while (next < jobs.length) {
      const at = next++;
      answers[at] = await run(jobs[at]);
    }
  };
  await Promise.all(os.cpus().map(some));
  console.log(JSON.stringify(answers));
}

if (isMainThread) main();
else beWorker();
