/// Requests keys first_key ... first_key + kStageKeys - 1 of a sequence and their values, as far as the
/// sequence, which has `length` keys, has them. `first_key` is a multiple of kStageKeys. One warp, all lanes.
__device__ __forceinline__ void bring(PairStage& stage, const CUtensorMap& map, const TokenCache& cache,
                                      int sequence, int head, int length, int first_key) {
  const int lane = threadIdx.x % 32, keys_of_box = box_keys(cache);
  const int keys = min(kStageKeys, length - first_key);
  const int boxes = (keys + keys_of_box - 1) / keys_of_box;
  const int box_bytes = keys_of_box * int(sizeof(stage.k[0]));
  if (lane == 0) mbarrier_arrive_expect_tx(&stage.full, 2 * boxes * box_bytes);
  __syncwarp();  // the bytes are announced before any can land
  for (int box = lane; box < boxes; box += 32) {
    const int in_tile = box * keys_of_box, key = first_key + in_tile, in_page = key % cache.page_keys;
    const int page = cache.table[sequence * cache.pages_of_sequence + key / cache.page_keys];
    tma_load(stage.k[in_tile], map, &stage.full, {0, in_page, head, 0, page});
    tma_load(stage.v[in_tile], map, &stage.full, {0, in_page, head, 1, page});
  }
}
