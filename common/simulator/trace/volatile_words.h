/// \file
/// Lanes of a warp that communicate through volatile shared memory. Internal to the simulator.
///
/// Volatile accesses implement flags and are not races. But reductions once used them without a barrier, when
/// the lanes of a warp ran in lock-step; since Volta, lanes no longer do. A thread that polls a flag reads it
/// repeatedly, and a thread that sets a flag has fenced before; threads that do neither rely on lock-step.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "common/simulator/trace/clocks.h"
#include "common/simulator/trace/shared_races.h"

namespace flashbook::sim {

/// The volatile words of a block. A possible race is kept until it is certain that no thread is polling.
class VolatileWords {
 public:
  explicit VolatileWords(Clocks& clocks) : clocks_(clocks) {}

  void begin() {
    words_.clear();
    suspected_.clear();
  }

  /// Notes that `thread` reads a word `at` bytes into shared memory, in the race checker's numbering.
  void load(int thread, std::size_t at, Site site) {
    Word& word = words_[at];
    const uint32_t now = clocks_.now(thread);
    Read& read = word.readers[thread];
    const bool polls = read.clock == now && read.site == site;
    read = {now, site};
    if (polls) {
      std::erase_if(suspected_, [&](const auto& one) { return one.first == std::tuple(thread, at, now); });
    } else if (word.writer && is_neighbour(thread, *word.writer) &&
               clocks_.known(thread, *word.writer) < word.written) {
      suspect(thread, at, now, {*word.writer, word.site, Access::store}, {thread, site, Access::load});
    }
  }

  /// Notes that `thread` writes the word at this position.
  void store(int thread, std::size_t at, Site site) {
    Word& word = words_[at];
    word.writer.reset();
    if (clocks_.has_just_fenced(thread)) return;
    for (const auto& [reader, read] : word.readers)
      if (is_neighbour(reader, thread) && clocks_.known(thread, reader) < read.clock)
        suspect(reader, at, read.clock, {reader, read.site, Access::load}, {thread, site, Access::store});
    word.writer = thread;
    word.written = clocks_.now(thread);
    word.site = site;
  }

  /// At the end of the block, calls `report(race)` for every remaining race.
  template <typename Report>
  void finish(const Report& report) {
    for (const auto& [place, race] : suspected_) report(race);
    begin();
  }

 private:
  struct Read {
    uint32_t clock = 0;
    Site site = 0;
  };
  struct Word {
    std::optional<int> writer;  ///< last writer, unless it fenced before writing
    uint32_t written = 0;       ///< the writer's clock at that time
    Site site = 0;
    std::map<int, Read> readers;  ///< last read of each thread
  };

  static bool is_neighbour(int a, int b) { return a != b && a / 32 == b / 32; }
  void suspect(int reader, std::size_t at, uint32_t clock, Race::Side first, Race::Side second) {
    suspected_.try_emplace({reader, at, clock}, Race{Race::Rule::order, first, second, at});
  }

  Clocks& clocks_;
  std::unordered_map<std::size_t, Word> words_;
  std::map<std::tuple<int, std::size_t, uint32_t>, Race> suspected_;  ///< keyed by reader, position and clock
};

}  // namespace flashbook::sim
