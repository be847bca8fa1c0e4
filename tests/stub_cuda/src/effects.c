/* libcudart, values: what is read back is zero, or right where that is cheap.
 *
 * Kernels compute nothing here. Of a few, their name and first arguments say the result:
 * fills, comparisons, and sums of a whole tensor. These and small copies are written into
 * device memory, and remembered until a kernel runs that may write anything. What is not
 * remembered reads as zero, so that nothing stale is ever taken for a number of elements.
 *
 * With the mirror (src/mirror), memory has right values: what is read is what lies there, and
 * nothing that a kernel would write is computed here.
 *
 * The arguments are, for torch 2.6 to 2.13: (count, functor, addresses of the result and
 * the inputs) of an elementwise kernel, and one ReduceOp of a reduction.
 */
#include "runtime.h"

#define MOST_BYTES 65536 /* more is not written: device memory takes no memory of the host */
#define MOST_KNOWN 256
#define REDUCE_TO_INPUT 972 /* bytes of a ReduceOp from its configuration to its input */

static struct known {
  const char *start;
  size_t bytes;
} known[MOST_KNOWN];
static size_t known_count;

EXPORT int stub_copying(void) {
  static int copying = -1;
  if (copying < 0)
    copying = !option("GPUPERF_STUB_VALUES", "zero");
  return copying;
}

EXPORT int stub_mirrored(void) {
  static int mirrored = -1;
  if (mirrored < 0)
    mirrored = option("GPUPERF_STUB_VALUES", "mirror");
  return mirrored;
}

static _Thread_local struct stub_reading reading;

/* Say how this thread reads device memory from now on; return how it did. */
EXPORT struct stub_reading stub_read_so(struct stub_reading wanted) {
  struct stub_reading before = reading;
  reading = wanted;
  return before;
}

static int reads_true(void) {
  static int truth = -1;
  if (truth < 0)
    truth = option("GPUPERF_STUB_TRUE", "1");
  return truth;
}

void forget_values(void) { known_count = 0; }

static void forget_overlapping(const char *start, size_t bytes) {
  for (size_t i = known_count; i-- > 0;)
    if (start < known[i].start + known[i].bytes && known[i].start < start + bytes)
      known[i] = known[--known_count];
}

static int is_known(const char *start, size_t bytes) {
  for (size_t i = 0; i < known_count; i++)
    if (start >= known[i].start && start + bytes <= known[i].start + known[i].bytes)
      return 1;
  return 0;
}

/* Write *bytes* of device memory and remember them; they are unknown where *from* is NULL. */
EXPORT void stub_write(void *to, const void *from, size_t bytes) {
  if (stub_mirrored()) {
    if (from)
      memmove(to, from, bytes);
    return;
  }
  LOCKED {
    forget_overlapping(to, bytes);
    if (from && stub_copying() && bytes <= MOST_BYTES) {
      memmove(to, from, bytes);
      if (known_count == MOST_KNOWN)
        known[0] = known[--known_count];
      known[known_count++] = (struct known){to, bytes};
    }
  }
}

/* Read device memory into *to*; return whether its values are known, and not just zero. */
EXPORT int stub_read(void *to, const void *from, size_t bytes) {
  int right;
  if (stub_mirrored()) {
    memmove(to, from, bytes);
    return 1;
  }
  LOCKED {
    right = is_known(from, bytes);
    if (right)
      memmove(to, from, bytes);
    else
      memset(to, 0, bytes);
  }
  return right;
}

/* Bytes of a type, by its letters in a mangled name; 0 for one that is not known. */
static size_t width_of(const char *type) {
  static const struct {
    const char *letters;
    size_t bytes;
  } types[] = {{"f", 4}, {"d", 8}, {"l", 8}, {"i", 4},           {"s", 2},
               {"a", 1}, {"h", 1}, {"b", 1}, {"N3c104HalfE", 2}, {"N3c108BFloat16E", 2}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strncmp(type, types[i].letters, strlen(types[i].letters)))
      return types[i].bytes;
  return 0;
}

/* What follows *before* in *name*; NULL if that is not in it. */
static const char *behind(const char *name, const char *before) {
  const char *found = strstr(name, before);
  return found ? found + strlen(before) : NULL;
}

