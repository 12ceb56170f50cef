"""Faults in tma_epilogue.cuh: what threads wrote and TMA reads, and when a buffer may be used again."""
from fault import Fault, everywhere

FENCE = "    fence_proxy_async();  // TMA will see what this thread has written\n"
WAIT = "    if (threadIdx.x == 0) tma_store_wait_read<0>();\n"

FAULTS = [
    Fault("no_fence", "TMA reads what threads have stored, and nothing orders the two ways to memory.", FENCE, "",
          everywhere("fence_proxy_async", "traced")),
    Fault("fence_before_the_writes", "The fence comes before what it should order.", FENCE, "",
          everywhere("fence_proxy_async", "traced"),
          also=[(WAIT, WAIT.replace("    if", "    fence_proxy_async(); if"))]),
    Fault("no_barrier_before_store", "One thread has the tile stored before the others have written it.",
          "    __syncthreads();      // every row is there and fenced\n", "",
          everywhere("wrong result", "eager", "lazy") | everywhere("race", "traced")),
    Fault("no_wait_before_reuse", "The buffer is written again while TMA still reads it.", WAIT, "",
          everywhere("wrong result", "lazy", "random") | everywhere("race", "traced")),
    Fault("no_barrier_before_reuse", "Threads write the buffer again though only thread 0 knows that TMA has read it.",
          "    __syncthreads();  // the store of the tile before has read the buffer\n", "",
          everywhere("race", "traced")),
    Fault("no_commit", "The waits wait for groups, and the stores are in none.", "      tma_store_commit();\n", "",
          everywhere("never committed")),
    Fault("no_wait_at_the_end", "The block ends while TMA still reads its shared memory.",
          "  if (threadIdx.x == 0) tma_store_wait<0>();\n", "",
          everywhere("may still be reading shared memory", "lazy", "traced")),
    Fault("written_without_swizzle", "The tile is written in plain rows, and TMA reads it swizzled.",
          "tile + swizzled(Swizzle::b128, offset)", "tile + offset", everywhere("wrong result")),
    Fault("negative_coordinate", "A store begins before the tensor, an illegal instruction on an H200.",
          "{0, first_query, head}", "{0, first_query - kRows, head}", everywhere("negative")),
    Fault("two_tiles_in_one_place", "The second tile is stored over the first.", "{0, first_query, head}",
          "{0, int(blockIdx.x) * kTiles * kRows, head}",
          everywhere("wrong result", "eager", "lazy") | everywhere("two tiles overlap", "traced")),
    Fault("coordinates_exchanged", "The box begins at another row and column.", "{0, first_query, head}",
          "{first_query, 0, head}", everywhere("wrong result")),
    Fault("tile_not_aligned", "The tile begins 64 bytes after a multiple of 128.",
          "kRows * kHeadDim * sizeof(T), nullptr,", "kRows * kHeadDim * sizeof(T) + 64, nullptr,",
          everywhere("tma_store at tma_epilogue.cuh"),
          also=[("dynamic_shared<unsigned char>();", "dynamic_shared<unsigned char>() + 64;")]),
]
