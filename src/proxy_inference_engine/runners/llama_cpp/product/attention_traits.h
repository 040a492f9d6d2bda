// ggml's flash attention, cut into pieces for its threads: which of them are ours, and where what they
// need lies.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>

#include "fetch.h"
#include "ggml.h"
#include "variant.h"

namespace product {
namespace {

constexpr size_t LINE = 64;

constexpr size_t aligned(size_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
constexpr int64_t divided(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

class AttentionTraits : public ggml::TensorTraits {
  public:
    AttentionTraits(ggml::Functions & functions, std::atomic<const Variant *> & chosen, std::atomic<int64_t> & num_done)
        : functions(functions), chosen(chosen), num_done(num_done) {}

    // Halves for keys, values and mask; no slopes, no cap, no sinks.
    static bool takes(const ggml::Tensor & op) {
        const ggml::Tensor &queries = *op.src[0], &keys = *op.src[1], &values = *op.src[2];
        const ggml::Tensor * mask = op.src[3];
        const int64_t width = queries.ne[0];
        const bool is_plain = number(op, 1) == 0.0f && number(op, 2) == 0.0f && op.src[4] == nullptr;
        const bool has_shape = width % LANES == 0 && width <= MAX_WIDTH && keys.ne[0] == width &&
                               values.ne[0] == width && keys.ne[2] == values.ne[2] &&
                               queries.ne[2] % keys.ne[2] == 0 && keys.ne[3] == queries.ne[3] &&
                               values.ne[3] == queries.ne[3];
        const bool has_types = queries.type == ggml::F32 && keys.type == ggml::F16 && values.type == ggml::F16 &&
                               op.type == ggml::F32 && queries.nb[0] == sizeof(float) &&
                               keys.nb[0] == sizeof(uint16_t) && values.nb[0] == sizeof(uint16_t);
        const bool has_mask = mask == nullptr || (mask->type == ggml::F16 && mask->nb[0] == sizeof(uint16_t) &&
                                                  mask->ne[2] == 1 && queries.ne[3] % mask->ne[3] == 0);
        return is_plain && has_shape && has_types && has_mask;
    }

    bool work_size(int num_threads, const ggml::Tensor * op, size_t & size) override {
        size = LINE + num_threads * aligned(Attention::room_bytes(op->src[0]->ne[0]));
        return true;
    }

    bool compute_forward(ggml::Params * params, ggml::Tensor * op) override {
        const ggml::Tensor &queries = *op->src[0], &keys = *op->src[1];
        const int64_t rows = queries.ne[1] * (queries.ne[2] / keys.ne[2]), num_parts = divided(rows, MAX_ROWS);
        const int64_t total = num_parts * keys.ne[2] * queries.ne[3];
        auto room = reinterpret_cast<char *>(aligned(reinterpret_cast<size_t>(params->wdata)));
        room += params->ith * aligned(Attention::room_bytes(queries.ne[0]));
        const auto find = [&](int64_t i) {
            // The last tokens see most: they come first, so that nobody waits long for the last piece.
            const int64_t part = num_parts - 1 - i / (keys.ne[2] * queries.ne[3]);
            const int64_t head = i % keys.ne[2], stream = i / keys.ne[2] % queries.ne[3];
            return piece(*op, part, head, stream, reinterpret_cast<float *>(room));
        };
        fetch_keys(find(std::min<int64_t>(params->ith, total - 1)));
        if (params->ith == 0) {
            functions.chunk_set(params->threadpool, params->nth);
            num_done.fetch_add(1, std::memory_order_relaxed);
        }
        functions.barrier(params->threadpool);
        const auto attend = chosen.load(std::memory_order_relaxed)->attend;
        for (int64_t i = params->ith; i < total; i = functions.chunk_add(params->threadpool, 1)) {
            fetch_keys(find(std::min(i + params->nth, total - 1)));
            attend(find(i));
        }
        return true;
    }

  private:
    ggml::Functions & functions;
    std::atomic<const Variant *> & chosen;
    std::atomic<int64_t> & num_done;

    // The first ones of a piece that is computed soon.
    static void fetch_keys(const Attention & work) { fetch_rows(work.keys, work.key_next, SOON, work.width); }

    static float number(const ggml::Tensor & op, int which) {
        float found;
        std::memcpy(&found, op.op_params + which, sizeof(found));
        return found;
    }

    static char * at(const ggml::Tensor & tensor, int64_t head, int64_t stream) {
        return static_cast<char *>(tensor.data) + tensor.nb[2] * head + tensor.nb[3] * stream;
    }

    static Attention piece(const ggml::Tensor & op, int64_t part, int64_t head, int64_t stream, float * room) {
        const ggml::Tensor &queries = *op.src[0], &keys = *op.src[1], &values = *op.src[2];
        const ggml::Tensor * mask = op.src[3];
        Attention work{};
        work.group = static_cast<int>(queries.ne[2] / keys.ne[2]);
        work.width = static_cast<int>(queries.ne[0]);
        work.first_row = part * MAX_ROWS;
        work.rows = static_cast<int>(std::min<int64_t>(MAX_ROWS, queries.ne[1] * work.group - work.first_row));
        work.num_keys = keys.ne[1];
        work.scale = number(op, 0);
        work.queries = at(queries, head * work.group, stream);
        work.query_token = queries.nb[1];
        work.query_head = queries.nb[2];
        work.keys = at(keys, head, stream);
        work.key_next = keys.nb[1];
        work.values = at(values, head, stream);
        work.value_next = values.nb[1];
        if (mask != nullptr) {
            work.mask = at(*mask, 0, stream % mask->ne[3]);
            work.mask_token = mask->nb[1];
        }
        work.to = static_cast<char *>(op.data) + op.nb[1] * head * work.group + op.nb[3] * stream;
        work.to_head = op.nb[1];
        work.to_token = op.nb[2];
        work.room = room;
        return work;
    }
};

}  // namespace
}  // namespace product
