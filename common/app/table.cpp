#include "common/app/table.h"

#include <algorithm>
#include <ostream>

namespace flashbook {

void Table::print(std::ostream& out) const {
  std::vector<std::size_t> width(alignment_.size(), 0);
  for (const auto& row : rows_)
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string space(width[i] - row[i].size(), ' ');
      line += (i > 0 ? "  " : "") + (alignment_[i] == 'l' ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

}  // namespace flashbook
