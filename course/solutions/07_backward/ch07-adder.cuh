    for (int round = 0; round < tiles; ++round) {
      const int tile = (block + round) % tiles, buffer = round % 2;
      mbarrier_wait(&shared.full[buffer], round / 2 % 2);  // the partial sums are stored
      while (load_acquire(semaphores + tile) != round) {
      }
      bulk_reduce_add(&sums[tile * kPartWriters].x, &shared.part[buffer][0].x, sizeof(shared.part[buffer]));
      tma_store_commit();
      tma_store_wait_read<0>();  // the buffer may be overwritten
      mbarrier_arrive(&shared.empty[buffer]);
      tma_store_wait<0>();  // the sums are in memory
      store_release(semaphores + tile, round + 1);
    }
