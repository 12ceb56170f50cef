// Rates of an H200, from bench/results: docs/figures/kv_cache.py writes this.
(window.flashbookData ??= {}).kv_cache = {
 "decode": {
  "name": "decode/ch08/step6/bf16/d128/b16h32k8/n8192",
  "tbps": 3.86
 },
 "prefill": {
  "64": {
   "name": "forward/ch05/step5/bf16/d64/causal/n16384",
   "tflops": 582
  },
  "128": {
   "name": "forward/ch05/step5/bf16/d128/causal/n16384",
   "tflops": 765
  },
  "256": {
   "name": "forward/ch05/step5/bf16/d256/causal/n16384",
   "tflops": 836
  }
 }
};
