  if (query >= problem.seqlen_q || key >= problem.visible_keys(query)) return;

  const T* q_row = q + problem.q_row(head, query) * head_dim;
  const T* k_row = k + problem.k_row(head, key) * head_dim;
  float sum = 0.0f;
  for (int c = 0; c < head_dim; ++c) sum += to_float(q_row[c]) * to_float(k_row[c]);
  const int distance =
      abs(query + problem.seqlen_k - problem.seqlen_q - key);  // without a mask, of later keys too
  scores[problem.q_row(head, query) * problem.score_stride + key] =
      problem.scale * sum - slopes[head] * float(distance);
