// What this product knows of ggml's insides: the layouts of ggml.h, ggml-backend-impl.h and traits.h as the libraries
// that `binding.py` takes were built with. A product is used only after it computed the same as ggml itself (hook.py),
// so that a layout that moved is a plain line at the start and never a wrong answer.

#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ggml {

enum Type : int32_t { F32 = 0, F16 = 1, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

struct Tensor {
    Type type;
    void * buffer;
    int64_t ne[4];  // how many: values, rows, ...
    size_t nb[4];   // bytes from one to the next
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
    Tensor * src[10];
    Tensor * view_src;
    size_t view_offs;
    void * data;
    char name[64];
    void * extra;
    char padding[8];
};

// What each thread of a team is called with.
struct Params {
    int ith, nth;
    size_t wsize;
    void * wdata;
    void * threadpool;
    bool use_ref;
};

// The two classes through which ggml lets others compute. Only the order of their virtual functions matters.
class TensorTraits {
  public:
    virtual ~TensorTraits() = default;
    virtual bool work_size(int num_threads, const Tensor * op, size_t & size) = 0;
    virtual bool compute_forward(Params * params, Tensor * op) = 0;
};

class ExtraBufferType {
  public:
    virtual ~ExtraBufferType() = default;
    virtual bool supports_op(void * device, const Tensor * op) = 0;
    virtual TensorTraits * get_tensor_traits(const Tensor * op) = 0;
};

struct BufferType {
    void * functions[6];
    void * device;
    ExtraBufferType * context;
};

// The functions of the library that are called from here, in the order in which hook.py hands them over.
struct Functions {
    std::vector<BufferType *> & (*extra_buffer_types)();
    void (*barrier)(void * threadpool);
    void (*chunk_set)(void * threadpool, int value);
    int (*chunk_add)(void * threadpool, int value);
};

}  // namespace ggml
