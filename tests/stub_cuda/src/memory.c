/* libcudart, memory: device memory is host memory that is counted against the device's. */
#include "runtime.h"
#include <sys/mman.h>

#define PAGE (2 * MIB) /* the driver lends whole pages, aligned */

static struct range *ranges;
static size_t range_count, range_room;

EXPORT void stub_note_range(void *start, size_t bytes, enum stub_memory kind) {
  LOCKED {
    if (range_count == range_room) {
      range_room = range_room ? 2 * range_room : 256;
      ranges = realloc(ranges, range_room * sizeof *ranges);
    }
    ranges[range_count++] = (struct range){start, bytes, kind, current_device};
  }
}

struct range *range_of(const void *address) {
  const char *at = address;
  for (size_t i = range_count; i-- > 0;)
    if (at >= ranges[i].start && at < ranges[i].start + (ranges[i].bytes ? ranges[i].bytes : 1))
      return &ranges[i];
  return NULL;
}

EXPORT void stub_forget_range(const void *start) {
  LOCKED {
    for (size_t i = range_count; i-- > 0;)
      if (ranges[i].start == start) {
        ranges[i] = ranges[--range_count];
        break;
      }
  }
}

EXPORT enum stub_memory stub_find(const void *address, void **start, size_t *bytes,
                                  int *device) {
  enum stub_memory kind = STUB_UNKNOWN;
  LOCKED {
    struct range *found = range_of(address);
    if (found) {
      kind = found->kind;
      *start = found->start;
      *bytes = found->bytes;
      *device = found->device;
    }
  }
  return kind;
}

/* Address space of whole pages at a page's boundary; nothing is taken until written. */
static void *map_pages(size_t bytes) {
  char *mapped = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return NULL;
  char *aligned = (char *)(((uintptr_t)mapped + PAGE - 1) / PAGE * PAGE);
  if (aligned > mapped)
    munmap(mapped, (size_t)(aligned - mapped));
  munmap(aligned + bytes, (size_t)(mapped + PAGE - aligned));
  return aligned;
}

static cudaError_t lend(void **address, size_t bytes, enum stub_memory kind) {
  size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
  *address = NULL;
  if (!bytes)
    return cudaSuccess;
  /* A sum that wraps around is more than any device has. */
  if (whole < bytes || (kind == STUB_DEVICE && !stub_lend_bytes(current_device, whole)))
    return cudaErrorMemoryAllocation;
  *address = map_pages(whole);
  if (!*address) {
    if (kind == STUB_DEVICE)
      stub_return_bytes(current_device, whole);
    return cudaErrorMemoryAllocation;
  }
  stub_note_range(*address, whole, kind);
  return cudaSuccess;
}

static cudaError_t take_back(void *address) {
  if (!address)
    return cudaSuccess;
  struct range *range = range_of(address);
  if (!range || range->start != address)
    return cudaErrorInvalidValue;
  if (range->kind == STUB_DEVICE)
    stub_return_bytes(range->device, range->bytes);
  munmap(range->start, range->bytes);
  stub_forget_range(address);
  return cudaSuccess;
}

EXPORT cudaError_t cudaMalloc(void **address, size_t bytes)
    API(cudaMalloc, { err = lend(address, bytes, STUB_DEVICE); })

        EXPORT cudaError_t cudaFree(void *address) API(cudaFree,
                                                       {
                                                         if (address)
                                                           wait_until(busiest(current_device));
                                                         err = take_back(address);
                                                       })

            EXPORT cudaError_t
    cudaMallocAsync(void **address, size_t bytes, cudaStream_t stream)
        API(cudaMallocAsync,
            {
              (void)stream;
              err = lend(address, bytes, STUB_DEVICE);
            })

            EXPORT cudaError_t
    cudaFreeAsync(void *address, cudaStream_t stream) API(cudaFreeAsync,
                                                          {
                                                            (void)stream;
                                                            err = take_back(address);
                                                          })

        EXPORT cudaError_t cudaHostAlloc(void **address, size_t bytes, unsigned flags)
            API(cudaHostAlloc,
                {
                  (void)flags;
                  err = lend(address, bytes, STUB_HOST);
                })

                EXPORT cudaError_t
    cudaFreeHost(void *address) API(cudaFreeHost, { err = take_back(address); })

        EXPORT cudaError_t cudaHostRegister(void *address, size_t bytes, unsigned flags)
            API(cudaHostRegister,
                {
                  (void)flags;
                  stub_note_range(address, bytes, STUB_HOST);
                })

                EXPORT cudaError_t cudaHostUnregister(void *address)
                    API(cudaHostUnregister, { stub_forget_range(address); })

                        EXPORT cudaError_t
    cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *address) {
  memset(attributes, 0, sizeof *attributes);
  LOCKED {
    struct range *range = range_of(address);
    enum stub_memory kind = range ? range->kind : STUB_UNKNOWN;
    attributes->type = kind == STUB_DEVICE ? cudaMemoryTypeDevice
                       : kind == STUB_HOST ? cudaMemoryTypeHost
                                           : cudaMemoryTypeUnregistered;
    attributes->device = range ? range->device : -2;
    if (kind != STUB_UNKNOWN)
      attributes->devicePointer = (void *)address;
    if (kind == STUB_HOST)
      attributes->hostPointer = (void *)address;
  }
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetSymbolAddress(void **address, const void *symbol) {
  *address = (void *)symbol;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) {
  static int pools[MOST_DEVICES];
  *pool = (cudaMemPool_t)&pools[device];
  return cudaSuccess;
}

EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute,
                                           void *value) {
  (void)pool;
  (void)attribute;
  *(uint64_t *)value = stub_used_bytes(current_device);
  return cudaSuccess;
}

/* Memory among processes: an allocation that is shared moves into a file of its own. */
struct shared {
  pid_t process;
  int file;
  size_t bytes;
};

EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *address)
    API(cudaIpcGetMemHandle,
        {
          struct range *range = range_of(address);
          int file = range ? memfd_create("stub-cuda", 0) : -1;
          if (file < 0 || ftruncate(file, (off_t)range->bytes) ||
              write(file, range->start, range->bytes) != (ssize_t)range->bytes) {
            err = cudaErrorInvalidValue;
          } else {
            mmap(range->start, range->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                 file, 0);
            struct shared shared = {getpid(), file, range->bytes};
            memset(handle, 0, sizeof *handle);
            memcpy(handle, &shared, sizeof shared);
          }
        })

        EXPORT cudaError_t
    cudaIpcOpenMemHandle(void **address, cudaIpcMemHandle_t handle, unsigned flags)
        API(cudaIpcOpenMemHandle,
            {
              (void)flags;
              struct shared shared;
              char path[64];
              memcpy(&shared, &handle, sizeof shared);
              snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)shared.process, shared.file);
              FILE *file = fopen(path, "r+");
              void *mapped = file ? mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                         fileno(file), 0)
                                  : MAP_FAILED;
              if (file)
                fclose(file);
              if (mapped == MAP_FAILED) {
                err = cudaErrorInvalidValue;
              } else {
                stub_note_range(mapped, shared.bytes, STUB_DEVICE);
                *address = mapped;
              }
            })

            EXPORT cudaError_t cudaIpcCloseMemHandle(void *address) API(cudaIpcCloseMemHandle, {
              struct range *range = range_of(address);
              if (range) {
                munmap(range->start, range->bytes);
                stub_forget_range(address);
              }
            })
