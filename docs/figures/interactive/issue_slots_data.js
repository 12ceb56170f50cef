// Clocks of an H200, from bench/results: docs/figures/issue_slots.py writes this.
(window.flashbookData ??= {}).issue_slots = {"latency":{"multiply_add":5,"shared":23,"l1":34,"l2":283,"device":684},"warps":{"multiply_add":{"1":4.97,"4":1.24,"16":0.53,"64":0.51},"l2":{"1":283.25,"4":70.51,"16":17.55,"64":4.36}}};
