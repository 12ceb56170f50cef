#error "cooperative groups are not available here: use __syncthreads, __syncwarp and __shfl_sync"
