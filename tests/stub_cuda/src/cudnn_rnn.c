/* libcudnn, recurrent layers: where each weight lies in the buffer that torch lays out. */
#include "stub.h"
#include <stdlib.h>

#define MOST_SIDES 8
enum { RNN_RELU, RNN_TANH, LSTM, GRU };

struct tensor {
  int type, sides, side[MOST_SIDES], stride[MOST_SIDES];
};
struct layer {
  int cell, directions, input, hidden, projected, layers, type, biased;
};
struct batch {
  int steps, rows, width;
};

static size_t bytes_of(int type) { /* float, double, half, ..., bfloat16 */
  return type == 1 ? 8 : type == 2 || type == 9 ? 2 : 4;
}

#define CREATES(what, thing)                                                                   \
  EXPORT int cudnnCreate##what##Descriptor(struct thing **made) {                              \
    *made = calloc(1, sizeof **made);                                                          \
    return 0;                                                                                  \
  }                                                                                            \
  EXPORT int cudnnDestroy##what##Descriptor(struct thing *made) {                              \
    free(made);                                                                                \
    return 0;                                                                                  \
  }
CREATES(Tensor, tensor)
CREATES(RNN, layer)
CREATES(RNNData, batch)

EXPORT int cudnnSetTensorNdDescriptor(struct tensor *tensor, int type, int sides,
                                      const int side[], const int stride[]) {
  tensor->type = type;
  tensor->sides = sides;
  for (int i = 0; i < sides && i < MOST_SIDES; i++) {
    tensor->side[i] = side[i];
    tensor->stride[i] = stride[i];
  }
  return 0;
}
EXPORT int cudnnGetTensorNdDescriptor(const struct tensor *tensor, int asked, int *type,
                                      int *sides, int side[], int stride[]) {
  *type = tensor->type;
  *sides = tensor->sides;
  for (int i = 0; i < asked && i < tensor->sides && i < MOST_SIDES; i++) {
    side[i] = tensor->side[i];
    stride[i] = tensor->stride[i];
  }
  return 0;
}

EXPORT int cudnnSetRNNDescriptor_v8(struct layer *rnn, int algorithm, int cell, int bias,
                                    int direction, int input_mode, int type, int precision,
                                    int math, int input, int hidden, int projected, int layers,
                                    void *dropout, unsigned flags) {
  (void)algorithm, (void)input_mode, (void)precision, (void)math, (void)dropout, (void)flags;
  *rnn = (struct layer){.cell = cell,
                        .directions = direction ? 2 : 1,
                        .input = input,
                        .hidden = hidden,
                        .projected = projected,
                        .layers = layers,
                        .type = type,
                        .biased = bias != 0};
  return 0;
}
EXPORT int cudnnSetRNNDataDescriptor(struct batch *batch, int type, int layout, int steps,
                                     int rows, int width, const int lengths[], void *fill) {
  (void)type, (void)layout, (void)lengths, (void)fill;
  *batch = (struct batch){steps, rows, width};
  return 0;
}

static int gates(const struct layer *rnn) {
  return rnn->cell == LSTM ? 4 : rnn->cell == GRU ? 3 : 1;
}

/* Columns of a matrix: the first ones read the layer below, the others the state. */
static size_t columns(const struct layer *rnn, int pseudo_layer, int which) {
  if (which >= gates(rnn))
    return (size_t)rnn->projected;
  if (pseudo_layer < rnn->directions)
    return (size_t)rnn->input;
  return (size_t)rnn->projected * (size_t)rnn->directions;
}

static int is_projected(const struct layer *rnn) { return rnn->projected != rnn->hidden; }
static int matrices(const struct layer *rnn) { return 2 * gates(rnn) + is_projected(rnn); }

/* Rows times columns; the last matrix of a projected LSTM turns the state around. */
static size_t numbers(const struct layer *rnn, int pseudo_layer, int which) {
  if (which == 2 * gates(rnn))
    return (size_t)rnn->projected * (size_t)rnn->hidden;
  return (size_t)rnn->hidden * columns(rnn, pseudo_layer, which);
}

/* Numbers before a matrix: all matrices come first, layer by layer, then all biases. */
static size_t before_matrix(const struct layer *rnn, int pseudo_layer, int which) {
  size_t sum = 0;
  for (int l = 0; l <= pseudo_layer; l++)
    for (int m = 0; m < (l < pseudo_layer ? matrices(rnn) : which); m++)
      sum += numbers(rnn, l, m);
  return sum;
}
static size_t before_bias(const struct layer *rnn, int pseudo_layer, int which) {
  size_t one_layer = (size_t)(2 * gates(rnn)) * (size_t)rnn->hidden;
  return before_matrix(rnn, rnn->layers * rnn->directions, 0) +
         (size_t)pseudo_layer * one_layer + (size_t)which * (size_t)rnn->hidden;
}

EXPORT int cudnnGetRNNWeightSpaceSize(void *handle, const struct layer *rnn, size_t *bytes) {
  (void)handle;
  int all = rnn->layers * rnn->directions;
  size_t sum = rnn->biased ? before_bias(rnn, all, 0) : before_matrix(rnn, all, 0);
  *bytes = sum * bytes_of(rnn->type);
  return 0;
}

static void describe(struct tensor *tensor, const struct layer *rnn, size_t rows,
                     size_t width) {
  *tensor = (struct tensor){.type = rnn->type,
                            .sides = 3,
                            .side = {1, (int)rows, (int)width},
                            .stride = {(int)(rows * width), (int)width, 1}};
}

EXPORT int cudnnGetRNNWeightParams(void *handle, const struct layer *rnn, int pseudo_layer,
                                   size_t bytes, const char *space, int which,
                                   struct tensor *matrix, const char **matrix_at,
                                   struct tensor *bias, const char **bias_at) {
  (void)handle, (void)bytes;
  size_t width = bytes_of(rnn->type);
  int has_bias = rnn->biased && which < 2 * gates(rnn);
  if (matrix_at && which < matrices(rnn)) { /* either may be left out */
    size_t rows = (size_t)(which == 2 * gates(rnn) ? rnn->projected : rnn->hidden);
    describe(matrix, rnn, rows, numbers(rnn, pseudo_layer, which) / rows);
    *matrix_at = space + before_matrix(rnn, pseudo_layer, which) * width;
  }
  if (bias_at && has_bias) {
    describe(bias, rnn, (size_t)rnn->hidden, 1);
    *bias_at = space + before_bias(rnn, pseudo_layer, which) * width;
  }
  return 0;
}

/* What training keeps for backward: the gates and the state of each step and row. */
EXPORT int cudnnGetRNNTempSpaceSizes(void *handle, const struct layer *rnn, int forward,
                                     const struct batch *batch, size_t *work, size_t *reserve) {
  (void)handle;
  size_t states = (size_t)batch->steps * (size_t)batch->rows * (size_t)rnn->hidden *
                  (size_t)rnn->directions * (size_t)rnn->layers * bytes_of(rnn->type);
  if (work) /* either may be left out */
    *work = states;
  if (reserve)
    *reserve = forward ? states * (size_t)(gates(rnn) + 1) : 0;
  return 0;
}
