/* The mirror: each operation on CUDA tensors is computed on the CPU beside torch's kernel. */
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <string>

namespace mirror {

using c10::OperatorHandle;
using torch::jit::Stack;

/* twins.cpp: a CPU tensor over the same memory, of the same shape and type. */
at::Tensor twin_of(const at::Tensor&);
/* Whether there is one: a plain tensor, or none. */
bool has_twin(const at::Tensor&);
/* The value with twins in place of CUDA tensors, and the CPU in place of the device. */
c10::IValue twin_of(const c10::IValue&);
/* The tensors of a value, be it one, a list or none. */
std::vector<at::Tensor> tensors_of(const c10::IValue&);
/* The value with its tensors replaced by what *change* makes of each. */
c10::IValue changed(const c10::IValue&,
                    const std::function<at::Tensor(const at::Tensor&)>& change);
/* Write *from* into the memory of *to*; zeros where CUDA's result has another shape. */
void write(const at::Tensor& to, const at::Tensor& from);
void clear(const at::Tensor&);
/* Whether it is larger than what is to be computed. */
bool too_large(const at::Tensor&);

/* equivalents.cpp: what the CPU computes in place of a kernel that CUDA alone has. */
using Equivalent = void (*)(Stack&);
Equivalent equivalent_of(const c10::OperatorName&);
void add(const char* name, Equivalent);
std::optional<at::Tensor> optional_of(const c10::IValue&);
void add_convolutions();
void add_norms();
void add_attention();
void add_recurrent();

/* random.cpp: numbers that follow torch's seed and offset of the device. */
uint64_t seed_of(const Stack& arguments);
void call_seeded(const OperatorHandle&, Equivalent, Stack&, uint64_t seed);

} // namespace mirror
