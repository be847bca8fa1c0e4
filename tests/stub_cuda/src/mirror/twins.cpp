/* The mirror, twins: CPU tensors over the memory of CUDA tensors, which is the host's here. */
#include "../models.h"
#include "mirror.h"
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <cstdlib>

namespace mirror {

bool has_twin(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda())
    return true;
  return tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_nested() &&
      (tensor._is_zerotensor() || tensor.has_storage());
}

at::Tensor twin_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda())
    return tensor;
  TORCH_CHECK(has_twin(tensor), "a tensor that is sparse, nested or quantized");
  auto options = at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU);
  if (tensor._is_zerotensor())
    return at::zeros(tensor.sizes(), options);
  /* Not the mutable pointer: asking for it copies what is shared lazily. */
  void* data = tensor.numel() ? const_cast<void*>(tensor.const_data_ptr()) : nullptr;
  at::Tensor twin = at::from_blob(data, tensor.sizes(), tensor.strides(), options);
  twin._set_conj(tensor.is_conj());
  twin._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number())
    twin.unsafeGetTensorImpl()->set_wrapped_number(true);
  return twin;
}

c10::IValue changed(const c10::IValue& value,
                    const std::function<at::Tensor(const at::Tensor&)>& change) {
  if (value.isTensor())
    return change(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> made;
    for (const at::Tensor& tensor : value.toTensorVector())
      made.push_back(change(tensor));
    return made;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> made;
    for (const std::optional<at::Tensor> tensor : value.toOptionalTensorList())
      made.push_back(tensor ? std::optional<at::Tensor>(change(*tensor)) : std::nullopt);
    return made;
  }
  return value;
}

c10::IValue twin_of(const c10::IValue& value) {
  if (value.isDevice())
    return value.toDevice().is_cuda() ? c10::IValue(c10::Device(at::kCPU)) : value;
  if (value.isGenerator())
    return {};
  return changed(value, [](const at::Tensor& tensor) { return twin_of(tensor); });
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  changed(value, [&](const at::Tensor& tensor) {
    found.push_back(tensor);
    return tensor;
  });
  return found;
}

static bool is_memory(const at::Tensor& tensor) {
  return tensor.defined() && has_twin(tensor) && !tensor._is_zerotensor() && tensor.numel();
}

void write(const at::Tensor& to, const at::Tensor& from) {
  if (!from.defined() || !is_memory(to))
    return;
  if (to.sizes() == from.sizes())
    twin_of(to).copy_(from);
  else
    clear(to);
}

/* The bytes of GPUPERF_STUB_MIRROR_MOST, beyond which nothing is computed. */
bool too_large(const at::Tensor& tensor) {
  static const uint64_t most = bytes_in(getenv("GPUPERF_STUB_MIRROR_MOST"), UINT64_MAX);
  return tensor.defined() && tensor.is_cuda() && tensor.nbytes() > most;
}

void clear(const at::Tensor& tensor) {
  if (is_memory(tensor) && tensor.is_cuda() && !too_large(tensor))
    twin_of(tensor).zero_();
}

} // namespace mirror
