/* The mirror, computations: what an operation becomes on the CPU, before torch's kernel runs. */
#include "computation.h"
#include <ATen/ops/empty_like.h>
#include <unordered_set>

namespace mirror {
namespace {

/* Operations without values: they make, share or describe memory. */
const std::unordered_set<std::string> WITHOUT_VALUES = {
    "aten::_assert_async", "aten::_cudnn_init_dropout_state", "aten::_cudnn_rnn_flatten_weight",
    "aten::_nested_tensor_from_tensor_list", "aten::_pin_memory", "aten::_resize_output_",
    "aten::_use_cudnn_ctc_loss", "aten::_use_cudnn_rnn_flatten_weight", "aten::is_pinned", "aten::is_set_to", "aten::record_stream",
    "aten::resize_", "aten::resize_as_", "aten::set_", "aten::set_data",
};

/* What they read back is what lies in memory; the others read what they computed. */
const std::unordered_set<std::string> READING_MEMORY = {
    "aten::copy_", "aten::_copy_from", "aten::_local_scalar_dense", "aten::equal"};

/* What they return besides tensors is the CPU's. */
const std::unordered_set<std::string> RETURNING_NUMBERS = {
    "aten::_local_scalar_dense", "aten::equal"};

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool returns_a_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns())
    if (result.alias_info() && !result.alias_info()->isWrite())
      return true;
  return false;
}

/* Half precision is computed as floats where the CPU has no other kernel. */
at::Tensor widened(const at::Tensor& tensor) {
  bool half = tensor.defined() &&
      (tensor.scalar_type() == at::kHalf || tensor.scalar_type() == at::kBFloat16);
  return half ? tensor.to(at::kFloat) : tensor;
}

at::Tensor unfilled(const at::Tensor& tensor) {
  return tensor.defined() ? at::empty_like(tensor) : tensor;
}

at::Tensor copied(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.clone() : tensor;
}

/* Rows of nonzero, values of unique; of booleans unique counts those that are true. */
std::optional<int64_t> counted(const std::string& name, const Stack& twins,
                               const at::Tensor& result) {
  if (name == "aten::unique_dim")
    return result.size(twins[1].toInt());
  if (name == "aten::unique_consecutive" && twins[3].isInt())
    return result.size(twins[3].toInt());
  bool sorts = name == "aten::_unique" || name == "aten::_unique2";
  if (sorts && result.scalar_type() == at::kBool)
    return twins[0].toTensor().sum().item<int64_t>();
  if (sorts || name == "aten::nonzero" || name == "aten::unique_consecutive")
    return result.dim() ? result.size(0) : 1;
  return std::nullopt;
}

} // namespace

Shape shape_of(const OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  Shape shape;
  shape.computes = !WITHOUT_VALUES.count(schema.name()) && !returns_a_view(schema);
  shape.seeded = op.hasTag(at::Tag::nondeterministic_seeded);
  shape.numbers = RETURNING_NUMBERS.count(schema.name());
  shape.memory = READING_MEMORY.count(schema.name());
  for (size_t i = 0; i < schema.arguments().size(); i++)
    if (writes(schema.arguments()[i]))
      (schema.arguments()[i].is_out() ? shape.filled : shape.changed).push_back(i);
  return shape;
}

Computation::Computation(const OperatorHandle& op, const Shape& shape, const Stack& stack)
    : op(op), shape(shape) {
  auto first = stack.end() - (long)op.schema().arguments().size();
  try {
    for (auto value = first; value != stack.end(); value++) {
      for (const at::Tensor& tensor : tensors_of(*value))
        TORCH_CHECK(!too_large(tensor), "a tensor of more bytes than are to be computed");
      twins.push_back(twin_of(*value));
    }
    if (shape.seeded)
      seed = seed_of(Stack(first, stack.end()));
  } catch (const std::exception& error) {
    fail(error);
  }
}

void Computation::run() {
  if (twins.size() < op.schema().arguments().size())
    return;
  Stack arguments = prepared();
  try {
    attempt(arguments);
  } catch (const std::exception& error) {
    fail(error);
    run_widened();
  }
  const c10::IValue none;
  const c10::IValue& first = !done ? none : changed.empty() ? results.at(0) : changed[0];
  if (first.isTensor())
    count = counted(op.schema().name(), twins, first.toTensor());
}

/* What is written is written into a copy: torch's kernel may still read it. */
Stack Computation::prepared() const {
  Stack arguments = twins;
  for (size_t i : shape.changed)
    arguments[i] = mirror::changed(twins[i], copied);
  for (size_t i : shape.filled)
    arguments[i] = mirror::changed(twins[i], unfilled);
  return arguments;
}

void Computation::attempt(Stack& arguments) {
  changed.clear();
  for (size_t i : shape.changed)
    changed.push_back(arguments[i]);
  for (size_t i : shape.filled)
    changed.push_back(arguments[i]);
  results = arguments;
  Equivalent equivalent = equivalent_of(op.operator_name());
  if (shape.seeded)
    call_seeded(op, equivalent, results, seed);
  else if (equivalent)
    equivalent(results);
  else
    op.callBoxed(results);
  done = true;
}

void Computation::run_widened() {
  try {
    Stack arguments = prepared();
    for (c10::IValue& value : arguments)
      value = mirror::changed(value, widened);
    attempt(arguments);
  } catch (const std::exception&) { /* the first reason is the one that says something */
  }
}

void Computation::fail(const std::exception& error) {
  std::string text = error.what();
  reason = text.substr(0, text.find('\n')).substr(0, 200);
}

} // namespace mirror
