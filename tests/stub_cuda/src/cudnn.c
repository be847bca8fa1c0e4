/* libcudnn: one engine for every graph, without a workspace; each run is one kernel. */
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
  TYPE_INT32 = 23,
  HEURISTIC_RESULTS = 202,
  ENGINE_OF_CONFIGURATION = 300,
  ENGINES_OF_GRAPH = 802,
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
  int type;
};

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
  (void)descriptor, (void)name, (void)type, (void)count, (void)values;
  return 0;
}
EXPORT int cudnnBackendGetAttribute(struct descriptor *descriptor, int name, int type,
                                    int64_t asked, int64_t *count, void *values) {
  int64_t found = 0;
  (void)descriptor;
  if (name == HEURISTIC_RESULTS || name == ENGINE_OF_CONFIGURATION) {
    found = 1;
  } else if (name == ENGINES_OF_GRAPH) {
    found = 1;
    if (values)
      *(int64_t *)values = 1;
  } else if (type == TYPE_INT64 && name != NOTES_OF_ENGINE) {
    found = 1;
    if (values && asked > 0)
      *(int64_t *)values = 0;
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
