/* The mirror, attention: the formula in place of the kernels that never write the matrix.
 *
 * Dropout inside of attention is left out: the mask is in no result that backward gets.
 */
#include "mirror.h"
#include <ATen/TensorOperators.h>
#include <cmath>
#include <limits>

namespace mirror {

namespace {

struct Attention {
  at::Tensor q, k, v, scores;
  double scale;

  Attention(const Stack& s, size_t first, std::optional<at::Tensor> bias, bool causal,
            const c10::IValue& scaled)
      : q(s[first].toTensor().to(at::kFloat)), k(alike(s[first + 1].toTensor())),
        v(alike(s[first + 2].toTensor())) {
    scale = scaled.isNone() ? 1 / std::sqrt((double)q.size(-1)) : scaled.toDouble();
    scores = q.matmul(k.transpose(-2, -1)) * scale;
    if (bias && bias->defined())
      scores = scores + bias->to(at::kFloat);
    if (causal)
      scores.masked_fill_(scores.new_ones(scores.sizes()).tril().logical_not(),
                          -std::numeric_limits<float>::infinity());
  }

  /* As many heads as the queries have. */
  at::Tensor alike(const at::Tensor& tensor) const {
    int64_t times = q.size(1) / tensor.size(1);
    at::Tensor wide = tensor.to(at::kFloat);
    return times > 1 ? wide.repeat_interleave(times, 1) : wide;
  }

  at::Tensor weights() const {
    return scores.softmax(-1).nan_to_num(0.0);
  }

  at::Tensor summed(const at::Tensor& grad, int64_t heads) const {
    if (grad.size(1) == heads)
      return grad;
    return grad.unflatten(1, {heads, -1}).sum(2);
  }
};

void forward(Stack& s, std::optional<at::Tensor> bias, bool causal, size_t results) {
  Attention own(s, 0, bias, causal, s.back());
  at::Tensor output = own.weights().matmul(own.v), lse = own.scores.logsumexp(-1);
  Stack made(results, c10::IValue(at::Tensor()));
  made[0] = output;
  made[1] = lse;
  s = made;
}

void backward(Stack& s, std::optional<at::Tensor> bias, bool causal, bool with_bias) {
  Attention own(s, 1, bias, causal, s.back());
  at::Tensor grad = s[0].toTensor().to(at::kFloat), weights = own.weights();
  at::Tensor dweights = grad.matmul(own.v.transpose(-2, -1));
  at::Tensor dscores = weights * (dweights - (dweights * weights).sum(-1, true));
  int64_t heads = s[2].toTensor().size(1);
  at::Tensor dq = dscores.matmul(own.k) * own.scale;
  at::Tensor dk = own.summed(dscores.transpose(-2, -1).matmul(own.q) * own.scale, heads);
  at::Tensor dv = own.summed(weights.transpose(-2, -1).matmul(grad), s[3].toTensor().size(1));
  at::Tensor dbias;
  if (with_bias && bias && bias->defined())
    dbias = dscores.sum_to_size(bias->sizes());
  s = with_bias ? Stack{dq, dk, dv, dbias} : Stack{dq, dk, dv};
}

} // namespace

void add_attention() {
  add("_scaled_dot_product_flash_attention",
      [](Stack& s) { forward(s, std::nullopt, s[4].toBool(), 9); });
  add("_scaled_dot_product_efficient_attention",
      [](Stack& s) { forward(s, optional_of(s[3]), s[6].toBool(), 4); });
  add("_scaled_dot_product_cudnn_attention",
      [](Stack& s) { forward(s, optional_of(s[3]), s[6].toBool(), 9); });
  add("_scaled_dot_product_flash_attention_backward",
      [](Stack& s) { backward(s, std::nullopt, s[11].toBool(), false); });
  add("_scaled_dot_product_efficient_attention_backward",
      [](Stack& s) { backward(s, optional_of(s[4]), s[11].toBool(), true); });
  add("_scaled_dot_product_cudnn_attention_backward",
      [](Stack& s) { backward(s, optional_of(s[8]), s[14].toBool(), false); });
}

} // namespace mirror
