/// Computes the means of the columns of each tile. Grid: the blocks whose rows are added up, kMeanColumns
/// threads each.
__global__ void __launch_bounds__(kMeanColumns)
    column_means(const float* rows,  // [tiles, blocks, kMeanRows, kMeanColumns]
                 float* sums,        // [tiles, kMeanColumns], 0 at the start
                 float* means,       // [tiles, kMeanColumns]
                 int* semaphores,    // [tiles], 0 at the start: how many blocks have added
                 int tiles) {
  __shared__ __align__(16) float part[kMeanColumns];
  const int block = blockIdx.x, blocks = gridDim.x, column = threadIdx.x;
  const int turn = blocks - 1 - block;  // the block with the last rows adds first
  for (int tile = 0; tile < tiles; ++tile) {
    const float* const from = rows + (int64_t(tile) * blocks + block) * kMeanRows * kMeanColumns + column;
    float sum = 0;
    for (int i = 0; i < kMeanRows; ++i) sum += from[i * kMeanColumns];
    part[column] = sum;
    fence_proxy_async();  // makes this thread's sum visible to TMA
    __syncthreads();      // all threads' sums are stored
    if (column == 0) {
      while (load_acquire(semaphores + tile) != turn) {
      }
      bulk_reduce_add(sums + tile * kMeanColumns, part, sizeof(part));
      tma_store_commit();
      tma_store_wait<0>();  // the sums are in memory, for the next block and for this one
      store_release(semaphores + tile, turn + 1);
    }
    __syncthreads();  // TMA has read the sums: the next ones may be written
    if (block == 0)   // no block adds after this one
      means[tile * kMeanColumns + column] = sums[tile * kMeanColumns + column] / float(blocks * kMeanRows);
  }
}
