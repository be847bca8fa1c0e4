/* The mirror: torch's kernels for CUDA, each followed by the values that it would compute.
 *
 * Each operation with a kernel for CUDA gets one in its place, which computes the result on
 * the CPU from the same memory, calls torch's own kernel, and writes the result where that
 * would have. So waits, launches, copies and the allocator are torch's own. The result is
 * computed first, since torch's kernel may need to know how much there is (nonzero, unique).
 */
#include "../stub.h"
#include "computation.h"
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>
#include <torch/version.h>

namespace mirror {
namespace {

#if TORCH_VERSION_MINOR < 9 /* without a public way to the kernel of an operation */
using Kernel = c10::KernelFunction;
auto definition_of(const OperatorHandle& op);
template <auto definition> struct Private {
  friend auto definition_of(const OperatorHandle& op) {
    return op.*definition;
  }
};
template struct Private<&OperatorHandle::operatorDef_>;

Kernel kernel_of(const OperatorHandle& op) {
  return definition_of(op)->op.lookup(c10::DispatchKeySet(c10::DispatchKey::CUDA));
}
#else
using Kernel = c10::SafeKernelFunction;

Kernel kernel_of(const OperatorHandle& op) {
  return op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
}
#endif

/* Operations without a kernel of their own that launch kernels all the same. */
const char* const COMPOSITE[] = {"convolution_backward", "copy_"};

struct NoWarnings : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

/* The profiler of the program sees none of the CPU's memory. */
struct NoMemoryEvents : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t, size_t, size_t, c10::Device) override {}
  bool memoryProfilingEnabled() const override {
    return false;
  }
};

/* The CPU computes unseen: no autograd, no mode, no profiler, no warning. */
struct Unseen {
  c10::impl::ForceDispatchKeyGuard keys{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
  at::DisableRecordFunctionGuard no_profile;
  NoWarnings silent;
  c10::WarningUtils::WarningHandlerGuard no_warnings{&silent};
  c10::DebugInfoGuard no_memory{c10::DebugInfoKind::PROFILER_STATE,
                                std::make_shared<NoMemoryEvents>()};
};

/* Where results belong: arguments that are written, and what is returned. */
struct Places {
  std::vector<c10::IValue> arguments, returned;

  /* Twins of them all, for when the tensors are no longer there. */
  Places kept() const {
    Places made;
    for (const c10::IValue& value : arguments)
      made.arguments.push_back(twin_of(value));
    for (const c10::IValue& value : returned)
      made.returned.push_back(mirror::changed(value, [](const at::Tensor& tensor) {
        return tensor.defined() && tensor.is_cuda() && has_twin(tensor) ? twin_of(tensor)
                                                                         : at::Tensor();
      }));
    return made;
  }
};

void write_value(const c10::IValue& to, const c10::IValue& from) {
  auto targets = tensors_of(to), sources = tensors_of(from);
  for (size_t i = 0; i < targets.size() && i < sources.size(); i++)
    write(targets[i], sources[i]);
}

void write_results(const Computation& computation, const Places& places) {
  for (size_t i = 0; i < computation.changed.size(); i++)
    write_value(places.arguments[i], computation.changed[i]);
  const auto& returns = computation.op.schema().returns();
  for (size_t i = 0; i < returns.size(); i++)
    if (!returns[i].alias_info())
      write_value(places.returned[i], computation.results[i]);
}

/* A replay of a graph computes again before the kernels of an operation, and writes then. */
struct Replayed {
  std::shared_ptr<Computation> computation;
  Places places;

  static void compute(void* data) {
    Unseen unseen;
    Computation& computation = *static_cast<Replayed*>(data)->computation;
    computation.seed++; /* other numbers each time */
    computation.run();
  }
  static void write(void* data) {
    Unseen unseen;
    auto* own = static_cast<Replayed*>(data);
    if (own->computation->done)
      write_results(*own->computation, own->places);
  }
};

thread_local std::optional<int64_t> answer; /* what an operation is about to read back */
thread_local int depth, written;            /* operations around this one; written so far */

/* What is read back while torch's kernel of an operation runs. */
struct Reading {
  stub_reading before;
  std::optional<int64_t> answered = answer;

  Reading(bool memory, std::optional<int64_t> count) {
    auto what = memory  ? stub_reading::STUB_MEMORY
                : count ? stub_reading::STUB_NUMBER
                        : stub_reading::STUB_ZERO;
    before = stub_read_so({what, count.value_or(0)});
    answer = count;
    depth++;
  }
  ~Reading() {
    stub_read_so(before);
    answer = answered;
    depth--;
  }
};

/* An operation as torch calls it for CUDA. */
class Mirrored final : public c10::OperatorKernel {
 public:
  Mirrored(Kernel kernel, Shape shape)
      : kernel(std::move(kernel)), shape(std::move(shape)) {}

