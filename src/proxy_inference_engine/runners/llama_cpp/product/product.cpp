// ggml's product of quantised weights and many columns, computed here instead: ggml asks those who registered an extra
// buffer type before it computes anything itself, on every thread of its own team. Weights stay as they lie; a panel of
// them is packed into the cache and used for all columns.
//
// Needs AVX-512 with VNNI; compiled by build.py, let in by hook.py.

#include <atomic>

#include "tile.h"

namespace product {
namespace {

constexpr size_t CACHE_BYTES = 384 * 1024;  // for panels, of a second-level cache that has to hold a strip too
constexpr size_t LINE = 64;

ggml::Functions functions;
std::atomic<int> product_op{-1};
std::atomic<int64_t> min_columns{INT64_MAX};
std::atomic<int64_t> num_computed{0};

constexpr size_t aligned(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
constexpr int64_t divided(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

template <class Format>
class Product : public ggml::TensorTraits {
    using Unit = typename Format::Unit;

  public:
    bool work_size(int num_threads, const ggml::Tensor * op, size_t & size) override {
        const Plan plan(op, num_threads);
        size = LINE + plan.strips_bytes() + num_threads * plan.panels_bytes();
        return true;
    }

    bool compute_forward(ggml::Params * params, ggml::Tensor * op) override {
        const Plan plan(op, params->nth);
        auto at = reinterpret_cast<char *>(aligned(reinterpret_cast<size_t>(params->wdata)));
        auto strips = reinterpret_cast<Piece *>(at);
        auto panels = reinterpret_cast<Unit *>(at + plan.strips_bytes() + params->ith * plan.panels_bytes());
        round_columns(plan, *params, *op->src[1], strips);
        if (params->ith == 0) {
            functions.chunk_set(params->threadpool, params->nth);
            num_computed.fetch_add(1, std::memory_order_relaxed);
        }
        functions.barrier(params->threadpool);
        for (int64_t chunk = params->ith; chunk < plan.num_chunks; chunk = functions.chunk_add(params->threadpool, 1)) {
            compute_chunk(plan, *op, chunk, strips, panels);
        }
        return true;
    }

  private:
    struct Plan {
        int64_t rows, columns, num_strips, num_panels, panels_a_chunk, num_chunks;
        int units;

        Plan(const ggml::Tensor * op, int num_threads)
            : rows(op->src[0]->ne[1]),
              columns(op->src[1]->ne[1]),
              num_strips(divided(columns, COLUMNS)),
              num_panels(divided(rows, ROWS)),
              units(num_units(op->src[0]->ne[0])) {
            const int64_t that_fit = CACHE_BYTES / (sizeof(Unit) * units);
            const int64_t fair = num_panels / (4 * num_threads);  // so that nobody waits long for the last one
            panels_a_chunk = std::max<int64_t>(1, std::min<int64_t>({8, that_fit, fair}));
            num_chunks = divided(num_panels, panels_a_chunk);
        }

        size_t strips_bytes() const { return aligned(sizeof(Piece) * units * num_strips); }
        size_t panels_bytes() const { return aligned(sizeof(Unit) * units * panels_a_chunk); }
    };

    static void round_columns(const Plan & plan, const ggml::Params & params, const ggml::Tensor & from, Piece * to) {
        const int64_t total = plan.num_strips * plan.units;
        const int64_t end = total * (params.ith + 1) / params.nth;
        for (int64_t i = total * params.ith / params.nth; i < end; i++) {
            const int64_t first = i / plan.units * COLUMNS;
            const size_t offset = sizeof(float) * WIDTH * (i % plan.units);
            for (int c = 0; c < std::min<int64_t>(COLUMNS, plan.columns - first); c++) {
                auto column = static_cast<const char *>(from.data) + from.nb[1] * (first + c) + offset;
                round_column<Format>(reinterpret_cast<const float *>(column), to[i], c);
            }
        }
    }

    static void compute_chunk(const Plan & plan, const ggml::Tensor & op, int64_t chunk, const Piece * strips,
                              Unit * panels) {
        const int64_t first = chunk * plan.panels_a_chunk;
        const int64_t count = std::min(plan.panels_a_chunk, plan.num_panels - first);
        const ggml::Tensor & weights = *op.src[0];
        for (int64_t p = 0; p < count; p++) {
            const int64_t row = (first + p) * ROWS;
            pack_panel<Format>(static_cast<const char *>(weights.data) + weights.nb[1] * row, weights.nb[1],
                               static_cast<int>(std::min<int64_t>(ROWS, plan.rows - row)), plan.units,
                               panels + p * plan.units);
        }
        for (int64_t s = 0; s < plan.num_strips; s++) {
            const int columns = static_cast<int>(std::min<int64_t>(COLUMNS, plan.columns - s * COLUMNS));
            const auto compute = find_compute<Format>(columns);
            for (int64_t p = 0; p < count; p++) {
                const int64_t row = (first + p) * ROWS;
                const int there = static_cast<int>(std::min<int64_t>(ROWS, plan.rows - row));
                auto to = static_cast<char *>(op.data) + op.nb[1] * s * COLUMNS + sizeof(float) * row;
                compute(panels + p * plan.units, strips + s * plan.units, plan.units, reinterpret_cast<float *>(to),
                        op.nb[1], columns, static_cast<__mmask16>((1u << there) - 1));
            }
        }
    }
};

// Weights of two dimensions where they lie, whole blocks, and plain floats on the other sides.
bool is_ours(const ggml::Tensor & op) {
    const ggml::Tensor &weights = *op.src[0], &columns = *op.src[1];
    const auto is_flat = [](const ggml::Tensor & tensor) { return tensor.ne[2] == 1 && tensor.ne[3] == 1; };
    const int64_t whole = weights.type == ggml::Q8_0 ? WIDTH : SUPER;
    return weights.extra == nullptr && is_flat(weights) && is_flat(columns) && weights.ne[0] % whole == 0 &&
           columns.type == ggml::F32 && columns.nb[0] == sizeof(float) && op.type == ggml::F32 &&
           op.nb[0] == sizeof(float);
}

class BufferType : public ggml::ExtraBufferType {
  public:
    // No tensor is ever put into a buffer of this type: it is there to be asked for products.
    bool supports_op(void *, const ggml::Tensor *) override { return false; }

    ggml::TensorTraits * get_tensor_traits(const ggml::Tensor * op) override {
        if (op->op != product_op.load(std::memory_order_relaxed)) return nullptr;
        if (op->src[1]->ne[1] < min_columns.load(std::memory_order_relaxed) || !is_ours(*op)) return nullptr;
        switch (op->src[0]->type) {
            case ggml::Q8_0: return &q8_0;
            case ggml::Q4_K: return &q4_k;
            case ggml::Q5_K: return &q5_k;
            case ggml::Q6_K: return &q6_k;
            default: return nullptr;
        }
    }

  private:
    Product<FormatQ8_0> q8_0;
    Product<FormatQ4_K> q4_k;
    Product<FormatQ5_K> q5_k;
    Product<FormatQ6_K> q6_k;
};

BufferType asked;
ggml::BufferType entry{{}, nullptr, &asked};

}  // namespace
}  // namespace product

extern "C" {

// Among those whom this library asks. Once for each library; its list of types for weights must have been read before.
void pie_product_register(const ggml::Functions * functions, int product_op) {
    product::functions = *functions;
    product::product_op = product_op;
    product::functions.extra_buffer_types().push_back(&product::entry);
}

// From how many columns on; a number that never comes switches the product off. Takes effect with the next graph: the
// room that one needs is asked for when it is planned, which ggml does before each.
void pie_product_set_min_columns(int64_t columns) { product::min_columns = columns; }

// How many products were computed here.
int64_t pie_product_num_computed() { return product::num_computed; }

// As many multiplications as there can be, with all numbers in registers: 16 sums so many times over. For benchmarks,
// which want to know how near to that a product comes. The result keeps the compiler from leaving it all out.
int32_t pie_product_peak(int64_t times) {
    __m512i sums[16];
    for (int i = 0; i < 16; i++) sums[i] = _mm512_set1_epi32(i);
    const __m512i ones = _mm512_set1_epi8(1);
    for (int64_t t = 0; t < times; t++) {
#pragma GCC unroll 16
        for (auto & sum : sums) sum = _mm512_dpbusd_epi32(sum, ones, ones);
    }
    __m512i total = sums[0];
    for (int i = 1; i < 16; i++) total = _mm512_add_epi32(total, sums[i]);
    return _mm512_reduce_add_epi32(total);
}
}
