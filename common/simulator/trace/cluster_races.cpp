#include "common/simulator/trace/cluster_races.h"

#include <algorithm>
#include <map>
#include <utility>

namespace flashbook::sim {

std::optional<BlockConflict> ClusterRaces::access(const DeviceMemory::Who& who, std::size_t at,
                                                  std::size_t bytes, Access access, Site site, bool by_peer) {
  std::optional<BlockConflict> conflict;
  for (std::size_t word = at / kWord; word * kWord < at + bytes; ++word) {
    uint8_t mine = 0;
    for (std::size_t i = 0; i < kWord; ++i) mine |= uint8_t(word * kWord + i - at < bytes) << i;
    std::vector<Mark>& marks = words_[word];
    std::erase_if(marks, [&](const Mark& mark) {
      if (!(mark.bytes & mine)) return false;
      const bool is_own = mark.block == who.block && mark.who == who.agent && mark.clock == who.clock;
      const bool is_race = (writes(access) || writes(mark.access)) &&
                           !(meets(access) && meets(mark.access)) && (by_peer || mark.by_peer) && !is_own;
      const bool is_known = is_own || ((is_race || access == Access::store) && knows(who, mark));
      if (is_race && !is_known && !conflict)
        conflict = BlockConflict{!who.order.is_agent(mark.who) ? Race::Rule::order
                                 : writes(mark.access)         ? Race::Rule::async_write
                                                               : Race::Rule::async_read,
                                 {mark.block, mark.who, mark.site, mark.access},
                                 {who.block, who.agent, site, access},
                                 word * kWord};
      // What is known to who writes there, or reads there once more, says nothing that the new mark does not.
      return (mark.bytes & ~mine) == 0 && is_known && (writes(access) || (is_own && !writes(mark.access)));
    });
    marks.push_back({who.block, who.agent, who.clock, site, access, mine, by_peer});
  }
  return conflict;
}

void ClusterRaces::for_each_of_peers(
    const std::function<void(const BlockConflict::Side&, uint32_t clock)>& look) const {
  std::map<std::pair<uint64_t, int>, const Mark*> last;
  for (const auto& [word, marks] : words_)
    for (const Mark& mark : marks) {
      if (!mark.by_peer) continue;
      const Mark*& latest = last[{mark.block, mark.who}];
      if (!latest || latest->clock < mark.clock) latest = &mark;
    }
  for (const auto& [who, mark] : last) look({mark->block, mark->who, mark->site, mark->access}, mark->clock);
}

}  // namespace flashbook::sim
