"""The CUDA source of our matrix products. What is in capitals is a constant of a kernel that MLX compiles."""

# One row times weights. One warp: two outputs, or one that is gated by another. The inputs and their norm are read once
# by the block, while its first weights are on their way.
PRODUCT = """
    constexpr int STEP = 32 * EACH;
    extern __shared__ __align__(16) char shared[];
    T* row = (T*)shared;
    __shared__ float of_warps[32];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int width = weights_shape[1], outputs = weights_shape[0] / (GATED ? 2 : 1);
    const int first = min((blockIdx.x * (int)(blockDim.x >> 5) + warp) * (GATED ? 1 : 2), outputs - 1);
    const int second = GATED ? first + outputs : min(first + 1, outputs - 1);
    const T* first_weights = weights + (long)first * width;
    const T* second_weights = weights + (long)second * width;
    int4 a[UNROLLED], b[UNROLLED], next_a[UNROLLED], next_b[UNROLLED];
    auto fetch = [&](int i) {
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const int at = min(i + u * STEP + lane * EACH, width - EACH);  // behind the end it meets zeros
        next_a[u] = __ldcs((const int4*)(first_weights + at));
        next_b[u] = __ldcs((const int4*)(second_weights + at));
      }
    };
    fetch(0);
    float squares = 0.f, small = 0.f;
    float added_one = 0.f, added_two = 0.f;
    if constexpr (NORMED) small = eps[0];
    if constexpr (ADDED) { added_one = (float)added[first]; added_two = (float)added[second]; }
    const int filled = (width + STEP * UNROLLED - 1) / (STEP * UNROLLED) * STEP * UNROLLED;
    for (int i = threadIdx.x * EACH; i < filled; i += blockDim.x * EACH) {
      int4 piece = i < width ? *(const int4*)(inputs + i) : int4{0, 0, 0, 0};
      if (NORMED && i < width) {
        const int4 factor = *(const int4*)(norm + i);
        #pragma unroll
        for (int e = 0; e < EACH; e++) {
          const float value = (float)((const T*)&piece)[e];
          squares += value * value;
          ((T*)&piece)[e] = (T)(value * (float)((const T*)&factor)[e]);
        }
      }
      *(int4*)(row + i) = piece;
    }
    if constexpr (NORMED) {
      for (int o = 16; o > 0; o >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, o);
      if (lane == 0) of_warps[warp] = squares;
    }
    __syncthreads();
    float one = 0.f, two = 0.f;
    #pragma unroll 1
    for (int i = 0; i < width; i += STEP * UNROLLED) {
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) { a[u] = next_a[u]; b[u] = next_b[u]; }
      if (i + STEP * UNROLLED < width) fetch(i + STEP * UNROLLED);
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const int4 piece = *(const int4*)(row + i + u * STEP + lane * EACH);
        #pragma unroll
        for (int e = 0; e < EACH; e++) {
          const float value = (float)((const T*)&piece)[e];
          one += value * (float)((const T*)&a[u])[e];
          two += value * (float)((const T*)&b[u])[e];
        }
      }
    }
    #pragma unroll
    for (int o = 16; o > 0; o >>= 1) {
      one += __shfl_xor_sync(0xffffffff, one, o);
      two += __shfl_xor_sync(0xffffffff, two, o);
    }
    if (lane != 0) return;
    if constexpr (NORMED) {
      squares = 0.f;
      for (int w = 0; w < (int)(blockDim.x >> 5); w++) squares += of_warps[w];
      const float scale = rsqrtf(squares / width + small);
      one *= scale;
      two *= scale;
    }
    if constexpr (GATED) {
      out[first] = (T)(one / (1.f + __expf(-one)) * two);
    } else {
      out[first] = (T)(one + added_one);
      out[second] = (T)(first == second ? one + added_one : two + added_two);
    }
"""

# One block: a row, to which another is added before it is normed.
ADD_NORM = """
    struct alignas(sizeof(T) * EACH) Piece { T at[EACH]; };
    const int width = hidden_shape[1];
    const long row = (long)blockIdx.x * width;
    Piece kept[PIECES], factors[PIECES];
    const float small = eps[0];
    float squares = 0.f;
    #pragma unroll
    for (int p = 0; p < PIECES; p++) {
      const int i = (p * (int)blockDim.x + threadIdx.x) * EACH;
      if (i < width) {
        const Piece one = *(const Piece*)(hidden + row + i), other = *(const Piece*)(added + row + i);
        factors[p] = *(const Piece*)(norm + i);
        #pragma unroll
        for (int e = 0; e < EACH; e++) {
          kept[p].at[e] = (T)((float)one.at[e] + (float)other.at[e]);
          squares += (float)kept[p].at[e] * (float)kept[p].at[e];
        }
        *(Piece*)(sum + row + i) = kept[p];
      }
    }
    __shared__ float of_warps[32];
    for (int o = 16; o > 0; o >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, o);
    if ((threadIdx.x & 31) == 0) of_warps[threadIdx.x >> 5] = squares;
    __syncthreads();
    squares = 0.f;
    for (int w = 0; w < (blockDim.x + 31) / 32; w++) squares += of_warps[w];
    const float scale = rsqrtf(squares / width + small);
    #pragma unroll
    for (int p = 0; p < PIECES; p++) {
      const int i = (p * (int)blockDim.x + threadIdx.x) * EACH;
      if (i < width) {
        Piece normed_piece;
        #pragma unroll
        for (int e = 0; e < EACH; e++)
          normed_piece.at[e] = (T)((float)kept[p].at[e] * scale * (float)factors[p].at[e]);
        *(Piece*)(normed + row + i) = normed_piece;
      }
    }
"""

# One thread: EACH outputs. A row holds the gates, then what they let pass.
GATE = """
    struct alignas(sizeof(T) * EACH) Piece { T at[EACH]; };
    const int width = both_shape[1] / 2;
    const long row = blockIdx.y;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    if (i >= width) return;
    const Piece gate = *(const Piece*)(both + row * 2 * width + i);
    const Piece up = *(const Piece*)(both + row * 2 * width + width + i);
    Piece passed;
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
      const float g = (float)gate.at[e];
      passed.at[e] = (T)(g / (1.f + __expf(-g)) * (float)up.at[e]);
    }
    *(Piece*)(out + row * width + i) = passed;
"""
