/* libcublas: handles with a stream; what computes becomes one kernel on it. */
#include "stub.h"
#include <stdlib.h>
#include <string.h>

struct handle {
  void *stream;
  int math, pointer;
};

EXPORT int cublasCreate_v2(struct handle **handle) {
  *handle = calloc(1, sizeof **handle);
  return 0;
}
EXPORT int cublasDestroy_v2(struct handle *handle) {
  free(handle);
  return 0;
}
EXPORT int cublasSetStream_v2(struct handle *handle, void *stream) {
  handle->stream = stream;
  return 0;
}
EXPORT int cublasGetStream_v2(struct handle *handle, void **stream) {
  *stream = handle->stream;
  return 0;
}
EXPORT int cublasSetWorkspace_v2(struct handle *handle, void *address, size_t bytes) {
  (void)handle, (void)address, (void)bytes;
  return 0;
}
EXPORT int cublasSetMathMode(struct handle *handle, int mode) {
  handle->math = mode;
  return 0;
}
EXPORT int cublasGetMathMode(struct handle *handle, int *mode) {
  *mode = handle->math;
  return 0;
}
EXPORT int cublasSetPointerMode_v2(struct handle *handle, int mode) {
  handle->pointer = mode;
  return 0;
}
EXPORT int cublasGetPointerMode_v2(struct handle *handle, int *mode) {
  *mode = handle->pointer;
  return 0;
}

/* CUBLAS_TF32_TENSOR_OP_MATH; flags of precision are above these bits. */
enum { TF32 = 3, MODE = 0xf };

/* A product of float32 has another kernel where TF32 is switched on. */
static int is_tf32(const char *name, const struct handle *handle) {
  return handle && (handle->math & MODE) == TF32 && strstr(name, "Sgemm");
}

/* The generated stubs of all that computes call this with their name and sizes. */
EXPORT int stub_cublas(const char *name, struct handle *handle, int m, int n, int k) {
  int is_product = strstr(name, "gemm") || strstr(name, "Gemm");
  double share = strstr(name, "Dgemm") || strstr(name, "Zgemm") ? 0.1
                 : strstr(name, "Ex")                           ? 1
                 : is_tf32(name, handle)                        ? 0.5
                                                                : 0.1;
  if (is_tf32(name, handle))
    name = "stub_cublasSgemm_tf32";
  stub_library_kernel(name, handle ? handle->stream : NULL,
                      is_product ? stub_product_ns(m, n, k, share) : 3000);
  return 0;
}
