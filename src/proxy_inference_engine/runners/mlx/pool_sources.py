"""The CUDA source of our kernels over a pool. What is in capitals is a constant of a kernel that MLX compiles."""

# One block: a row, a K/V head, a part of its past keys, one of its new tokens. A warp: QUERIES of the query heads that
# share the K/V head, and every STRIPES-th run of keys; eight lanes a key, each with a piece of either half of it, so
# that what is turned together lies together. What is new is read where it was computed, by the last part.
# Where there are several parts, the block that ends last joins what all found, and sets its counter back.
# What changes from pass to pass is no constant: a kernel takes seconds to compile.
ATTEND = """
    const int row = blockIdx.x / HEADS, head = blockIdx.x % HEADS;
    const int part = blockIdx.y, num_parts = gridDim.y, token = blockIdx.z, num_tokens = gridDim.z;
    if constexpr (HAS_AHEAD) {  // memory is idle here: have the next product's weights come nearer
      const long lines = (long)ahead_shape[0] * ahead_shape[1] * sizeof(T) / 128;
      const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
      const int threads = gridDim.x * gridDim.y * gridDim.z * blockDim.x;
      #pragma unroll 1
      for (long line = (long)block * blockDim.x + threadIdx.x; line < lines; line += threads)
        asm volatile("prefetch.global.L2 [%0];" :: "l"((const char*)ahead + line * 128));
    }
    constexpr int PIECE = WIDTH / 16, SETS = GROUP / QUERIES, RUN = 4 * UNROLLED;
    const int warp = threadIdx.x >> 5, set = warp % SETS, stripe = warp / SETS;
    const int within = threadIdx.x & 7, quarter = (threadIdx.x >> 3) & 3;
    const int start = starts[row], slot = slots[row], count = counts[row], at_layer = layer[0];
    const int turn = TURNED ? turns[row] : 0;
    if (token >= count) return;
    constexpr int WORDS = sizeof(T) * PIECE / 4;  // whole words: single numbers would each take a register
    struct alignas(WORDS < 4 ? WORDS * 4 : 16) Piece { unsigned words[WORDS]; };
    #define NUMBER(PIECE_, E) ((float)((const T*)&PIECE_)[E])
    struct Numbers { float at[2 * PIECE]; };
    const int num_slots = pool_shape[2], capacity = pool_shape[4];
    const long slot_size = (long)HEADS * capacity * WIDTH;
    T* slot_keys = const_cast<T*>(pool) + ((long)at_layer * 2 * num_slots + slot) * slot_size
                   + (long)head * capacity * WIDTH + within * PIECE;
    T* slot_values = slot_keys + (long)num_slots * slot_size;
    // Joined, a token's queries, keys and values lie behind each other; apart, a head's tokens do.
    constexpr int ASKED = GROUP * HEADS * WIDTH, FOUND = HEADS * WIDTH, ALL = ASKED + 2 * FOUND;
    const int head_step = JOINED ? WIDTH : num_tokens * WIDTH, token_step = JOINED ? ALL : WIDTH;
    const long new_at = (long)row * num_tokens * (JOINED ? ALL : FOUND) + (long)head * head_step + within * PIECE;
    const T* new_keys = keys + (JOINED ? ASKED : 0) + new_at;
    const T* new_values = values + (JOINED ? ASKED + FOUND : 0) + new_at;

    auto turned = [&](const T* from, const T* weights, int at) {
      const Piece one = *(const Piece*)from, other = *(const Piece*)(from + WIDTH / 2);
      Numbers found;
      #pragma unroll
      for (int e = 0; e < PIECE; e++) { found.at[e] = NUMBER(one, e); found.at[PIECE + e] = NUMBER(other, e); }
      if constexpr (NORMED) {
        float squares = 0.f;
        #pragma unroll
        for (int e = 0; e < 2 * PIECE; e++) squares += found.at[e] * found.at[e];
        for (int o = 4; o > 0; o >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, o);
        const float factor = rsqrtf(squares / WIDTH + numbers[1]);
        #pragma unroll
        for (int e = 0; e < PIECE; e++) {
          found.at[e] *= factor * (float)weights[within * PIECE + e];
          found.at[PIECE + e] *= factor * (float)weights[WIDTH / 2 + within * PIECE + e];
        }
      }
      if constexpr (TURNED) {
        const float* its_angles = angles + (long)(turn + at) * WIDTH + within * PIECE;
        #pragma unroll
        for (int e = 0; e < PIECE; e++) {
          const float cosine = its_angles[e], sine = its_angles[WIDTH / 2 + e];
          const float x = found.at[e], y = found.at[PIECE + e];
          found.at[e] = x * cosine - y * sine;
          found.at[PIECE + e] = y * cosine + x * sine;
        }
      }
      return found;
    };

    __shared__ float asked_numbers[GROUP][WIDTH];
    #pragma unroll 1
    for (int g = warp; g < GROUP; g += SETS * STRIPES) {
      const long at = (long)row * num_tokens * (JOINED ? ALL : ASKED) + (long)token * token_step
                      + (long)(head * GROUP + g) * head_step + within * PIECE;
      const Numbers found = turned(queries + at, query_weights, token);
      #pragma unroll
      for (int e = 0; e < 2 * PIECE; e++)
        asked_numbers[g][e / PIECE * (WIDTH / 2) + within * PIECE + e % PIECE] = found.at[e] * numbers[0];
    }
    __syncthreads();
    Numbers q[QUERIES], sum[QUERIES];
    float most[QUERIES], total[QUERIES];
    #pragma unroll
    for (int p = 0; p < QUERIES; p++) {
      most[p] = -1e30f;
      total[p] = 0.f;
      #pragma unroll
      for (int e = 0; e < 2 * PIECE; e++) {
        q[p].at[e] = asked_numbers[set * QUERIES + p][e / PIECE * (WIDTH / 2) + within * PIECE + e % PIECE];
        sum[p].at[e] = 0.f;
      }
    }
    Piece k[UNROLLED][2], v[UNROLLED][2], next_k[UNROLLED][2], next_v[UNROLLED][2];
    auto take = [&](int num_keys) {  // of the run, counted from this quarter's first
      #pragma unroll
      for (int p = 0; p < QUERIES; p++) {
        float score[UNROLLED], now_most = most[p];
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
          score[u] = 0.f;
          #pragma unroll
          for (int e = 0; e < PIECE; e++)
            score[u] += q[p].at[e] * NUMBER(k[u][0], e) + q[p].at[PIECE + e] * NUMBER(k[u][1], e);
          for (int o = 4; o > 0; o >>= 1) score[u] += __shfl_xor_sync(0xffffffff, score[u], o);
          if (u * 4 >= num_keys) score[u] = -1e30f;
          now_most = fmaxf(now_most, score[u]);
        }
        const float kept = __expf(most[p] - now_most);
        most[p] = now_most;
        total[p] *= kept;
        #pragma unroll
        for (int e = 0; e < 2 * PIECE; e++) sum[p].at[e] *= kept;
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
          const float weight = u * 4 < num_keys ? __expf(score[u] - now_most) : 0.f;
          total[p] += weight;
          #pragma unroll
          for (int e = 0; e < PIECE; e++) {
            sum[p].at[e] += weight * NUMBER(v[u][0], e);
            sum[p].at[PIECE + e] += weight * NUMBER(v[u][1], e);
          }
        }
      }
    };

    const int per_part = (start + num_parts - 1) / num_parts;
    const int first = part * per_part, last = min(start, first + per_part);
    auto fetch = [&](int i) {
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const long place = (long)min(i + u * 4 + quarter, last - 1) * WIDTH;
        next_k[u][0] = *(const Piece*)(slot_keys + place);
        next_k[u][1] = *(const Piece*)(slot_keys + place + WIDTH / 2);
        next_v[u][0] = *(const Piece*)(slot_values + place);
        next_v[u][1] = *(const Piece*)(slot_values + place + WIDTH / 2);
      }
    };
    const int past = max(0, last - first), new_keys_here = part == num_parts - 1 ? token + 1 : 0;
    // Runs of what is past, then runs of what is new: one loop, since code that is not in its cache is slow.
    const int past_runs = (past + RUN - 1) / RUN, runs = past_runs + (new_keys_here + RUN - 1) / RUN;
    if (stripe < past_runs) fetch(first + stripe * RUN);
    #pragma unroll 1
    for (int run = stripe; run < runs; run += STRIPES) {
      const bool is_past = run < past_runs;
      const int at = (is_past ? first + run * RUN : (run - past_runs) * RUN) + quarter;
      if (is_past) {
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++)
          #pragma unroll
          for (int half = 0; half < 2; half++) { k[u][half] = next_k[u][half]; v[u][half] = next_v[u][half]; }
        if (run + STRIPES < past_runs) fetch(first + (run + STRIPES) * RUN);
      } else {
        #pragma unroll 1
        for (int u = 0; u < UNROLLED; u++) {
          const int j = min(at + u * 4, token);
          const Numbers key = turned(new_keys + j * token_step, key_weights, j);
          Piece halves[4];
          #pragma unroll
          for (int e = 0; e < PIECE; e++) {
            ((T*)&halves[0])[e] = (T)key.at[e];
            ((T*)&halves[1])[e] = (T)key.at[PIECE + e];
          }
          halves[2] = *(const Piece*)(new_values + j * token_step);
          halves[3] = *(const Piece*)(new_values + j * token_step + WIDTH / 2);
          if (at + u * 4 == token && set == 0) {
            const long place = (long)(start + token) * WIDTH;
            *(Piece*)(slot_keys + place) = halves[0];
            *(Piece*)(slot_keys + place + WIDTH / 2) = halves[1];
            *(Piece*)(slot_values + place) = halves[2];
            *(Piece*)(slot_values + place + WIDTH / 2) = halves[3];
          }
          #pragma unroll
          for (int other = 0; other < UNROLLED; other++)
            if (other == u) {
              k[other][0] = halves[0];
              k[other][1] = halves[1];
              v[other][0] = halves[2];
              v[other][1] = halves[3];
            }
        }
      }
      take((is_past ? last : new_keys_here) - at);
    }

    constexpr int FINDERS = STRIPES * 4;
    __shared__ float mosts[FINDERS][GROUP], totals[FINDERS][GROUP];
    __shared__ __align__(16) float sums[FINDERS][GROUP][WIDTH];
    #pragma unroll
    for (int p = 0; p < QUERIES; p++) {
      const int finder = stripe * 4 + quarter, g = set * QUERIES + p;
      mosts[finder][g] = most[p];
      totals[finder][g] = total[p];
      #pragma unroll
      for (int e = 0; e < PIECE; e++) {
        sums[finder][g][within * PIECE + e] = sum[p].at[e];
        sums[finder][g][WIDTH / 2 + within * PIECE + e] = sum[p].at[PIECE + e];
      }
    }
    __syncthreads();
    T* to = out + (long)row * num_tokens * ASKED + (long)token * (JOINED ? ASKED : WIDTH)
            + (long)head * GROUP * head_step;
    const long place = ((long)row * HEADS + head) * num_tokens + token;
    float* own = parts + place * num_parts * GROUP * (WIDTH + 2);  // sums of all parts, then what they divide by
    float2* own_rest = (float2*)(own + num_parts * GROUP * WIDTH);
    #pragma unroll 1
    for (int x = threadIdx.x * 4; x < GROUP * WIDTH; x += blockDim.x * 4) {
      const int g = x / WIDTH, d = x % WIDTH;
      float all_most = -1e30f, all_total = 0.f;
      float4 all = {0.f, 0.f, 0.f, 0.f};
      #pragma unroll 4
      for (int f = 0; f < FINDERS; f++) all_most = fmaxf(all_most, mosts[f][g]);
      #pragma unroll 4
      for (int f = 0; f < FINDERS; f++) {
        const float kept = __expf(mosts[f][g] - all_most);
        const float4 its = *(const float4*)&sums[f][g][d];
        all_total += totals[f][g] * kept;
        all.x += its.x * kept; all.y += its.y * kept; all.z += its.z * kept; all.w += its.w * kept;
      }
      if (num_parts == 1) {
        T* at = to + (long)g * head_step + d;
        at[0] = (T)(all.x / all_total); at[1] = (T)(all.y / all_total);
        at[2] = (T)(all.z / all_total); at[3] = (T)(all.w / all_total);
      } else {
        *(float4*)(own + (part * GROUP + g) * WIDTH + d) = all;
        if (d == 0) own_rest[part * GROUP + g] = {all_most, all_total};
      }
    }
    if (num_parts == 1) return;
    __shared__ bool is_last;
    __shared__ float2 rest[MAX_PARTS][GROUP];
    int* counter = const_cast<int*>(counters) + place;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(counter, 1) == num_parts - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (int x = threadIdx.x; x < num_parts * GROUP; x += blockDim.x) rest[x / GROUP][x % GROUP] = __ldcg(own_rest + x);
    __syncthreads();
    #pragma unroll 1
    for (int x = threadIdx.x * 4; x < GROUP * WIDTH; x += blockDim.x * 4) {
      const int g = x / WIDTH, d = x % WIDTH;
      float all_most = -1e30f, all_total = 0.f;
      float4 all = {0.f, 0.f, 0.f, 0.f};
      #pragma unroll 4
      for (int p = 0; p < num_parts; p++) all_most = fmaxf(all_most, rest[p][g].x);
      #pragma unroll 8
      for (int p = 0; p < num_parts; p++) {
        const float kept = __expf(rest[p][g].x - all_most);
        const float4 its = __ldcg((const float4*)(own + (p * GROUP + g) * WIDTH + d));
        all_total += rest[p][g].y * kept;
        all.x += its.x * kept; all.y += its.y * kept; all.z += its.z * kept; all.w += its.w * kept;
      }
      T* at = to + (long)g * head_step + d;
      at[0] = (T)(all.x / all_total); at[1] = (T)(all.y / all_total);
      at[2] = (T)(all.z / all_total); at[3] = (T)(all.w / all_total);
    }
    if (threadIdx.x == 0) *counter = 0;
"""

# Between (layers, 2, heads, tokens, width) and a slot. One row of blocks: a layer's K or V of one head, whose tokens
# lie behind each other in both. `place` is slot, first token, count, first layer.
_PLACES = """
    const int slot = place[0], start = place[1], count = place[2], first_layer = place[3], rest = blockIdx.y;
    const long i = ((long)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
    struct alignas(sizeof(T) * EACH) Piece { T at[EACH]; };
    const long half = rest / HEADS + (long)first_layer * 2;
    T* in_pool = const_cast<T*>(pool) + ((half * pool_shape[2] + slot) * HEADS + rest % HEADS) * pool_shape[4] * WIDTH
                 + (long)start * WIDTH + i;
"""
STORE = (
    _PLACES
    + """
    if (i == 0 && rest == 0) done[0] = 1;
    if (i >= (long)count * WIDTH) return;
    *(Piece*)in_pool = *(const Piece*)(source + (long)rest * source_shape[3] * WIDTH + i);
"""
)
LOAD = (
    _PLACES
    + """
    if (i >= (long)count * WIDTH) return;
    *(Piece*)(out + (long)rest * count * WIDTH + i) = *(const Piece*)in_pool;
"""
)
