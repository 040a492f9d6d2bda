// ggml's product of quantised weights and columns, computed here instead: ggml asks those who registered an extra
// buffer type before it computes anything itself, on every thread of its own team. Weights stay as they lie. 16 rows of
// them, a panel, are packed into the cache and used for all columns.
//
// Here is what all processors share, compiled for the least of them; compiled by build.py, let in by hook.py.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "attention_traits.h"
#include "ggml.h"
#include "processor.h"
#include "variant.h"

namespace product {
namespace {

constexpr size_t CACHE_BYTES = 384 * 1024;  // for panels, of a second-level cache that has to hold a strip too
constexpr int RUN = 8;  // units that are packed at a time where nobody needs them again

struct Choice {
    const Variant * variant;
    bool runs_here;
};

// The best first. The compiler may not know all of them.
const Choice choices[] = {
#ifdef WITH_AMX
    {&amx, Processor().amx},
#endif
#ifdef WITH_AVX512
    {&avx512, Processor().avx512_vnni},
#endif
#ifdef WITH_AVX_VNNI
    {&avx_vnni, Processor().avx_vnni},
#endif
#ifdef WITH_AVX2
    {&avx2, Processor().avx2},
#endif
#ifdef WITH_NEON
    {&neon, Processor().neon_dotprod},
#endif
};

ggml::Functions functions;
std::atomic<const Variant *> chosen{nullptr};
std::atomic<int> product_op{-1}, attention_op{-1};
std::atomic<int64_t> min_columns{INT64_MAX};
std::atomic<int64_t> num_computed{0}, num_attended{0};

// What the variant sets on a thread before it computes there, and sets back.
class Settings {
  public:
    explicit Settings(const Variant & variant) : variant(variant) {
        if (variant.begin != nullptr) variant.begin(kept);
    }
    ~Settings() {
        if (variant.end != nullptr) variant.end(kept);
    }

  private:
    const Variant & variant;
    alignas(LINE) char kept[LINE];
};

class Product : public ggml::TensorTraits {
  public:
    explicit Product(Kernel Variant::* format) : format(format) {}

    const Kernel & kernel() const { return chosen.load(std::memory_order_relaxed)->*format; }

    bool work_size(int num_threads, const ggml::Tensor * op, size_t & size) override {
        const Plan plan(kernel(), *op, num_threads);
        size = LINE + plan.strips_bytes() + num_threads * plan.panels_bytes();
        return true;
    }

    bool compute_forward(ggml::Params * params, ggml::Tensor * op) override {
        const Plan plan(kernel(), *op, params->nth);
        auto at = reinterpret_cast<char *>(aligned(reinterpret_cast<size_t>(params->wdata)));
        auto strips = reinterpret_cast<Piece *>(at);
        auto panels = at + plan.strips_bytes() + params->ith * plan.panels_bytes();
        if (plan.num_strips == 1) fetch(plan.ahead(*op->src[0], plan.panels_a_chunk * params->ith), plan.rows_bytes());
        round_columns(plan, *params, *op->src[1], strips);
        if (params->ith == 0) {
            functions.chunk_set(params->threadpool, params->nth);
            num_computed.fetch_add(1, std::memory_order_relaxed);
        }
        functions.barrier(params->threadpool);
        const Settings settings(*chosen.load(std::memory_order_relaxed));
        for (int64_t chunk = params->ith; chunk < plan.num_chunks; chunk = functions.chunk_add(params->threadpool, 1)) {
            if (plan.columns == 1 && plan.kernel.multiply_column != nullptr) {
                multiply_column(plan, *op, chunk, strips);
            } else if (plan.num_strips == 1) {
                compute_once(plan, *op, chunk, strips);
            } else {
                compute_chunk(plan, *op, chunk, strips, panels);
            }
        }
        return true;
    }

  private:
    Kernel Variant::* format;

    struct Plan {
        const Kernel & kernel;
        int64_t rows, columns, num_strips, num_panels, panels_a_chunk, num_chunks;
        int units, num_threads;

