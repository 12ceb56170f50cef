// A module as a program: node run_in_node.js MODULE WORD..., with the environment variables of the simulator. It prints what the page's worker
// would send.
'use strict';
const fs = require('fs'), path = require('path'), vm = require('vm');
const [target, ...words] = process.argv.slice(2);
const environment = { FLASHBOOK_SIM_THREADS: '1' };
for (const [name, value] of Object.entries(process.env)) if (name.startsWith('FLASHBOOK_')) environment[name] = value;

// worker.js is what it is in a browser.
const self = globalThis.self = globalThis;
globalThis.importScripts = (glue) => { self.flashbookModule = require(path.resolve(glue)); };
globalThis.postMessage = ({ answer }) => { if (answer) console.log(JSON.stringify(answer)); };
vm.runInThisContext(fs.readFileSync(path.join(__dirname, 'worker.js'), 'utf8'));
globalThis.onmessage({ data: { glue: `${target}.js`, module: new WebAssembly.Module(fs.readFileSync(`${target}.wasm`)), words, environment } });
