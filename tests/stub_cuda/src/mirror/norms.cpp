/* The mirror, norms: batch norm of cuDNN and among ranks, and backward of RMSNorm. */
#include "mirror.h"
#include <ATen/TensorOperators.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>

namespace mirror {

static std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(const Stack& s) {
  return at::native_batch_norm(s[0].toTensor(), s[1].toTensor(), optional_of(s[2]),
                               optional_of(s[3]), optional_of(s[4]), s[5].toBool(),
                               s[6].toDouble(), s[7].toDouble());
}

/* A number a channel, as wide as the input. */
static at::Tensor by_channel(const at::Tensor& numbers, const at::Tensor& like) {
  std::vector<int64_t> sides(like.dim(), 1);
  sides[1] = -1;
  return numbers.to(at::kFloat).view(sides);
}

static std::vector<int64_t> all_but_channel(const at::Tensor& tensor) {
  std::vector<int64_t> sides;
  for (int64_t side = 0; side < tensor.dim(); side++)
    if (side != 1)
      sides.push_back(side);
  return sides;
}

static void stats(Stack& s) {
  at::Tensor x = s[0].toTensor().to(at::kFloat);
  at::Tensor variance = x.var(all_but_channel(x), false);
  s = {x.mean(all_but_channel(x)), variance.add(s[1].toDouble()).rsqrt()};
}

static void elemt(Stack& s) {
  at::Tensor x = s[0].toTensor();
  at::Tensor y = (x.to(at::kFloat) - by_channel(s[3].toTensor(), x)) *
      by_channel(s[4].toTensor(), x);
  if (auto weight = optional_of(s[1]))
    y = y * by_channel(*weight, x);
  if (auto bias = optional_of(s[2]))
    y = y + by_channel(*bias, x);
  s = {y.to(x.scalar_type())};
}

/* Means and spreads of the ranks, a row each, weighed by how much each has seen. */
static void gather_stats(Stack& s) {
  at::Tensor mean = s[1].toTensor(), counts = s[7].toTensor().to(at::kFloat).view({-1, 1});
  double eps = s[6].toDouble(), momentum = s[5].toDouble();
  at::Tensor own = s[2].toTensor().pow(-2).sub(eps), all = counts.sum();
  at::Tensor middle = (mean * counts).sum(0) / all;
  at::Tensor variance = ((own + (mean - middle).pow(2)) * counts).sum(0) / all;
  if (auto running = optional_of(s[3]))
    running->mul_(1 - momentum).add_(middle * momentum);
  if (auto running = optional_of(s[4]))
    running->mul_(1 - momentum).add_(variance * all / (all - 1) * momentum);
  s = {middle, variance.add(eps).rsqrt()};
}

static void backward_reduce(Stack& s) {
  at::Tensor x = s[1].toTensor(), grad = s[0].toTensor().to(at::kFloat);
  at::Tensor away = x.to(at::kFloat) - by_channel(s[2].toTensor(), x);
  at::Tensor sum = grad.sum(all_but_channel(x));
  at::Tensor weighed = (grad * away).sum(all_but_channel(x));
  s = {sum, weighed, weighed * s[3].toTensor(), sum};
}

static void backward_elemt(Stack& s) {
  at::Tensor x = s[1].toTensor(), grad = s[0].toTensor().to(at::kFloat);
  at::Tensor all = s[7].toTensor().sum(), spread = by_channel(s[3].toTensor(), x);
  at::Tensor away = x.to(at::kFloat) - by_channel(s[2].toTensor(), x);
  at::Tensor shared = by_channel(s[5].toTensor(), x) / all +
      away * spread * spread * by_channel(s[6].toTensor(), x) / all;
  at::Tensor scale = spread;
  if (auto weight = optional_of(s[4]))
    scale = scale * by_channel(*weight, x);
  s = {((grad - shared) * scale).to(x.scalar_type())};
}

static void rms_backward(Stack& s) {
  at::Tensor grad = s[0].toTensor().to(at::kFloat), x = s[1].toTensor().to(at::kFloat);
  int64_t sides = (int64_t)s[2].toIntVector().size();
  std::vector<int64_t> last, first;
  for (int64_t side = 0; side < x.dim(); side++)
    (side < x.dim() - sides ? first : last).push_back(side);
  at::Tensor normed = x * s[3].toTensor();
  at::Tensor scaled = s[4].isNone() ? grad : grad * s[4].toTensor();
  at::Tensor dx = (scaled - normed * (scaled * normed).mean(last, true)) * s[3].toTensor();
  at::Tensor dw = first.empty() ? grad * normed : (grad * normed).sum(first);
  s = {dx, dw};
}

void add_norms() {
  add("cudnn_batch_norm", [](Stack& s) {
    auto [y, mean, spread] = batch_norm(s);
    s = {y, mean, spread, at::Tensor()};
  });
  add("cudnn_batch_norm_backward", [](Stack& s) {
    auto [dx, dweight, dbias] = at::native_batch_norm_backward(
        s[1].toTensor(), s[0].toTensor(), s[2].toTensor(), optional_of(s[3]), optional_of(s[4]),
        optional_of(s[5]), optional_of(s[6]), true, s[7].toDouble(), {true, true, true});
    s = {dx, dweight, dbias};
  });
  add("batch_norm_stats", stats);
  add("batch_norm_elemt", elemt);
  add("batch_norm_gather_stats_with_counts", gather_stats);
  add("batch_norm_backward_reduce", backward_reduce);
  add("batch_norm_backward_elemt", backward_elemt);
  add("_fused_rms_norm_backward", rms_backward);
}

} // namespace mirror
