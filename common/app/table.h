/// \file
/// Tables of text.
#pragma once
#include <algorithm>
#include <ostream>
#include <string>
#include <vector>

namespace flashbook {

/// Rows of text in columns. The first row is the header; a column is left-aligned if its letter in
/// `alignment` is 'l'.
class Table {
 public:
  Table(std::string alignment, std::vector<std::string> head) : alignment_(std::move(alignment)) {
    add(std::move(head));
  }
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  /// Drops the columns that have "-" in every row except the header.
  void drop_empty_columns() {
    for (std::size_t i = alignment_.size(); i-- > 0;) {
      const auto is_empty = [i](const auto& row) { return row[i] == "-"; };
      if (!std::all_of(rows_.begin() + 1, rows_.end(), is_empty)) continue;
      alignment_.erase(i, 1);
      for (auto& row : rows_) row.erase(row.begin() + std::ptrdiff_t(i));
    }
  }
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
