/* libcudart, values: what a kernel writes, where its name says it and it is cheap.
 *
 * A kernel computes nothing here. Of a few the name and the first arguments say the
 * result: fills with one value, and comparisons with one. Their arguments are, for torch
 * 2.6 to 2.13, (number of elements, functor, addresses of the result and the input).
 */
#include "runtime.h"

static int copying = -1, truth = -1;

EXPORT int stub_copying(void) {
  if (copying < 0)
    copying = !option("GPUPERF_STUB_VALUES", "zero");
  return copying;
}

static int reads_true(void) {
  if (truth < 0)
    truth = option("GPUPERF_STUB_TRUE", "1");
  return truth;
}

/* Bytes of a type, by its letters in a mangled name; 0 for one that is not known. */
static size_t width_of(const char *type) {
  static const struct {
    const char *letters;
    size_t bytes;
  } types[] = {{"f", 4},
               {"d", 8},
               {"l", 8},
               {"m", 8},
               {"i", 4},
               {"j", 4},
               {"s", 2},
               {"t", 2},
               {"a", 1},
               {"h", 1},
               {"b", 1},
               {"N3c104HalfE", 2},
               {"N3c108BFloat16E", 2},
               {"N3c107complexIfEE", 8},
               {"N3c107complexIdEE", 16}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (!strncmp(type, types[i].letters, strlen(types[i].letters)))
      return types[i].bytes;
  return 0;
}

/* Whether a kernel goes over contiguous elements, so that its addresses are known. */
static int is_flat(const char *name) {
  return strstr(name, "vectorized_elementwise_kernel") ||
         strstr(name, "unrolled_elementwise_kernel");
}

static struct effect fill_of(const char *type, void **arguments) {
  struct effect effect = {.kind = FILL_VALUES, .width = width_of(type)};
  if (!effect.width || strstr(type, "WithCast"))
    return (struct effect){0};
  effect.bytes = (size_t)*(int *)arguments[0];
  memcpy(effect.value, arguments[1], effect.width);
  effect.to = *(void **)arguments[2];
  return effect;
}

/* BUnaryFunctor<float, float, bool, CompareFunctor<float>>: the test, then the number. */
static struct effect comparison_of(const char *type, void **arguments, int equality) {
  struct effect effect = {.kind = COMPARE_VALUES, .width = width_of(type), .type = *type};
  if (!strchr("fdli", *type))
    return (struct effect){0};
  const char *functor = arguments[1];
  effect.bytes = (size_t)*(int *)arguments[0];
  effect.test = *(int *)functor + (equality ? 4 : 0);
  memcpy(effect.value, functor + (effect.width == 8 ? 8 : 4), effect.width);
  effect.to = ((void **)arguments[2])[0];
  effect.from = ((void **)arguments[2])[1];
  return effect;
}

struct effect effect_of_kernel(const char *name, void **arguments) {
  const char *type;
  if (!arguments || !stub_copying() || !is_flat(name))
    return (struct effect){0};
  if ((type = strstr(name, "11FillFunctorI")))
    return fill_of(type + strlen("11FillFunctorI"), arguments);
  if ((type = strstr(name, "13BUnaryFunctorI")) && !strstr(name, "WithCast")) {
    type += strlen("13BUnaryFunctorI");
    if (strstr(type, "14CompareFunctorI"))
      return comparison_of(type, arguments, 0);
    if (strstr(type, "16CompareEqFunctorI"))
      return comparison_of(type, arguments, 1);
  }
  return (struct effect){0};
}

static double number(const void *at, char type) {
  switch (type) {
  case 'f':
    return *(const float *)at;
  case 'd':
    return *(const double *)at;
  case 'i':
    return *(const int *)at;
  default:
    return (double)*(const int64_t *)at;
  }
}

/* Tests in torch's order: GE, GT, LE, LT, then EQ, NE. */
static char holds(double a, int test, double b) {
  switch (test) {
  case 0:
    return a >= b;
  case 1:
    return a > b;
  case 2:
    return a <= b;
  case 3:
    return a < b;
  case 4:
    return a == b;
  default:
    return a != b;
  }
}

static void compare(const struct effect *effect) {
  double against = number(effect->value, effect->type);
  const char *from = effect->from;
  char *to = effect->to;
  for (size_t i = 0; i < effect->bytes; i++)
    to[i] = holds(number(from + i * effect->width, effect->type), effect->test, against);
}

static void fill(const struct effect *effect) {
  char *to = effect->to;
  for (size_t i = 0; i < effect->bytes; i++)
    memcpy(to + i * effect->width, effect->value, effect->width);
}

/* One byte that is read back is a truth value of a kernel that computed nothing. */
static void copy(const struct effect *effect) {
  int read_back = memory_kind(effect->to) != 3 && memory_kind(effect->from) == 3;
  if (stub_copying() || !read_back)
    memmove(effect->to, effect->from, effect->bytes);
  else
    memset(effect->to, 0, effect->bytes);
  if (read_back && effect->bytes == 1 && reads_true())
    *(char *)effect->to = 1;
}

void take_effect(const struct effect *effect) {
  if (effect->kind == COPY_BYTES && (stub_copying() || memory_kind(effect->to) != 3))
    copy(effect);
  else if (effect->kind == SET_BYTES && stub_copying())
    memset(effect->to, effect->byte, effect->bytes);
  else if (effect->kind == FILL_VALUES)
    fill(effect);
  else if (effect->kind == COMPARE_VALUES)
    compare(effect);
}
