  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, T, nvcuda::wmma::row_major> q_fragment;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, T, nvcuda::wmma::col_major> k_fragment;
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;
  nvcuda::wmma::fill_fragment(sums, 0.0f);
  for (int c = 0; c < kHeadDim; c += 16) {
    nvcuda::wmma::load_matrix_sync(q_fragment, &q_tile[0][c], kStride);
    nvcuda::wmma::load_matrix_sync(k_fragment, &k_tile[0][c], kStride);
    nvcuda::wmma::mma_sync(sums, q_fragment, k_fragment, sums);
  }
  nvcuda::wmma::store_matrix_sync(scores + int64_t(first_query) * keys + first_key, sums, keys,
                                  nvcuda::wmma::mem_row_major);
