  // The part has only masked scores, or none: there is nothing to add, and -inf * 0 would be NaN. Below this
  // line new_max is finite.
  if (part.row_max == kMinusInfinity) return;
  const float new_max = std::max(state.row_max, part.row_max);
  const float correction = std::exp(state.row_max - new_max), weight = std::exp(part.row_max - new_max);
  state.row_sum = state.row_sum * correction + part.row_sum * weight;
  state.score_sum = state.score_sum * correction + part.score_sum * weight;
  state.row_max = new_max;
