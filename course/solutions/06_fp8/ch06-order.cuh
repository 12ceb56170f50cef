        // Keys 4t to 4t + 3 are pairs 2t and 2t + 1 of eight. Thread 0 has pairs 0 and 4, thread 1 pairs 1
        // and 5, and so on: so two neighbouring threads hold the required pairs, both in their low halves or
        // both in the high ones.
        const int thread = threadIdx.x % 4, quad = threadIdx.x % 32 / 4 * 4;
        const uint32_t first = __shfl_sync(kWholeWarp, own, quad + 2 * thread % 4);
        const uint32_t second = __shfl_sync(kWholeWarp, own, quad + 2 * thread % 4 + 1);
        p[i][2 * half + row] =
            thread < 2 ? byte_permute<0x5410>(first, second) : byte_permute<0x7632>(first, second);
