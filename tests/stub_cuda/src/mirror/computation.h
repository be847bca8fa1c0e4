/* The mirror, computations: what an operation becomes on the CPU, before torch's kernel runs. */
#pragma once
#include "mirror.h"

namespace mirror {

/* What an operation writes and how, as its schema says it. */
struct Shape {
  bool computes = true; /* it has values, and not only memory or a view of it */
  bool seeded = false;  /* it draws random numbers */
  bool numbers = false; /* what it returns beside tensors is the CPU's */
  bool memory = false;  /* it reads back what lies in memory, and no result of its own */
  std::vector<size_t> changed; /* arguments that are read and written */
  std::vector<size_t> filled;  /* arguments `out` */
};
Shape shape_of(const OperatorHandle&);

struct Computation {
  OperatorHandle op;
  const Shape& shape;
  uint64_t seed = 0;
  Stack twins, changed, results; /* arguments; those that are written; what is returned */
  bool done = false;
  std::string reason;
  std::optional<int64_t> count; /* of results, which torch's kernel reads back */

  /* The arguments are the last of the stack; their memory outlives a graph's tensors. */
  Computation(const OperatorHandle&, const Shape&, const Stack&);
  void run();

 private:
  Stack prepared() const;
  void attempt(Stack& arguments);
  void run_widened();
  void fail(const std::exception&);
};

} // namespace mirror
