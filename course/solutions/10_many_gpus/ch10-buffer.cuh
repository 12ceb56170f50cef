/// Adds all ranks' numbers to `sum`. `held[0]` has this rank's own numbers at the start; both buffers may be
/// overwritten.
inline void sum_round_the_ring(Rank& rank, float* sum, float* const (&held)[2], int count) {
  const int ranks = rank.count(), next = (rank.number() + 1) % ranks,
            previous = (rank.number() + ranks - 1) % ranks;
  const std::size_t bytes = std::size_t(count) * sizeof(float);
  Queue compute, copies;
  Event arrived, added;  // `added`: the previous hop has been added
  for (int hop = 0; hop < ranks; ++hop) {
    const Event here = arrived;
    if (hop + 1 < ranks) {
      copies.wait_for(added);  // the buffer for the next numbers has been read
      rank.exchange(copies, {{next, held[hop % 2], bytes}}, {{previous, held[(hop + 1) % 2], bytes}});
      arrived = copies.record();
    }
    compute.wait_for(here);  // the numbers of this hop have arrived
    add_to(sum, held[hop % 2], count, compute);
    added = compute.record();
  }
  compute.synchronize();
  copies.synchronize();
}
