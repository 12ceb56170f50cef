/// Puts the last keys of the previous rank into `before`, and the first keys of the next rank into `behind`.
/// `first` and `last` are this rank's own; each has `bytes` bytes.
inline void exchange_edges(Rank& rank, Queue& queue, void* first, void* last, void* before, void* behind,
                           std::size_t bytes) {
  const int next = (rank.number() + 1) % rank.count(),
            previous = (rank.number() + rank.count() - 1) % rank.count();
  // With one or two ranks, both messages go to the same rank, which receives them in the order in which they
  // were sent.
  rank.exchange(queue, {{next, last, bytes}, {previous, first, bytes}},
                {{previous, before, bytes}, {next, behind, bytes}});
}