static struct effect elementwise(const char *type, void **arguments) {
  struct effect effect = {.type = *type, .width = width_of(type)};
  effect.count = (size_t)*(int *)arguments[0];
  effect.to = ((void **)arguments[2])[0];
  return effect;
}

static struct effect fill_of(const char *type, void **arguments) {
  struct effect effect = elementwise(type, arguments);
  effect.kind = FILL_VALUES;
  memcpy(effect.value, arguments[1], effect.width);
  return effect;
}

/* A functor that compares begins with its test; a number to compare with may follow. */
static struct effect comparison_of(const char *type, void **arguments, int equality, int pair) {
  struct effect effect = elementwise(type, arguments);
  const char *functor = arguments[1];
  effect.kind = COMPARE_VALUES;
  effect.test = *(const int *)functor + (equality ? EQUAL : GREATER_EQUAL);
  effect.from = ((void **)arguments[2])[1];
  if (pair)
    effect.other = ((void **)arguments[2])[2];
  else
    memcpy(effect.value, functor + (effect.width == 8 ? 8 : 4), effect.width);
  return effect;
}

static struct effect effect_of_flat(const char *name, void **arguments) {
  const char *type;
  int equality = strstr(name, "CompareEqFunctor") != NULL;
  if ((type = behind(name, "11FillFunctorI")))
    return fill_of(type, arguments);
  if ((type = behind(name, "compare_scalar_kernelI")))
    return comparison_of(type, arguments, 0, 0);
  if (equality &&
      ((type = behind(name, "13AUnaryFunctorI")) || (type = behind(name, "13BUnaryFunctorI"))))
    return comparison_of(type, arguments, 1, 0);
  if (equality && (type = behind(name, "13BinaryFunctorI")))
    return comparison_of(type, arguments, 1, 1);
  return (struct effect){.kind = ANYTHING};
}

/* A ReduceOp is (functor, identity, configuration, two calculators of offsets, address of
 * the input, address of the result). Where a torch lays it out otherwise, no address is
 * found there, and nothing is computed.
 */
static struct effect effect_of_reduction(const char *name, const char *type, const char *op) {
  struct effect effect = {.kind = REDUCE_VALUES, .type = *type, .width = width_of(type)};
  size_t at = effect.width == 1 ? 4 : 2 * effect.width;
  const int *config = (const int *)(op + at);
  void *const *addresses = (void *const *)(op + (at + REDUCE_TO_INPUT + 7) / 8 * 8);
  effect.reduction = strstr(name, "sum_functor")       ? SUM
                     : strstr(name, "MeanOps")         ? MEAN
                     : strstr(name, "and_kernel_cuda") ? ALL
                     : strstr(name, "or_kernel_cuda")  ? ANY
                                                       : 0;
  if (!effect.reduction || (size_t)config[0] != effect.width || config[2] != 1 ||
      memory_kind(addresses[0]) != 3 || memory_kind(addresses[1]) != 3)
    return (struct effect){.kind = ANYTHING};
  effect.count = (size_t)config[1];
  effect.from = addresses[0];
  effect.to = addresses[1];
  return effect;
}

struct effect effect_of_kernel(const char *name, void **arguments) {
  struct effect effect = {.kind = ANYTHING};
  const char *type;
  if (!arguments || !stub_copying() || strstr(name, "WithCast"))
    return effect;
  if (stub_mirrored())
    return (struct effect){.kind = NOTHING};
  if (strstr(name, "vectorized_elementwise_kernel") ||
      strstr(name, "unrolled_elementwise_kernel"))
    effect = effect_of_flat(name, arguments);
  else if (strstr(name, "reduce_kernel") && (type = behind(name, "8ReduceOpI")))
    effect = effect_of_reduction(name, type, arguments[0]);
  else if (strstr(name, "spin_kernel"))
    effect.kind = NOTHING;
  int computes = effect.kind == COMPARE_VALUES || effect.kind == REDUCE_VALUES;
  if (effect.kind != ANYTHING && effect.kind != NOTHING &&
      (!effect.width || effect.count * effect.width > MOST_BYTES ||
       (computes && !strchr("fdlib", effect.type))))
    return (struct effect){.kind = ANYTHING};
  return effect;
}

