// Clocks and bytes of an H200, from bench/results: docs/figures/memory_levels.py writes this.
(window.flashbookData ??= {}).memory_levels = {
 "levels": [
  {
   "name": "registers",
   "whose": "a thread's own",
   "size": "256 KB a multiprocessor",
   "clocks": 5,
   "bytes": 1499.5
  },
  {
   "name": "shared memory",
   "whose": "a block's",
   "size": "up to 227 KB a block",
   "clocks": 23,
   "bytes": 126.3
  },
  {
   "name": "L1 cache",
   "whose": "a multiprocessor's",
   "size": "the rest of 256 KB",
   "clocks": 34,
   "bytes": null
  },
  {
   "name": "L2 cache",
   "whose": "the whole chip's",
   "size": "60 MB",
   "clocks": 283,
   "bytes": 31.8
  },
  {
   "name": "device memory",
   "whose": "the whole chip's",
   "size": "141 GB",
   "clocks": 684,
   "bytes": 14.5
  }
 ],
 "multiplyAdds": 125.0,
 "together": {
  "L2 cache": 8.31,
  "device memory": 3.78
 }
};
