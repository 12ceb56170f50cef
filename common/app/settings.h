/// \file
/// Options whose meaning takes more than their own value: each sets a part of the shape.
#pragma once
#include "common/app/files.h"

namespace flashbook {

/// "1000,37,0,4096": sequences of a cache, or packed into one batch entry.
void set_lengths(const Value& value, const Given& given, Operation operation, Shape& shape);
/// So many documents, as even as they go.
void set_documents(const Value& value, Shape& shape);
/// Pages in random order, of as many rows and with such a shared prefix as shape.paging says.
void set_pages(const Chapter& chapter, Operation operation, uint64_t seed, Shape& shape);
void set_layout(const Value& value, Shape& shape);

/// "3,17" is query 17 of head 3, "1,3,17" that of batch entry 1.
RowOf row_of(const Value& value, const Shape& shape);

}  // namespace flashbook
