// Loads of chapter 1's kernels as the traced mode counts them: docs/figures/recorded/sectors_data.py writes this.
(window.flashbookData ??= {}).sectors = {
 "head_dim": 64,
 "seqlen": 64,
 "lines": [
  {
   "kernel": "textbook_scores",
   "place": "step1_textbook.cuh:49",
   "requests": 8192,
   "sectors": 131072
  },
  {
   "kernel": "textbook_scores",
   "place": "step1_textbook.cuh:49",
   "requests": 8192,
   "sectors": 16384
  },
  {
   "kernel": "textbook_softmax",
   "place": "step1_textbook.cuh:75",
   "requests": 128,
   "sectors": 4096
  },
  {
   "kernel": "textbook_softmax",
   "place": "step1_textbook.cuh:77",
   "requests": 128,
   "sectors": 4096
  },
  {
   "kernel": "textbook_softmax",
   "place": "step1_textbook.cuh:78",
   "requests": 128,
   "sectors": 4096
  },
  {
   "kernel": "coalesced_scores",
   "place": "step2_coalesced.cuh:72",
   "requests": 8192,
   "sectors": 16384
  },
  {
   "kernel": "coalesced_scores",
   "place": "step2_coalesced.cuh:71",
   "requests": 8192,
   "sectors": 8192
  },
  {
   "kernel": "tiled_scores",
   "place": "step4_register_tile.cuh:61",
   "requests": 512,
   "sectors": 1024
  }
 ]
};
