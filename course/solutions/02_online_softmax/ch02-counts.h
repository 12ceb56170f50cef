  double maximum() const { return first + (scores - 1) * step; }
  // The last score contributes 1, the scores before it e^-step, e^-2step, ...
  double sum() const { return (1 - std::exp(-scores * step)) / (1 - std::exp(-step)); }
  // Every score except the first raises the maximum.
  double rises() const { return scores - 1; }
  // Every tile except the first raises the maximum.
  double rises_in_tiles() const { return scores / tile - 1; }
  // Score k is the largest so far with probability 1/k, so the mean is 1 + 1/2 + 1/3 + ... + 1/scores.
  double maxima() const { return std::log(scores) + 0.5772; }
  // Each tile so far is equally likely to hold the largest score, so tile k raises it with probability 1/k.
  double tiles_with_a_maximum() const { return std::log(scores / tile) + 0.5772; }
  // Step 3 corrects O for every key, step 4 for every tile.
  double multiplications_of_step3() const { return scores * head_dim; }
  double multiplications_of_step4() const { return scores / tile * head_dim; }
