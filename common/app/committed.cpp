#include "common/app/committed.h"

#include <algorithm>

#include "common/app/rungs.h"
#include "common/concat.h"

namespace flashbook {

const CommittedRung* Committed::find(int chapter, std::string_view slug) const {
  const std::string name = concat("ch", chapter < 10 ? "0" : "", chapter, "/", slug);
  const auto found = std::ranges::find(rungs, std::string_view(name), &CommittedRung::step);
  return found == rungs.end() ? nullptr : &*found;
}

const Committed& committed_results() { return kCommitted; }

}  // namespace flashbook
