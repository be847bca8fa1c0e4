/* The mirror, recurrent layers: those of cuDNN, and the cells that are one kernel on CUDA. */
#include "mirror.h"
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/autograd.h>

namespace mirror {

namespace {

enum { RELU, TANH, LSTM, GRU };

/* A layer of cuDNN as torch calls it: both directions share the names of its arguments. */
struct Layer {
  at::Tensor input, hx, cx, lengths;
  std::vector<at::Tensor> weights;
  int64_t cell, layers;
  bool batch_first, train, both, biased;
  double dropout;

  at::TensorList states() {
    state = cell == LSTM ? std::vector<at::Tensor>{hx, cx} : std::vector<at::Tensor>{hx};
    return state;
  }

  /* The output and the last states. */
  std::vector<at::Tensor> run() {
    if (cell == LSTM)
      return run_lstm();
    auto function = cell == GRU ? padded_gru : cell == RELU ? padded_relu : padded_tanh;
    auto packed = cell == GRU ? packed_gru : cell == RELU ? packed_relu : packed_tanh;
    auto [output, last] = lengths.defined()
        ? packed(input, lengths, hx, weights, biased, layers, dropout, train, both)
        : function(input, hx, weights, biased, layers, dropout, train, both, batch_first);
    return {output, last};
  }

 private:
  std::vector<at::Tensor> state;

  std::vector<at::Tensor> run_lstm() {
    auto [output, last, cell_state] = lengths.defined()
        ? at::lstm(input, lengths, states(), weights, biased, layers, dropout, train, both)
        : at::lstm(input, states(), weights, biased, layers, dropout, train, both, batch_first);
    return {output, last, cell_state};
  }

#define FORMS(name, function)                                                                  \
  static std::tuple<at::Tensor, at::Tensor> padded_##name(                                     \
      const at::Tensor& input, const at::Tensor& hx, at::TensorList weights, bool biased,      \
      int64_t layers, double dropout, bool train, bool both, bool batch_first) {               \
    return at::function(input, hx, weights, biased, layers, dropout, train, both,              \
                        batch_first);                                                          \
  }                                                                                            \
  static std::tuple<at::Tensor, at::Tensor> packed_##name(                                     \
      const at::Tensor& input, const at::Tensor& lengths, const at::Tensor& hx,                \
      at::TensorList weights, bool biased, int64_t layers, double dropout, bool train,         \
      bool both) {                                                                             \
    return at::function(input, lengths, hx, weights, biased, layers, dropout, train, both);    \
  }
  FORMS(gru, gru)
  FORMS(relu, rnn_relu)
  FORMS(tanh, rnn_tanh)
};

/* The arguments from `mode` on are the same of both, in the same order. */
Layer layer_of(const Stack& s, size_t mode) {
  Layer layer;
  layer.input = s[0].toTensor();
  layer.weights = s[1].toTensorVector();
  layer.hx = s[4].toTensor();
  layer.cx = optional_of(s[5]).value_or(at::Tensor());
  layer.cell = s[mode].toInt();
  layer.layers = s[mode + 3].toInt();
  layer.batch_first = s[mode + 4].toBool();
  layer.dropout = s[mode + 5].toDouble();
  layer.train = s[mode + 6].toBool();
  layer.both = s[mode + 7].toBool();
  layer.biased = s[2].toInt() >= 4;
  auto lengths = s[mode + 8].toIntVector();
  if (!lengths.empty())
    layer.lengths = at::tensor(lengths);
  return layer;
}

void forward(Stack& s) {
  std::vector<at::Tensor> results = layer_of(s, 6).run();
  results.resize(5);
  s = Stack(results.begin(), results.end());
}

at::Tensor leaf(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().requires_grad_() : tensor;
}

/* The CPU's own autograd says it: the forward pass is computed once more. */
void backward(Stack& s) {
  c10::impl::ForceDispatchKeyGuard as_ever(c10::default_included_set,
                                            c10::autocast_dispatch_keyset);
  at::AutoGradMode recording(true);
  Layer layer = layer_of(s, 10);
  layer.input = leaf(layer.input);
  layer.hx = leaf(layer.hx);
  layer.cx = leaf(layer.cx);
  for (at::Tensor& weight : layer.weights)
    weight = leaf(weight);
  std::vector<at::Tensor> outputs = layer.run(), used, grads;
  for (size_t i = 0; i < outputs.size(); i++)
    if (auto grad = optional_of(s[7 + i]); grad && grad->defined()) {
      used.push_back(outputs[i]);
      grads.push_back(*grad);
    }
  std::vector<at::Tensor> leaves{layer.input, layer.hx};
  if (layer.cx.defined())
    leaves.push_back(layer.cx);
  size_t first = leaves.size();
  leaves.insert(leaves.end(), layer.weights.begin(), layer.weights.end());
  auto found = torch::autograd::grad(used, leaves, grads, std::nullopt, false, true);
  std::vector<at::Tensor> of_weights(found.begin() + (long)first, found.end());
  s = {found[0], found[1], first > 2 ? found[2] : at::Tensor(), of_weights};
}

