/* The mirror, random numbers: other ones than a GPU's, and the same again for the same seed.
 *
 * What is drawn follows the seed and the offset of torch's own generator of the device, so a
 * dropout that is recomputed in backward drops the same, and the CPU's generator of the
 * program is left as it was.
 */
#include "mirror.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

namespace mirror {

static c10::Device device_of(const Stack& arguments) {
  for (const c10::IValue& value : arguments)
    for (const at::Tensor& tensor : tensors_of(value))
      if (tensor.defined() && tensor.is_cuda())
        return tensor.device();
  for (const c10::IValue& value : arguments)
    if (value.isDevice() && value.toDevice().has_index())
      return value.toDevice();
  return {at::kCUDA, at::detail::getCUDAHooks().getCurrentDevice()};
}

static at::Generator generator_of(const Stack& arguments) {
  for (const c10::IValue& value : arguments)
    if (value.isGenerator())
      return value.toGenerator();
  return at::globalContext().defaultGenerator(device_of(arguments));
}

uint64_t seed_of(const Stack& arguments) {
  static std::atomic<uint64_t> draws;
  try {
    at::Generator generator = generator_of(arguments);
    std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.current_seed() * 6364136223846793005u + generator.get_offset();
  } catch (const c10::Error&) { /* while a graph is captured, nobody may ask */
    return ++draws;
  }
}

static void call(const OperatorHandle& op, Equivalent equivalent, Stack& stack) {
  if (equivalent)
    equivalent(stack);
  else
    op.callBoxed(stack);
}

/* Some draw from the generator that they are given, the others from the default one. */
void call_seeded(const OperatorHandle& op, Equivalent equivalent, Stack& stack, uint64_t seed) {
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size() && !equivalent; i++)
    if (arguments[i].name() == "generator") {
      stack[i] = at::detail::createCPUGenerator(seed);
      return op.callBoxed(stack);
    }
  at::Generator shared = at::detail::getDefaultCPUGenerator();
  at::Tensor before = shared.get_state();
  shared.set_current_seed(seed);
  try {
    call(op, equivalent, stack);
  } catch (...) {
    shared.set_state(before);
    throw;
  }
  shared.set_state(before);
}

} // namespace mirror
