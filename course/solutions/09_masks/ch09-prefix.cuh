  /// Both ranges of keys begin at key 0, so the longer one contains the other.
  struct Row {
    int end;

    __device__ bool sees(int key) const { return key < end; }
  };
  __device__ Row row(int batch, int, int query) const {
    const int own = query + seqlen_k - seqlen_q;
    return {min(max(prompt[batch], own + 1), seqlen_k)};
  }
