// Rates of an H200, from bench/results: docs/figures/kv_cache.py writes this.
(window.flashbookData ??= {}).kv_cache = {
 "decode": {
  "name": "decode/ch08/step6/bf16/d128/b16h32k8/n8192",
  "tbps": 4.01
 },
 "prefill": {
  "bf16": {
   "64": {
    "name": "forward/ch05/step5/bf16/d64/causal/n16384",
    "tflops": 635,
    "kernel": "chapter 5's step 5"
   },
   "128": {
    "name": "forward/ch05/step5/bf16/d128/causal/n16384",
    "tflops": 800,
    "kernel": "chapter 5's step 5"
   },
   "256": {
    "name": "forward/ch05/step5/bf16/d256/causal/n16384",
    "tflops": 837,
    "kernel": "chapter 5's step 5"
   }
  },
  "e4m3": {
   "64": {
    "name": "forward/ch06/step7/e4m3/d64/causal/n16384",
    "tflops": 686,
    "kernel": "chapter 6's step 7"
   },
   "128": {
    "name": "forward/ch06/step7/e4m3/d128/causal/n16384",
    "tflops": 1102,
    "kernel": "chapter 6's step 7"
   },
   "256": {
    "name": "forward/ch06/step7/e4m3/d256/causal/n16384",
    "tflops": 1399,
    "kernel": "chapter 6's step 7"
   }
  }
 }
};
