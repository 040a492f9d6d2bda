// The product without ggml around it, for processors that only an emulator has: products come in by standard input, one
// after the other, and their results go out. VARIANT is the one to use, whatever the processor says of itself.

#include <cstdio>

#include "product.cpp"

namespace {

struct Head {
    int64_t format, rows, width, columns, row_bytes;
};

std::vector<ggml::BufferType *> types;

ggml::Tensor make_tensor(int64_t type, int64_t width, int64_t count, size_t value_bytes, size_t row_bytes,
                         void * data) {
    ggml::Tensor tensor{};
    tensor.type = static_cast<ggml::Type>(type);
    const int64_t ne[4] = {width, count, 1, 1};
    std::copy(ne, ne + 4, tensor.ne);
    tensor.nb[0] = value_bytes;
    for (int i = 1; i < 4; i++) tensor.nb[i] = row_bytes * (i == 1 ? 1 : count);
    tensor.data = data;
    return tensor;
}

bool read(void * to, size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

bool compute(const Head & head) {
    std::vector<char> weights(head.row_bytes * head.rows);
    std::vector<float> columns(head.width * head.columns), result(head.rows * head.columns);
    if (!read(weights.data(), weights.size()) || !read(columns.data(), sizeof(float) * columns.size())) return false;
    const auto floats = [](int64_t width, std::vector<float> & data) {
        return make_tensor(ggml::F32, width, data.size() / width, sizeof(float), sizeof(float) * width, data.data());
    };
    auto from = make_tensor(head.format, head.width, head.rows, 1, head.row_bytes, weights.data());
    auto given = floats(head.width, columns), to = floats(head.rows, result);
    to.src[0] = &from;
    to.src[1] = &given;
    ggml::TensorTraits * traits = types.at(0)->context->get_tensor_traits(&to);
    size_t size = 0;
    if (traits == nullptr || !traits->work_size(1, &to, size)) return false;
    std::vector<char> work(size);
    ggml::Params params{0, 1, size, work.data(), nullptr, false};
    return traits->compute_forward(&params, &to) &&
           std::fwrite(result.data(), sizeof(float), result.size(), stdout) == result.size();
}

}  // namespace

int main() {
    static int next_chunk;
    const ggml::Functions functions{
        []() -> std::vector<ggml::BufferType *> & { return types; }, [](void *) {},
        [](void *, int value) { next_chunk = value; }, [](void *, int by) { return (next_chunk += by) - by; }};
    product::chosen = &product::VARIANT;
    pie_product_register(&functions, 0, -1);
    pie_product_set_min_columns(1);
    for (Head head; read(&head, sizeof(head));) {
        if (!compute(head)) return 1;
    }
    return 0;
}
