"""The CUDA source of our kernels over a pool. What is in capitals is a constant of a kernel that MLX compiles."""

# One block: a row, a K/V head, a part of its past keys, one of its new tokens. A warp: QUERIES of the query heads that
# share the K/V head, and every STRIPES-th run of keys; LANES a key, each with a piece of either half of it, so that
# what is turned together lies together. Runs come to a ring of STAGES in shared memory while earlier ones are
# computed: held in registers they would leave room for fewer blocks. What is new is read where it was computed, by the
# last part.
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
    constexpr int PIECE = WIDTH / (2 * LANES), KEYS = 32 / LANES, RUN = KEYS * UNROLLED, SETS = GROUP / QUERIES;
    const int warp = threadIdx.x >> 5, set = warp % SETS, stripe = warp / SETS, lane = threadIdx.x & 31;
    const int within = lane % LANES, which = lane / LANES;
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
                   + (long)head * capacity * WIDTH;
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
        for (int o = LANES / 2; o > 0; o >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, o);
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

    constexpr int RING = STAGES * 2 * RUN * WIDTH, FINDERS = STRIPES * KEYS;  // sums take the rings' place at the end
    constexpr int RINGS_BYTES = SETS * STRIPES * RING * sizeof(T), SUMS_BYTES = FINDERS * GROUP * WIDTH * 4;
    __shared__ __align__(16) unsigned char room[RINGS_BYTES > SUMS_BYTES ? RINGS_BYTES : SUMS_BYTES];
    T* ring = (T*)room + warp * RING;
    const int per_part = (start + num_parts - 1) / num_parts;
    const int first = part * per_part, last = min(start, first + per_part);
    const int past = max(0, last - first), new_keys_here = part == num_parts - 1 ? token + 1 : 0;
    // Runs of what is past, then runs of what is new: one loop, since code that is not in its cache is slow.
    const int past_runs = (past + RUN - 1) / RUN, runs = past_runs + (new_keys_here + RUN - 1) / RUN;
    int asked_run = stripe, asked_stage = 0;
    auto ask = [&]() {
      if (asked_run < past_runs) {
        constexpr int EACH = 16 / sizeof(T), OF_KEY = WIDTH / EACH;
        T* to = ring + asked_stage * 2 * RUN * WIDTH;
        #pragma unroll
        for (int i = lane; i < RUN * OF_KEY; i += 32) {
          const long from = (long)min(first + asked_run * RUN + i / OF_KEY, last - 1) * WIDTH + i % OF_KEY * EACH;
          const unsigned key_place = __cvta_generic_to_shared(to + i * EACH);
          const unsigned value_place = __cvta_generic_to_shared(to + RUN * WIDTH + i * EACH);
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(key_place), "l"(slot_keys + from));
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(value_place), "l"(slot_values + from));
        }
      }
      asm volatile("cp.async.commit_group;");
      asked_run += STRIPES;
      asked_stage = asked_stage + 1 == STAGES ? 0 : asked_stage + 1;
    };
    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) ask();

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
    auto take = [&](const T* keys_at, const T* values_at, int num_keys) {  // counted from this lane's first
      float score[UNROLLED][QUERIES];
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const Piece one = *(const Piece*)(keys_at + u * KEYS * WIDTH);
        const Piece other = *(const Piece*)(keys_at + u * KEYS * WIDTH + WIDTH / 2);
        #pragma unroll
        for (int p = 0; p < QUERIES; p++) {
          float its = 0.f;
          #pragma unroll
          for (int e = 0; e < PIECE; e++) its += q[p].at[e] * NUMBER(one, e) + q[p].at[PIECE + e] * NUMBER(other, e);
          for (int o = LANES / 2; o > 0; o >>= 1) its += __shfl_xor_sync(0xffffffff, its, o);
          score[u][p] = u * KEYS < num_keys ? its : -1e30f;
        }
      }
      #pragma unroll
      for (int p = 0; p < QUERIES; p++) {
        float now_most = most[p];
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++) now_most = fmaxf(now_most, score[u][p]);
        if (now_most > most[p]) {
          const float kept = __expf(most[p] - now_most);
          most[p] = now_most;
          total[p] *= kept;
          #pragma unroll
          for (int e = 0; e < 2 * PIECE; e++) sum[p].at[e] *= kept;
        }
        #pragma unroll
        for (int u = 0; u < UNROLLED; u++) {
          score[u][p] = u * KEYS < num_keys ? __expf(score[u][p] - now_most) : 0.f;
          total[p] += score[u][p];
        }
      }
      #pragma unroll
      for (int u = 0; u < UNROLLED; u++) {
        const Piece one = *(const Piece*)(values_at + u * KEYS * WIDTH);
        const Piece other = *(const Piece*)(values_at + u * KEYS * WIDTH + WIDTH / 2);
        #pragma unroll
        for (int p = 0; p < QUERIES; p++)
          #pragma unroll
          for (int e = 0; e < PIECE; e++) {
            sum[p].at[e] += score[u][p] * NUMBER(one, e);
            sum[p].at[PIECE + e] += score[u][p] * NUMBER(other, e);
          }
      }
    };

    int stage = 0;
    #pragma unroll 1
    for (int run = stripe; run < runs; run += STRIPES) {
      const bool is_past = run < past_runs;
      const int at = (is_past ? first + run * RUN : (run - past_runs) * RUN) + which;
      T* keys_at = ring + (stage * 2 * RUN + which) * WIDTH + within * PIECE;
      T* values_at = keys_at + RUN * WIDTH;
      __syncwarp();  // all have read what is overwritten now
      ask();
      asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 1) : "memory");
      if (!is_past) {
        #pragma unroll 1
        for (int u = 0; u < UNROLLED; u++) {
          const int j = min(at + u * KEYS, token);
          const Numbers key = turned(new_keys + j * token_step, key_weights, j);
          Piece halves[4];
          #pragma unroll
          for (int e = 0; e < PIECE; e++) {
            ((T*)&halves[0])[e] = (T)key.at[e];
            ((T*)&halves[1])[e] = (T)key.at[PIECE + e];
          }
          halves[2] = *(const Piece*)(new_values + j * token_step);
          halves[3] = *(const Piece*)(new_values + j * token_step + WIDTH / 2);
          auto put = [&](T* key_to, T* value_to) {
            *(Piece*)key_to = halves[0];
            *(Piece*)(key_to + WIDTH / 2) = halves[1];
            *(Piece*)value_to = halves[2];
            *(Piece*)(value_to + WIDTH / 2) = halves[3];
          };
          put(keys_at + u * KEYS * WIDTH, values_at + u * KEYS * WIDTH);
          const long place = (long)(start + token) * WIDTH + within * PIECE;
          if (at + u * KEYS == token && set == 0) put(slot_keys + place, slot_values + place);
        }
      }
      __syncwarp();
      take(keys_at, values_at, (is_past ? last : new_keys_here) - at);
      stage = stage + 1 == STAGES ? 0 : stage + 1;
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();

    __shared__ float mosts[FINDERS][GROUP], totals[FINDERS][GROUP];
    float (*sums)[GROUP][WIDTH] = (float (*)[GROUP][WIDTH])room;
    #pragma unroll
    for (int p = 0; p < QUERIES; p++) {
      const int finder = stripe * KEYS + which, g = set * QUERIES + p;
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

# Of the joined queries, keys and values of a prompt: queries come out normed and turned, keys and values go to a slot.
# Eight lanes: one head of one token, each with a piece of either half of it. `place` is slot, start, count, layer, and
# how many rows of queries come out, how many of them before the first: all but `count` of them are nothing, and so is
# what then is behind the end of the slot's sequence.
TURN = """
    constexpr int PIECE = WIDTH / 16, QUERIES = GROUP * HEADS, ALL = QUERIES + 2 * HEADS;
    struct alignas(sizeof(T) * PIECE < 16 ? sizeof(T) * PIECE : 16) Piece { T at[PIECE]; };
    const int slot = place[0], start = place[1], count = place[2], at_layer = place[3], before = place[5];
    const int num_items = place[4] * ALL, given = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    const int item = min(given, num_items - 1), row = item / ALL, head = item % ALL, within = threadIdx.x & 7;
    const int token = row - before, its_token = max(0, min(token, count - 1)), turn = turns[0];
    const T* from = joined + ((long)its_token * ALL + head) * WIDTH + within * PIECE;
    Piece one = *(const Piece*)from, other = *(const Piece*)(from + WIDTH / 2);
    float x[PIECE], y[PIECE];
    #pragma unroll
    for (int e = 0; e < PIECE; e++) { x[e] = (float)one.at[e]; y[e] = (float)other.at[e]; }
    if constexpr (NORMED) {
      float squares = 0.f;
      #pragma unroll
      for (int e = 0; e < PIECE; e++) squares += x[e] * x[e] + y[e] * y[e];
      for (int o = 4; o > 0; o >>= 1) squares += __shfl_xor_sync(0xffffffff, squares, o);
      const float factor = rsqrtf(squares / WIDTH + numbers[1]);
      const T* weights = (head < QUERIES ? query_weights : key_weights) + within * PIECE;
      #pragma unroll
      for (int e = 0; e < PIECE; e++) {
        x[e] *= factor * (float)weights[e];
        y[e] *= factor * (float)weights[WIDTH / 2 + e];
      }
    }
    if (given >= num_items || (token < 0 && head >= QUERIES)) return;
    if (token != its_token) {
      one = {};
      other = {};
    } else if (head < QUERIES + HEADS) {
      const float* its_angles = angles + (long)(turn + token) * WIDTH + within * PIECE;
      #pragma unroll
      for (int e = 0; e < PIECE; e++) {
        const float cosine = its_angles[e], sine = its_angles[WIDTH / 2 + e];
        one.at[e] = (T)(x[e] * cosine - y[e] * sine);
        other.at[e] = (T)(y[e] * cosine + x[e] * sine);
      }
    }
    T* to = out + ((long)row * QUERIES + head) * WIDTH;
    if (head >= QUERIES) {
      const int num_slots = pool_shape[2], capacity = pool_shape[4], is_value = head >= QUERIES + HEADS;
      const long its_slot = (long)(at_layer * 2 + is_value) * num_slots + slot;
      to = const_cast<T*>(pool) + ((its_slot * HEADS + (head - QUERIES) % HEADS) * capacity + start + token) * WIDTH;
    }
    *(Piece*)(to + within * PIECE) = one;
    *(Piece*)(to + within * PIECE + WIDTH / 2) = other;
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