        Plan(const Kernel & kernel, const ggml::Tensor & op, int num_threads)
            : kernel(kernel),
              rows(op.src[0]->ne[1]),
              columns(op.src[1]->ne[1]),
              num_strips(divided(columns, COLUMNS)),
              num_panels(divided(rows, ROWS)),
              units(static_cast<int>(op.src[0]->ne[0] / WIDTH)),
              num_threads(num_threads) {
            const int64_t that_fit = CACHE_BYTES / (kernel.unit_bytes * units);
            const int64_t fair = num_panels / ((num_strips == 1 ? 8 : 4) * num_threads);  // nobody waits long for the last
            panels_a_chunk = std::max<int64_t>(1, std::min<int64_t>({8, that_fit, fair}) / TOGETHER) * TOGETHER;
            num_chunks = divided(num_panels, panels_a_chunk);
        }

        size_t panel_bytes() const { return kernel.unit_bytes * units; }
        size_t strips_bytes() const { return aligned(sizeof(Piece) * units * num_strips); }
        size_t panels_bytes() const { return num_strips == 1 ? 0 : aligned(panel_bytes() * panels_a_chunk); }
        int rows_from(int64_t row) const { return static_cast<int>(std::min<int64_t>(ROWS, rows - row)); }
        int columns_of(int64_t strip) const {
            return static_cast<int>(std::min<int64_t>(COLUMNS, columns - strip * COLUMNS));
        }
        size_t bytes_of(int units) const { return kernel.block_bytes * (units * WIDTH / kernel.block_values); }
        const char * find(const ggml::Tensor & weights, int64_t panel, int unit) const {
            return static_cast<const char *>(weights.data) + weights.nb[1] * panel * ROWS + bytes_of(unit);
        }
        size_t rows_bytes() const { return ROWS * bytes_of(units); }
        // Where a panel lies after so many units of each of its rows, if these lie one after the other. Where there is
        // no such panel, the last one.
        const char * ahead(const ggml::Tensor & weights, int64_t panel, int units = 0) const {
            return find(weights, std::min(panel, num_panels - 1), 0) + ROWS * bytes_of(units);
        }
        // What this thread will probably compute after some panels.
        int64_t after(int64_t panel, int count, int64_t chunk) const {
            return panel + count < end_of(chunk) ? panel + count : panels_a_chunk * (chunk + num_threads);
        }
        int64_t end_of(int64_t chunk) const { return std::min(num_panels, (chunk + 1) * panels_a_chunk); }
        int panels_of(int64_t panel, int64_t chunk) const {
            return static_cast<int>(std::min<int64_t>(TOGETHER, end_of(chunk) - panel));
        }
    };

    static void round_columns(const Plan & plan, const ggml::Params & params, const ggml::Tensor & from, Piece * to) {
        const int64_t total = plan.num_strips * plan.units;
        const int64_t end = total * (params.ith + 1) / params.nth;
        for (int64_t i = total * params.ith / params.nth; i < end; i++) {
            const int64_t strip = i / plan.units;
            const size_t offset = sizeof(float) * WIDTH * (i % plan.units);
            for (int c = 0; c < plan.columns_of(strip); c++) {
                auto column = static_cast<const char *>(from.data) + from.nb[1] * (strip * COLUMNS + c) + offset;
                plan.kernel.round(reinterpret_cast<const float *>(column), to[i], c);
            }
            // A variant may compute with columns that there are not: quickly, if they have scales that are numbers.
            for (int c = plan.columns_of(strip); c < COLUMNS; c++) to[i].d[c] = to[i].sum[c] = 0.0f;
        }
    }

    static void multiply_column(const Plan & plan, const ggml::Tensor & op, int64_t chunk, const Piece * strip) {
        const ggml::Tensor & weights = *op.src[0];
        for (int64_t p = chunk * plan.panels_a_chunk; p < plan.end_of(chunk); p++) {
            alignas(LINE) Sums sums;
            plan.kernel.multiply_column(plan.find(weights, p, 0), weights.nb[1], plan.rows_from(p * ROWS), strip,
                                        plan.units, plan.ahead(weights, plan.after(p, 1, chunk)), sums[0]);
            write(plan, op, p * ROWS, 0, sums);
        }
    }

