/* libcudnn: one engine for every graph; each run is one kernel.
 *
 * GPUPERF_STUB_CUDNN_WORKSPACE says what the plan of a graph asks for: nothing, which is the
 * default; a number of bytes; or `operands`, the bytes of all tensors of the graph, which is
 * what turning each of them into another layout takes.
 */
#include "models.h"
#include "stub.h"
#include "versions.h"
#include <stdlib.h>
#include <string.h>

#define KERNEL_NS 5000
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCH)
#define DROPOUT_STATE_BYTES (4 * MIB)
/* Numbers of the backend API, as the open cudnn-frontend uses them. */
enum {
  TYPE_INT64 = 3,
  TYPE_DESCRIPTOR = 15,
  TYPE_INT32 = 23,
  HEURISTIC_RESULTS = 202,
  ENGINE_OF_CONFIGURATION = 300,
  WORKSPACE_OF_PLAN = 402,
  ENGINES_OF_GRAPH = 802,
  TYPE_OF_TENSOR = 901,
  SIDES_OF_TENSOR = 902,
  NOTES_OF_ENGINE = 1302
};

struct handle {
  void *stream;
};

EXPORT size_t cudnnGetVersion(void) { return CUDNN_VERSION; }
EXPORT size_t cudnnGetCudartVersion(void) { return 13000; }
EXPORT int cudnnGetProperty(int which, int *value) {
  *value = which == 0 ? CUDNN_MAJOR : which == 1 ? CUDNN_MINOR : CUDNN_PATCH;
  return 0;
}
EXPORT int cudnnCreate(struct handle **handle) {
  *handle = calloc(1, sizeof **handle);
  return 0;
}
EXPORT int cudnnSetStream(struct handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
EXPORT int cudnnGetStream(struct handle *handle, void **stream) {
  *stream = handle->stream;
  return 0;
}
EXPORT const char *cudnnGetErrorString(int error) {
  return error ? "an error of the stub" : "CUDNN_STATUS_SUCCESS";
}
EXPORT void cudnnGetLastErrorString(char *text, size_t room) {
  if (room)
    *text = 0;
}

/* The backend API: descriptors take everything and answer what a plan is asked for. */

struct descriptor {
  int type, width; /* of a number of a tensor */
  int64_t numbers, bytes; /* of a tensor; of all tensors in it */
};

static int width_of(int type) { /* float, double, half, int8, int32, ..., bfloat16 */
  return type == 1 || type == 8 ? 8 : type == 2 || type == 9 ? 2 : type == 3 ? 1 : 4;
}

static int64_t workspace_of(const struct descriptor *plan) {
  const char *wanted = getenv("GPUPERF_STUB_CUDNN_WORKSPACE");
  if (wanted && !strcmp(wanted, "operands"))
    return plan->bytes;
  return (int64_t)bytes_in(wanted, 0);
}

static int64_t product_of(const int64_t *sides, int64_t count) {
  int64_t product = 1;
  for (int64_t i = 0; i < count; i++)
    product *= sides[i];
  return product;
}

EXPORT int cudnnBackendCreateDescriptor(int type, struct descriptor **made) {
  *made = calloc(1, sizeof **made);
  (*made)->type = type;
  return 0;
}
EXPORT int cudnnBackendDestroyDescriptor(struct descriptor *descriptor) {
  free(descriptor);
  return 0;
}
EXPORT int cudnnBackendFinalize(struct descriptor *descriptor) {
  (void)descriptor;
  return 0;
}
EXPORT int cudnnBackendSetAttribute(struct descriptor *descriptor, int name, int type,
                                    int64_t count, const void *values) {
  if (name == TYPE_OF_TENSOR)
    descriptor->width = width_of(*(const int *)values);
  if (name == SIDES_OF_TENSOR)
    descriptor->numbers = product_of(values, count);
  for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < count; i++) {
    const struct descriptor *part = ((struct descriptor *const *)values)[i];
    descriptor->bytes += part ? part->bytes + part->numbers * part->width : 0;
  }
  return 0;
}

