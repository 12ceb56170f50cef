/// \file
/// Tables of text.
#pragma once
#include <iosfwd>
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
  void print(std::ostream& out) const;

 private:
  std::string alignment_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace flashbook
