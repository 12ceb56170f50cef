  for (int round = 0; round < kPieces; ++round) {
    add_to_piece(sums, weights, v, keys, (warp + round) % kPieces);
    __syncthreads();  // this warp's part is in the piece before the next warp adds to it; at the end, all are
  }
