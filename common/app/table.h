/// \file
/// Tables of text.
#pragma once
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace flashbook {

/// Rows of text in columns. The first row is the head; columns whose `alignment` letter is 'l' are flush
/// left.
class Table {
 public:
  Table(std::string alignment, std::vector<std::string> head) : alignment_(std::move(alignment)) {
    add(std::move(head));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void print(std::ostream& out) const {
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

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace flashbook
