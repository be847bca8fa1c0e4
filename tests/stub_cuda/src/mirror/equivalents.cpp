/* The mirror, equivalents: what the CPU computes in place of kernels that CUDA alone has. */
#include "mirror.h"
#include <ATen/ops/_embedding_bag.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_2d_backward.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/rand_like.h>
#include <ATen/ops/searchsorted.h>
#include <unordered_map>

namespace mirror {

static std::unordered_map<std::string, Equivalent>& table() {
  static std::unordered_map<std::string, Equivalent> own;
  return own;
}

void add(const char* name, Equivalent equivalent) {
  table()[std::string("aten::") + name] = equivalent;
}

static void add_products();

Equivalent equivalent_of(const c10::OperatorName& name) {
  static bool filled = (add_convolutions(), add_norms(), add_attention(), add_recurrent(),
                        add_products(), true);
  (void)filled;
  auto found = table().find(name.overload_name.empty() ? name.name
                                                       : name.name + "." + name.overload_name);
  return found == table().end() ? nullptr : found->second;
}

static std::vector<int64_t> numbers(const c10::IValue& value) {
  return value.toIntVector();
}

std::optional<at::Tensor> optional_of(const c10::IValue& value) {
  return value.isNone() ? std::nullopt : std::optional<at::Tensor>(value.toTensor());
}

/* Convolutions of cuDNN. */

static at::Tensor convolved(const Stack& s, std::optional<at::Tensor> bias, size_t stride,
                            size_t padding, size_t dilation, size_t groups) {
  std::vector<int64_t> none(numbers(s[stride]).size(), 0);
  return at::convolution(s[0].toTensor(), s[1].toTensor(), bias, numbers(s[stride]),
                         numbers(s[padding]), numbers(s[dilation]), false, none,
                         s[groups].toInt());
}

static at::Tensor depthwise(const Stack& s) {
  auto stride = numbers(s[4]), padding = numbers(s[5]), dilation = numbers(s[6]);
  std::vector<int64_t> none(stride.size(), 0);
  return at::convolution(s[0].toTensor(), s[1].toTensor(), optional_of(s[3]), stride, padding,
                         dilation, false, none, s[0].toTensor().size(1));
}

void add_convolutions() {
  add("cudnn_convolution", [](Stack& s) { s = {convolved(s, {}, 3, 2, 4, 5)}; });
  add("cudnn_convolution.out", [](Stack& s) {
    s.back().toTensor().copy_(convolved(s, {}, 3, 2, 4, 5));
    s = {s.back()};
  });
  add("cudnn_convolution_transpose", [](Stack& s) {
    s = {at::convolution(s[0].toTensor(), s[1].toTensor(), {}, numbers(s[4]), numbers(s[2]),
                         numbers(s[5]), true, numbers(s[3]), s[6].toInt())};
  });
  add("cudnn_convolution_relu",
      [](Stack& s) { s = {convolved(s, optional_of(s[2]), 3, 4, 5, 6).relu()}; });
  add("cudnn_convolution_add_relu", [](Stack& s) {
    at::Tensor sum = convolved(s, optional_of(s[4]), 5, 6, 7, 8);
    s = {sum.add(s[2].toTensor(), s[3].isNone() ? c10::Scalar(1) : s[3].toScalar()).relu()};
  });
  add("_conv_depthwise2d", [](Stack& s) { s = {depthwise(s)}; });
  add("_conv_depthwise2d.out", [](Stack& s) {
    s.back().toTensor().copy_(depthwise(s));
    s = {s.back()};
  });
  add("conv_depthwise3d", [](Stack& s) { s = {depthwise(s)}; });
}

/* Products with a wider result, dropout in one kernel, bags, and cuDNN's sampler. */

static at::Tensor wide(const c10::IValue& value, const c10::IValue& type) {
  return value.toTensor().to(type.toScalarType());
}

/* The CPU leaves out which bag each index is in, where its own backward needs it not. */
static void embedding_bag(Stack& s) {
  at::Tensor indices = s[1].toTensor(), offsets = s[2].toTensor();
  auto [output, bags, sizes, most] = at::_embedding_bag(
      s[0].toTensor(), indices, offsets, s[3].toBool(), s[4].toInt(), s[5].toBool(),
      optional_of(s[6]), s[7].toBool(), s[8].toInt());
  at::Tensor starts = s[7].toBool() ? offsets.slice(0, 0, -1) : offsets;
  at::Tensor places = at::arange(indices.numel(), starts.options());
  bags = at::searchsorted(starts, places, false, true).sub(1).to(starts.scalar_type());
  s = {output, bags, sizes, most};
}

static void add_products() {
  add("_embedding_bag", embedding_bag);
  add("mm.dtype", [](Stack& s) { s = {at::mm(wide(s[0], s[2]), wide(s[1], s[2]))}; });
  add("bmm.dtype", [](Stack& s) { s = {at::bmm(wide(s[0], s[2]), wide(s[1], s[2]))}; });
  add("addmm.dtype", [](Stack& s) {
    s = {at::addmm(wide(s[0], s[3]), wide(s[1], s[3]), wide(s[2], s[3]), s[4].toScalar(),
                   s[5].toScalar())};
  });
  add("baddbmm.dtype", [](Stack& s) {
    s = {at::baddbmm(wide(s[0], s[3]), wide(s[1], s[3]), wide(s[2], s[3]), s[4].toScalar(),
                     s[5].toScalar())};
  });
  add("_fused_dropout", [](Stack& s) {
    at::Tensor self = s[0].toTensor();
    double kept = s[1].toDouble();
    at::Tensor mask = at::rand_like(self, self.options().dtype(at::kFloat)).lt(kept);
    s = {self.mul(mask).div(kept), mask.to(at::kByte)};
  });
  add("_masked_scale", [](Stack& s) {
    at::Tensor self = s[0].toTensor(), mask = s[1].toTensor().to(self.scalar_type());
    s = {self.mul(mask).mul(s[2].toDouble())};
  });
  /* The CPU keeps a buffer of the forward pass, which is empty on CUDA. */
  add("log_sigmoid_backward", [](Stack& s) {
    s = {s[0].toTensor().mul(s[1].toTensor().neg().sigmoid())};
  });
  add("cudnn_grid_sampler", [](Stack& s) {
    s = {at::grid_sampler_2d(s[0].toTensor(), s[1].toTensor(), 0, 0, true)};
  });
  add("cudnn_grid_sampler_backward", [](Stack& s) {
    auto [grad, grid] = at::grid_sampler_2d_backward(
        s[2].toTensor(), s[0].toTensor(), s[1].toTensor(), 0, 0, true, {true, true});
    s = {grad, grid};
  });
}

} // namespace mirror