    // All columns are in one strip: units are packed and used while they are in the nearest cache. 16 rows at once are
    // too many for the processor to foresee, so it is told what comes: of two panels one while these are packed, the
    // other while they are computed. With one column there is hardly anything to compute: one panel at a time.
    static void compute_once(const Plan & plan, const ggml::Tensor & op, int64_t chunk, const Piece * strip) {
        const Kernel & kernel = plan.kernel;
        const ggml::Tensor & weights = *op.src[0];
        alignas(LINE) char packed[TOGETHER * RUN * MAX_UNIT_BYTES];
        const size_t next_panel = RUN * kernel.unit_bytes;
        const int together = plan.columns == 1 ? 1 : TOGETHER;
        for (int64_t p = chunk * plan.panels_a_chunk; p < plan.end_of(chunk); p += together) {
            const int count = std::min(together, plan.panels_of(p, chunk));
            const int64_t next = plan.after(p, together, chunk);
            alignas(LINE) Sums sums[TOGETHER]{};
            for (int u = 0; u < plan.units; u += RUN) {
                const int units = std::min(RUN, plan.units - u);
                for (int i = 0; i < count; i++) {
                    const char * ahead = i == 0 ? plan.ahead(weights, next, u) : nullptr;
                    kernel.pack(plan.find(weights, p + i, u), weights.nb[1], plan.rows_from((p + i) * ROWS), units, ahead,
                                packed + next_panel * i);
                }
                const size_t ahead_bytes = together == 1 ? 0 : ROWS * plan.bytes_of(units);
                const Panels some{packed, next_panel, count, plan.ahead(weights, next + 1, u), ahead_bytes};
                kernel.compute(some, strip + u, units, plan.columns_of(0), sums);
            }
            for (int i = 0; i < count; i++) write(plan, op, (p + i) * ROWS, 0, sums[i]);
        }
    }

    static void compute_chunk(const Plan & plan, const ggml::Tensor & op, int64_t chunk, const Piece * strips,
                              char * panels) {
        const int64_t first = chunk * plan.panels_a_chunk;
        const ggml::Tensor & weights = *op.src[0];
        for (int64_t p = first; p < plan.end_of(chunk); p++) {
            plan.kernel.pack(plan.find(weights, p, 0), weights.nb[1], plan.rows_from(p * ROWS), plan.units,
                             nullptr, panels + plan.panel_bytes() * (p - first));
        }
        // What comes next is asked for bit by bit, by all of the computing.
        const char * ahead = plan.ahead(weights, first + plan.panels_a_chunk * plan.num_threads);
        const size_t step = plan.rows_bytes() * TOGETHER / plan.num_strips;
        for (int64_t s = 0; s < plan.num_strips; s++) {
            for (int64_t p = first; p < plan.end_of(chunk); p += TOGETHER, ahead += step) {
                const char * packed = panels + plan.panel_bytes() * (p - first);
                const Panels some{packed, plan.panel_bytes(), plan.panels_of(p, chunk), ahead, step};
                fetch_results(plan, op, p * ROWS, s);
                alignas(LINE) Sums sums[TOGETHER]{};
                plan.kernel.compute(some, strips + s * plan.units, plan.units, plan.columns_of(s), sums);
                for (int i = 0; i < some.count; i++) write(plan, op, (p + i) * ROWS, s, sums[i]);
            }
        }
    }

    // Where results will be: far from each other, so that the processor does not foresee it.
    __attribute__((always_inline)) static void fetch_results(const Plan & plan, const ggml::Tensor & op, int64_t row,
                                                             int64_t strip) {
        const char * to = place_of(op, row, strip);
        for (int c = 0; c < plan.columns_of(strip); c++, to += op.nb[1]) {
            for (size_t at = 0; at < TOGETHER * ROWS * sizeof(float); at += LINE) __builtin_prefetch(to + at, 1);
        }
    }

    static char * place_of(const ggml::Tensor & op, int64_t row, int64_t strip) {
        return static_cast<char *>(op.data) + op.nb[1] * strip * COLUMNS + sizeof(float) * row;
    }

