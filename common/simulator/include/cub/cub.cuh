#error "CUB is not available here: reduce with __shfl_xor_sync, as the chapters do"