/* What is found for a graph is found for its tensors. */
static int64_t give_descriptor(const struct descriptor *from, int64_t asked, void *values) {
  if (values && asked > 0)
    ((struct descriptor **)values)[0]->bytes = from->bytes;
  return 1;
}
static int64_t give_number(int64_t number, int64_t asked, void *values) {
  if (values && asked > 0)
    *(int64_t *)values = number;
  return 1;
}
EXPORT int cudnnBackendGetAttribute(struct descriptor *descriptor, int name, int type,
                                    int64_t asked, int64_t *count, void *values) {
  int64_t found = 0;
  if (name == HEURISTIC_RESULTS || name == ENGINE_OF_CONFIGURATION) {
    found = give_descriptor(descriptor, asked, values);
  } else if (name == ENGINES_OF_GRAPH) {
    found = give_number(1, values != NULL, values);
  } else if (name == WORKSPACE_OF_PLAN) {
    found = give_number(workspace_of(descriptor), asked, values);
  } else if (type == TYPE_INT64 && name != NOTES_OF_ENGINE) {
    found = give_number(0, asked, values);
  } else if (type == TYPE_INT32) {
    found = 1;
    if (values && asked > 0)
      *(int32_t *)values = 0;
  }
  if (count)
    *count = found;
  return 0;
}
EXPORT int cudnnBackendExecute(struct handle *handle, void *plan, void *arguments) {
  (void)plan, (void)arguments;
  stub_library_kernel("stub_cudnn_graph", handle->stream, KERNEL_NS);
  return 0;
}

/* Sizes, each answered: a size that nobody wrote would be asked of the allocator. */

EXPORT int cudnnDropoutGetStatesSize(struct handle *handle, size_t *bytes) {
  (void)handle;
  *bytes = DROPOUT_STATE_BYTES;
  return 0;
}
EXPORT int cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(void *handle, int mode,
                                                                    int ops, void *x, void *z,
                                                                    void *y, void *scale,
                                                                    void *activation,
                                                                    size_t *bytes) {
  (void)handle, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)scale, (void)activation;
  *bytes = 0;
  return 0;
}
EXPORT int cudnnGetBatchNormalizationBackwardExWorkspaceSize(void *handle, int mode, int ops,
                                                             void *x, void *y, void *dy,
                                                             void *dz, void *dx, void *scale,
                                                             void *activation, size_t *bytes) {
  (void)handle, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx;
  (void)scale, (void)activation;
  *bytes = 0;
  return 0;
}
EXPORT int cudnnGetBatchNormalizationTrainingExReserveSpaceSize(void *handle, int mode, int ops,
                                                                void *activation, void *x,
                                                                size_t *bytes) {
  (void)handle, (void)mode, (void)ops, (void)activation, (void)x;
  *bytes = 0;
  return 0;
}
EXPORT int cudnnGetCTCLossWorkspaceSize(void *handle, void *probabilities, void *gradients,
                                        void *labels, void *label_lengths, void *input_lengths,
                                        int algorithm, void *descriptor, size_t *bytes) {
  (void)handle, (void)probabilities, (void)gradients, (void)labels, (void)label_lengths;
  (void)input_lengths, (void)algorithm, (void)descriptor;
  *bytes = 1 * MIB;
  return 0;
}
EXPORT int cudnnGetCTCLossWorkspaceSize_v8(void *handle, int algorithm, void *descriptor,
                                           void *probabilities, void *gradients,
                                           size_t *bytes) {
  (void)handle, (void)algorithm, (void)descriptor, (void)probabilities, (void)gradients;
  *bytes = 1 * MIB;
  return 0;
}

/* Functions that compute and take the handle first. */
#define COMPUTES(name)                                                                         \
  EXPORT int name(struct handle *handle) {                                                     \
    stub_library_kernel("stub_" #name, handle->stream, KERNEL_NS);                             \
    return 0;                                                                                  \
  }
COMPUTES(cudnnBatchNormalizationForwardTrainingEx)
COMPUTES(cudnnBatchNormalizationBackwardEx)
COMPUTES(cudnnBatchNormalizationForwardInference)
COMPUTES(cudnnConvolutionForward)
COMPUTES(cudnnConvolutionBackwardData)
COMPUTES(cudnnConvolutionBackwardFilter)
COMPUTES(cudnnConvolutionBiasActivationForward)
COMPUTES(cudnnCTCLoss)
COMPUTES(cudnnCTCLoss_v8)
COMPUTES(cudnnPoolingForward)
COMPUTES(cudnnRNNForward)
COMPUTES(cudnnRNNBackwardData_v8)
COMPUTES(cudnnRNNBackwardWeights_v8)
COMPUTES(cudnnSpatialTfSamplerForward)
COMPUTES(cudnnSpatialTfSamplerBackward)
COMPUTES(cudnnSpatialTfGridGeneratorForward)
COMPUTES(cudnnSpatialTfGridGeneratorBackward)