/* Cells: the gates lie side by side. */

at::Tensor gates_of(const Stack& s) {
  at::Tensor gates = s[0].toTensor() + s[1].toTensor();
  for (size_t i : {3, 4})
    if (auto bias = optional_of(s[i]); bias && bias->defined())
      gates = gates + *bias;
  return gates;
}

void lstm_cell(Stack& s) {
  auto g = gates_of(s).chunk(4, 1);
  at::Tensor in = g[0].sigmoid(), forget = g[1].sigmoid(), fresh = g[2].tanh(),
             out = g[3].sigmoid();
  at::Tensor cy = forget * s[2].toTensor() + in * fresh;
  s = {out * cy.tanh(), cy, at::cat({in, forget, fresh, out}, 1)};
}

void lstm_cell_backward(Stack& s) {
  auto g = s[4].toTensor().chunk(4, 1);
  at::Tensor cx = s[2].toTensor(), bent = s[3].toTensor().tanh();
  at::Tensor dh = optional_of(s[0]).value_or(at::Tensor());
  at::Tensor dc = optional_of(s[1]).value_or(at::Tensor());
  dh = dh.defined() ? dh : bent.new_zeros(bent.sizes());
  dc = dc.defined() ? dc : bent.new_zeros(bent.sizes());
  at::Tensor sum = dh * g[3] * (1 - bent * bent) + dc;
  at::Tensor grads = at::cat({sum * g[2] * g[0] * (1 - g[0]), sum * cx * g[1] * (1 - g[1]),
                              sum * g[0] * (1 - g[2] * g[2]), dh * bent * g[3] * (1 - g[3])},
                             1);
  s = {grads, sum * g[1], s[5].toBool() ? grads.sum(0) : at::Tensor()};
}

at::Tensor with_bias(const at::Tensor& gates, const c10::IValue& bias) {
  auto found = optional_of(bias);
  return found && found->defined() ? gates + *found : gates;
}

void gru_cell(Stack& s) {
  auto x = with_bias(s[0].toTensor(), s[3]).chunk(3, 1);
  auto h = with_bias(s[1].toTensor(), s[4]).chunk(3, 1);
  at::Tensor hx = s[2].toTensor();
  at::Tensor reset = (x[0] + h[0]).sigmoid(), keep = (x[1] + h[1]).sigmoid();
  at::Tensor fresh = (x[2] + reset * h[2]).tanh();
  s = {fresh + keep * (hx - fresh), at::cat({reset, keep, fresh, hx, h[2]}, 1)};
}

void gru_cell_backward(Stack& s) {
  at::Tensor grad = s[0].toTensor();
  auto w = s[1].toTensor().chunk(5, 1);
  at::Tensor dfresh = grad * (1 - w[1]) * (1 - w[2] * w[2]);
  at::Tensor dkeep = grad * (w[3] - w[2]) * w[1] * (1 - w[1]);
  at::Tensor dreset = dfresh * w[4] * w[0] * (1 - w[0]);
  at::Tensor of_input = at::cat({dreset, dkeep, dfresh}, 1);
  at::Tensor of_state = at::cat({dreset, dkeep, dfresh * w[0]}, 1);
  bool biased = s[2].toBool();
  s = {of_input, of_state, grad * w[1], biased ? of_input.sum(0) : at::Tensor(),
       biased ? of_state.sum(0) : at::Tensor()};
}

} // namespace

void add_recurrent() {
  add("_cudnn_rnn", forward);
  add("_cudnn_rnn_backward", backward);
  add("_thnn_fused_lstm_cell", lstm_cell);
  add("_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  add("_thnn_fused_gru_cell", gru_cell);
  add("_thnn_fused_gru_cell_backward", gru_cell_backward);
}

} // namespace mirror