static double number(const char *values, size_t i, char type) {
  switch (type) {
  case 'f':
    return ((const float *)values)[i];
  case 'd':
    return ((const double *)values)[i];
  case 'i':
    return ((const int *)values)[i];
  case 'b':
    return values[i] != 0;
  default:
    return (double)((const int64_t *)values)[i];
  }
}

static void set_number(char *value, double number, char type) {
  switch (type) {
  case 'f':
    *(float *)value = (float)number;
    break;
  case 'd':
    *(double *)value = number;
    break;
  case 'i':
    *(int *)value = (int)number;
    break;
  case 'b':
    *value = number != 0;
    break;
  default:
    *(int64_t *)value = (int64_t)number;
  }
}

static char passes(double a, enum test test, double b) {
  switch (test) {
  case GREATER_EQUAL:
    return a >= b;
  case GREATER:
    return a > b;
  case LESS_EQUAL:
    return a <= b;
  case LESS:
    return a < b;
  case EQUAL:
    return a == b;
  default:
    return a != b;
  }
}

static void fill(const struct effect *e) {
  char values[MOST_BYTES];
  for (size_t i = 0; i < e->count; i++)
    memcpy(values + i * e->width, e->value, e->width);
  stub_write(e->to, values, e->count * e->width);
}

static void compare(const struct effect *e) {
  char values[MOST_BYTES], others[MOST_BYTES], results[MOST_BYTES];
  stub_read(values, e->from, e->count * e->width);
  if (e->other)
    stub_read(others, e->other, e->count * e->width);
  for (size_t i = 0; i < e->count; i++) {
    double b = e->other ? number(others, i, e->type) : number(e->value, 0, e->type);
    results[i] = passes(number(values, i, e->type), e->test, b);
  }
  stub_write(e->to, results, e->count);
}

static void reduce(const struct effect *e) {
  char values[MOST_BYTES], result[8];
  double sum = 0;
  stub_read(values, e->from, e->count * e->width);
  for (size_t i = 0; i < e->count; i++)
    sum += number(values, i, e->type);
  if (e->reduction == MEAN)
    sum /= (double)e->count;
  if (e->reduction == ALL)
    sum = sum == (double)e->count;
  set_number(result, sum, e->type);
  stub_write(e->to, result, e->width);
}

static void copy_mirrored(const struct effect *e, int reads_back) {
  if (!reads_back || reading.what == STUB_MEMORY)
    memmove(e->to, e->from, e->count);
  else if (reading.what == STUB_NUMBER && e->count <= sizeof reading.number)
    memcpy(e->to, &reading.number, e->count);
  else
    memset(e->to, 0, e->count);
}

/* One byte that is read back is a truth value of a kernel that computed nothing. */
static void copy(const struct effect *e) {
  int from_device = memory_kind(e->from) == 3, to_device = memory_kind(e->to) == 3;
  if (stub_mirrored()) {
    copy_mirrored(e, from_device && !to_device);
    return;
  }
  char values[MOST_BYTES];
  if (!from_device && !to_device) {
    memmove(e->to, e->from, e->count);
  } else if (!from_device) {
    stub_write(e->to, e->from, e->count);
  } else if (to_device) {
    int fits = e->count <= MOST_BYTES;
    stub_write(e->to, fits && stub_read(values, e->from, e->count) ? values : NULL, e->count);
  } else if (!stub_read(e->to, e->from, e->count) && e->count == 1 && reads_true()) {
    *(char *)e->to = 1;
  }
}

static void set(const struct effect *e) {
  if (stub_mirrored()) {
    memset(e->to, e->byte, e->count);
    return;
  }
  char values[MOST_BYTES];
  if (e->count <= MOST_BYTES)
    memset(values, e->byte, e->count);
  stub_write(e->to, e->count <= MOST_BYTES ? values : NULL, e->count);
}

void take_effect(const struct effect *effect) {
  switch (effect->kind) {
  case ANYTHING:
    forget_values();
    break;
  case COPY_BYTES:
    copy(effect);
    break;
  case SET_BYTES:
    set(effect);
    break;
  case FILL_VALUES:
    fill(effect);
    break;
  case COMPARE_VALUES:
    compare(effect);
    break;
  case REDUCE_VALUES:
    reduce(effect);
    break;
  case NOTHING:
    break;
  }
}
