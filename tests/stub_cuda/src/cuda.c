/* libcuda, the driver: what torch and Triton ask of it: contexts, limits, virtual memory. */
#define _GNU_SOURCE
#include "stub.h"
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
/* The header gives these names a version; both are looked up. */
#undef cuDeviceTotalMem
#undef cuMemGetAddressRange
#undef cuLinkCreate

/* For who must know that this is no driver: tests that need a real one. */
EXPORT int gpuperf_stub(void) { return 1; }

static int context;
static _Thread_local CUcontext chosen;
static size_t limits[CU_LIMIT_MAX];

/* Devices and contexts. */

EXPORT CUresult cuInit(unsigned flags) {
  (void)flags;
  return stub_device_count() ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
EXPORT CUresult cuDriverGetVersion(int *version) {
  return (CUresult)cudaDriverGetVersion(version);
}
EXPORT CUresult cuDeviceGetCount(int *count) {
  *count = stub_device_count();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  *device = ordinal;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char *text, int room, CUdevice device) {
  (void)device;
  snprintf(text, (size_t)room, "%s", stub_model()->name);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
  stub_uuid(stub_board_of(device), (unsigned char *)uuid->bytes);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute,
                                     CUdevice device) {
  *value = 1;
  if (attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
      attribute == CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
    return CUDA_SUCCESS;
  return (CUresult)cudaDeviceGetAttribute(value, (enum cudaDeviceAttr)attribute, device);
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
  if (flags)
    *flags = 0;
  *active = stub_has_context(device);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *made, CUdevice device) {
  (void)device;
  *made = (CUcontext)&context;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext *current) {
  *current = chosen ? chosen : stub_in_use() ? (CUcontext)&context : NULL;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext made) {
  chosen = made;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device) {
  *device = stub_current_device();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  *value = (unsigned)limit < sizeof limits / sizeof *limits ? limits[limit] : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  if ((unsigned)limit >= sizeof limits / sizeof *limits)
    return CUDA_ERROR_INVALID_VALUE;
  limits[limit] = value;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorString(CUresult error, const char **text) {
  *text = error ? "an error of the stub" : "no error";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult error, const char **text) {
  *text = error ? "CUDA_ERROR_UNKNOWN" : "CUDA_SUCCESS";
  return CUDA_SUCCESS;
}

/* Addresses. */

EXPORT CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute,
                                      CUdeviceptr address) {
  void *start;
  size_t bytes;
  int device;
  enum stub_memory kind = stub_find((void *)address, &start, &bytes, &device);
  if (kind == STUB_UNKNOWN)
    return CUDA_ERROR_INVALID_VALUE;
  switch (attribute) {
  case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    *(unsigned *)value = kind == STUB_DEVICE ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    break;
  case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    *(int *)value = device;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    *(void **)value = start;
    break;
  case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    *(size_t *)value = bytes;
    break;
  case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    *(CUdeviceptr *)value = address;
    break;
  case CU_POINTER_ATTRIBUTE_CONTEXT:
    *(CUcontext *)value = (CUcontext)&context;
    break;
  default:
    *(uint64_t *)value = 0;
  }
  return CUDA_SUCCESS;
}
EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes,
                                       void **values, CUdeviceptr address) {
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
    result = cuPointerGetAttribute(values[i], attributes[i], address);
  return result;
}
EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes,
                                        CUdeviceptr address) {
  void *found;
  size_t size;
  int device;
  if (stub_find((void *)address, &found, &size, &device) == STUB_UNKNOWN)
    return CUDA_ERROR_INVALID_VALUE;
  if (start)
    *start = (CUdeviceptr)found;
  if (bytes)
    *bytes = size;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemGetAddressRange(CUdeviceptr *start, size_t *bytes, CUdeviceptr address) {
  return cuMemGetAddressRange_v2(start, bytes, address);
}

/* Virtual memory, for expandable segments: reserved, backed and mapped in three steps. */

struct backing {
  size_t bytes;
  int device;
};

static void *reserve(void *at, size_t bytes, int flags) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *bytes,
                                              const CUmemAllocationProp *properties,
                                              CUmemAllocationGranularity_flags which) {
  (void)properties, (void)which;
  *bytes = 2 * MIB;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags) {
  (void)alignment, (void)wanted, (void)flags;
  void *made = reserve(NULL, bytes, 0);
  if (made == MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  *address = (CUdeviceptr)made;
  stub_note_range(made, bytes, STUB_DEVICE);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  munmap((void *)address, bytes);
  stub_forget_range((void *)address);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                            const CUmemAllocationProp *properties, unsigned long long flags) {
  struct backing *made = malloc(sizeof *made);
  (void)flags;
  *made = (struct backing){bytes, properties->location.id};
  if (!stub_lend_bytes(made->device, bytes)) {
    free(made);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = (CUmemGenericAllocationHandle)made;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  struct backing *made = (struct backing *)handle;
  stub_return_bytes(made->device, made->bytes);
  free(made);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                         CUmemGenericAllocationHandle handle, unsigned long long flags) {
  (void)offset, (void)handle, (void)flags;
  return mprotect((void *)address, bytes, PROT_READ | PROT_WRITE) ? CUDA_ERROR_INVALID_VALUE
                                                                  : CUDA_SUCCESS;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  reserve((void *)address, bytes, MAP_FIXED);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access,
                               size_t count) {
  (void)address, (void)bytes, (void)access, (void)count;
  return CUDA_SUCCESS;
}