  void operator()(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    Places places = arguments_of(op, *stack);
    auto own = std::make_unique<Replayed>(Replayed{compute(op, *stack), {}});
    Computation& computation = *own->computation;
    bool captures = stub_at_replay(stream(), Replayed::compute, own.get());
    if (!captures)
      run(computation);
    int before = written;
    std::optional<int64_t> expected = answer;
    {
      Reading reading(shape.memory, computation.count);
      kernel.callBoxed(op, keys, stack);
    }
    size_t count = op.schema().returns().size();
    places.returned.assign(stack->end() - (long)count, stack->end());
    if (captures)
      return write_at_replay(own.release(), places);
    if (computation.done)
      write_now(computation, places);
    else
      give_up(computation, places, written == before);
    if (shape.numbers && computation.done)
      stack->back() = expected ? c10::IValue(*expected) : computation.results[0];
  }

 private:
  Kernel kernel;
  Shape shape;

  static void* stream() {
    return c10::cuda::getCurrentCUDAStream().stream();
  }

  Places arguments_of(const OperatorHandle& op, const Stack& stack) const {
    size_t first = stack.size() - op.schema().arguments().size();
    Places places;
    for (size_t i : shape.changed)
      places.arguments.push_back(stack[first + i]);
    for (size_t i : shape.filled)
      places.arguments.push_back(stack[first + i]);
    return places;
  }

  std::shared_ptr<Computation> compute(const OperatorHandle& op, const Stack& stack) const {
    Unseen unseen;
    return std::make_shared<Computation>(op, shape, stack);
  }

  static void run(Computation& computation) {
    Unseen unseen;
    computation.run();
  }

  static void write_at_replay(Replayed* own, const Places& places) {
    Unseen unseen;
    own->places = places.kept();
    stub_at_replay(stream(), Replayed::write, own);
  }

  static void write_now(const Computation& computation, const Places& places) {
    Unseen unseen;
    written++;
    write_results(computation, places);
  }

  /* What nobody computed is zero, but for what operations inside of it wrote; it is listed. */
  static void give_up(const Computation& computation, const Places& places, bool unwritten) {
    Unseen unseen;
    for (const c10::IValue& value : places.returned)
      for (const at::Tensor& tensor : tensors_of(value))
        if (unwritten && places.arguments.empty())
          clear(tensor);
    if (!depth)
      stub_unhandled(strdup((computation.op.schema().name() + " in the mirror of values (" +
                             computation.reason + ")")
                                .c_str()));
  }
};

/* Small memory that torch's kernels take for themselves begins with zeros: of a count or an
 * error that a kernel would have written nothing stale is read. */
class Emptied final : public c10::OperatorKernel {
 public:
  explicit Emptied(Kernel kernel) : kernel(std::move(kernel)) {}

  void operator()(const OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    kernel.callBoxed(op, keys, stack);
    const at::Tensor& made = stack->back().toTensor();
    if (depth && made.is_cuda() && made.storage().nbytes() <= MOST_ZEROED)
      memset(const_cast<void*>(made.storage().data()), 0, made.storage().nbytes());
  }

 private:
  static constexpr size_t MOST_ZEROED = 65536;
  Kernel kernel;
};

/* Replace the kernels of all operations, when this library is loaded. */
struct Replacement {
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__,
                         __LINE__};

  Replacement() {
    NoWarnings silent; /* torch warns of a kernel that is replaced */
    c10::WarningUtils::WarningHandlerGuard no_warnings(&silent);
    c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      std::optional<OperatorHandle> op = dispatcher.findSchema(name);
      if (op && name.getNamespace() == "aten" && is_mirrored(*op))
        replace(*op);
    }
  }

  static bool is_mirrored(const OperatorHandle& op) {
    for (const char* name : COMPOSITE)
      if (op.schema().name() == std::string("aten::") + name)
        return true;
    return op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
  }

  void replace(const OperatorHandle& op) {
    Shape shape = shape_of(op);
    Kernel kernel = kernel_of(op);
    const std::string& of = op.schema().name();
    if (of == "aten::empty" || of == "aten::empty_strided")
      put(op, std::make_unique<Emptied>(std::move(kernel)));
    else if (shape.computes)
      put(op, std::make_unique<Mirrored>(std::move(kernel), std::move(shape)));
  }

  template <class Functor>
  void put(const OperatorHandle& op, std::unique_ptr<Functor> functor) {
    std::string name = op.operator_name().name.substr(strlen("aten::"));
    if (!op.operator_name().overload_name.empty())
      name += "." + op.operator_name().overload_name;
    library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(functor)));
  }
};

Replacement replacement;

} // namespace
} // namespace mirror
