"""Faults in tma_epilogue.cuh: TMA's reads of what threads wrote, and the reuse of a buffer."""
from fault import Fault, everywhere

FENCE = "    fence_proxy_async();  // makes this thread's writes visible to TMA\n"
WAIT = "    if (threadIdx.x == 0) tma_store_wait_read<0>();\n"

FAULTS = [
    Fault("no_fence", "TMA reads what threads have stored, but no fence orders the two proxies' accesses.", FENCE, "",
          everywhere("fence_proxy_async", "traced")),
    Fault("fence_before_the_writes", "The fence precedes the stores that it should order.", FENCE, "",
          everywhere("fence_proxy_async", "traced"),
          also=[(WAIT, WAIT.replace("    if", "    fence_proxy_async(); if"))]),
    Fault("no_barrier_before_store", "One thread starts the tile's store before the others have written the tile.",
          "    __syncthreads();      // every row is written and fenced\n", "",
          everywhere("wrong result", "eager", "lazy") | everywhere("race", "traced")),
    Fault("no_wait_before_reuse", "The buffer is written again while TMA still reads it.", WAIT, "",
          everywhere("wrong result", "lazy", "random") | everywhere("race", "traced")),
    Fault("no_barrier_before_reuse", "Threads write the buffer again although only thread 0 has waited for TMA to read it.",
          "    __syncthreads();  // the previous tile's store has read the buffer\n", "",
          everywhere("race", "traced")),
    Fault("no_commit", "The waits are for groups, but the stores belong to none.", "      tma_store_commit();\n", "",
          everywhere("never committed")),
    Fault("no_wait_at_the_end", "The block ends while TMA still reads its shared memory.",
          "  if (threadIdx.x == 0) tma_store_wait<0>();\n", "",
          everywhere("may still be reading shared memory", "lazy", "traced")),
    Fault("written_without_swizzle", "The tile is written unswizzled, but TMA reads it swizzled.",
          "tile + swizzled(Swizzle::b128, offset)", "tile + offset", everywhere("wrong result")),
    Fault("negative_coordinate", "A store begins before the tensor, an illegal instruction on an H200.",
          "{0, first_query, head}", "{0, first_query - kRows, head}", everywhere("negative")),
    Fault("two_tiles_in_one_place", "The second tile overwrites the first.", "{0, first_query, head}",
          "{0, int(blockIdx.x) * kTiles * kRows, head}",
          everywhere("wrong result", "eager", "lazy") | everywhere("two tiles overlap", "traced")),
    Fault("coordinates_exchanged", "The box begins at another row and column.", "{0, first_query, head}",
          "{first_query, 0, head}", everywhere("wrong result")),
    Fault("tile_not_aligned", "The tile begins 64 bytes after a multiple of 128.",
          "kRows * kHeadDim * sizeof(T), nullptr,", "kRows * kHeadDim * sizeof(T) + 64, nullptr,",
          everywhere("tma_store at tma_epilogue.cuh"),
          also=[("dynamic_shared<unsigned char>();", "dynamic_shared<unsigned char>() + 64;")]),
]
