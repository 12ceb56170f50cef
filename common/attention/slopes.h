/// \file
/// Which of ALiBi's slopes a query has.
#pragma once
#include "common/attention/shape.h"

namespace flashbook {

/// How many sequences have slopes of their own, if they have: documents, or batch entries.
int64_t sequences_of(const Shape& shape);

/// The slope of a query's head; 0 if there are none.
float slope_of(const Shape& shape, int batch, int head, int query);

}  // namespace flashbook
