  for (int round = 0; round < kPieces; ++round) {
    add_to_piece(sums, weights, v, keys, (warp + round) % kPieces);
    __syncthreads();  // a warp has added to the piece before the next one does; at the end, all have
  }