    static void write(const Plan & plan, const ggml::Tensor & op, int64_t row, int64_t strip, const Sums & sums) {
        char * to = place_of(op, row, strip);
        const int rows = plan.rows_from(row);
        for (int c = 0; c < plan.columns_of(strip); c++, to += op.nb[1]) {
            // Nearly always all of them: a number that the compiler knows.
            if (rows == ROWS) {
                std::memcpy(to, sums[c], sizeof(sums[c]));
            } else {
                std::memcpy(to, sums[c], sizeof(float) * rows);
            }
        }
    }
};

// Weights of two dimensions where they lie, whole blocks, and plain floats on the other sides.
bool is_ours(const ggml::Tensor & op, const Kernel & kernel) {
    const ggml::Tensor &weights = *op.src[0], &columns = *op.src[1];
    const auto is_flat = [](const ggml::Tensor & tensor) { return tensor.ne[2] == 1 && tensor.ne[3] == 1; };
    return weights.extra == nullptr && is_flat(weights) && is_flat(columns) &&
           weights.ne[0] % kernel.block_values == 0 && columns.type == ggml::F32 && columns.nb[0] == sizeof(float) &&
           op.type == ggml::F32 && op.nb[0] == sizeof(float);
}

class BufferType : public ggml::ExtraBufferType {
  public:
    // No tensor is ever put into a buffer of this type: it is there to be asked for products.
    bool supports_op(void *, const ggml::Tensor *) override { return false; }

    ggml::TensorTraits * get_tensor_traits(const ggml::Tensor * op) override {
        if (op->op == attention_op.load(std::memory_order_relaxed)) {
            const bool is_on = op->src[0]->ne[1] * op->src[0]->ne[3] >= min_columns.load(std::memory_order_relaxed);
            return is_on && AttentionTraits::takes(*op) ? &attention : nullptr;
        }
        if (op->op != product_op.load(std::memory_order_relaxed)) return nullptr;
        Product * found = find(op->src[0]->type);
        if (found == nullptr || !is_ours(*op, found->kernel())) return nullptr;
        return op->src[1]->ne[1] >= least_columns(found->kernel()) ? found : nullptr;
    }

  private:
    Product q8_0{&Variant::q8_0}, q4_k{&Variant::q4_k}, q5_k{&Variant::q5_k}, q6_k{&Variant::q6_k};
    AttentionTraits attention{functions, chosen, num_attended};

    static int64_t least_columns(const Kernel & kernel) {
        const int64_t told = min_columns.load(std::memory_order_relaxed);
        return told > 0 ? told : kernel.least_columns;
    }

    Product * find(ggml::Type type) {
        switch (type) {
            case ggml::Q8_0: return &q8_0;
            case ggml::Q4_K: return &q4_k;
            case ggml::Q5_K: return &q5_k;
            case ggml::Q6_K: return &q6_k;
            default: return nullptr;
        }
    }
};

BufferType asked;
ggml::BufferType entry{{}, nullptr, &asked};

}  // namespace
}  // namespace product

extern "C" {

// The name of one after the other that this processor can run, the best first; null after the last.
const char * pie_product_variant(int which) {
    for (const auto & choice : product::choices) {
        if (choice.runs_here && which-- == 0) return choice.variant->name;
    }
    return nullptr;
}

// By its place in that list. Between two graphs only.
bool pie_product_choose(int which) {
    for (const auto & choice : product::choices) {
        if (choice.runs_here && which-- == 0) {
            product::chosen = choice.variant;
            return true;
        }
    }
    return false;
}

// Among those whom this library asks. Once for each library; its list of types for weights must have been read before,
// and a variant chosen.
void pie_product_register(const ggml::Functions * functions, int product_op, int attention_op) {
    product::functions = *functions;
    product::product_op = product_op;
    product::attention_op = attention_op;
    product::functions.extra_buffer_types().push_back(&product::entry);
}

// From how many columns on; zero: as the variant is good at. A number that never comes switches the product off. Takes effect with the next graph: the
// room that one needs is asked for when it is planned, which ggml does before each.
void pie_product_set_min_columns(int64_t columns) { product::min_columns = columns; }

// How many products were computed here.
int64_t pie_product_num_computed() { return product::num_computed; }

// And how often attention was.
int64_t pie_product_num_attended() { return product::num_attended; }

// How many multiplications the chosen variant did with all numbers in registers, for benchmarks, which want to know how
// near to that a product comes.
int64_t pie_product_peak(int64_t times) {
    const product::Variant & variant = *product::chosen.load();
    static std::atomic<int32_t> kept;
    kept = variant.peak(times);
    return times * variant.peak_multiplications;
}
}
