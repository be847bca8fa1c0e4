/* libcudart, devices: how many, which model, which of them are visible. */
#include "models.h"
#include "runtime.h"
#include <dlfcn.h>

#define CONTEXT_BYTES (528 * MIB) /* what a context takes beside the allocator */
#define DRIVER 13000

static int visible[MOST_DEVICES], visible_count = -1;
static uint64_t lent[MOST_DEVICES];

/* The board that one entry of CUDA_VISIBLE_DEVICES means, or -1. */
static int board_named(const char *entry) {
  if (strncmp(entry, "GPU-", 4))
    return *entry ? atoi(entry) : -1;
  for (int board = 0; board < boards_in_machine(); board++) {
    char text[48];
    uuid_text(board, text);
    if (!strncmp(entry, text, strlen(entry)))
      return board;
  }
  return -1;
}

/* As CUDA does: the first entry that means no board ends the list. */
static void read_visible(void) {
  const char *set = getenv("CUDA_VISIBLE_DEVICES");
  int count = 0, boards = boards_in_machine();
  if (!set) {
    for (; count < boards; count++)
      visible[count] = count;
  } else {
    char *copy = strdup(set), *rest = copy, *entry;
    while (count < MOST_DEVICES && (entry = strsep(&rest, ","))) {
      entry += strspn(entry, " ");
      int board = board_named(entry);
      if (board < 0 || board >= boards)
        break;
      visible[count++] = board;
    }
    free(copy);
  }
  visible_count = count;
}

EXPORT int stub_device_count(void) {
  if (visible_count < 0)
    read_visible();
  return visible_count;
}
EXPORT int stub_board_of(int device) {
  return device >= 0 && device < stub_device_count() ? visible[device] : -1;
}
EXPORT int stub_in_use(void) { return context_made; }
EXPORT int stub_has_context(int device) { return stub_board_of(device) >= 0 && contexts[device]; }
EXPORT int stub_current_device(void) { return current_device; }
EXPORT const struct stub_model *stub_model(void) { return chosen_model(); }
EXPORT void stub_uuid(int board, unsigned char out[16]) { uuid_of(board, out); }
EXPORT uint64_t stub_total_bytes(void) {
  return bytes_in(getenv("GPUPERF_STUB_MEMORY"), chosen_model()->bytes);
}
EXPORT uint64_t stub_used_bytes(int device) {
  return contexts[device] ? CONTEXT_BYTES + lent[device] : 0;
}
EXPORT int stub_lend_bytes(int device, uint64_t bytes) {
  int enough;
  LOCKED {
    enough = CONTEXT_BYTES + lent[device] + bytes <= stub_total_bytes();
    if (enough)
      lent[device] += bytes;
  }
  return enough;
}
EXPORT void stub_return_bytes(int device, uint64_t bytes) {
  LOCKED { lent[device] -= bytes; }
}

/* The mirror puts its kernels into torch, which is loaded by the time it asks for devices. */
static void load_mirror(void) {
  static int tried;
  if (!__atomic_exchange_n(&tried, 1, __ATOMIC_SEQ_CST) && stub_mirrored() &&
      !dlopen("libgpuperf_mirror.so", RTLD_NOW))
    fprintf(stderr, "stub cuda: no mirror of values: %s\n", dlerror());
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
  load_mirror();
  *count = stub_device_count();
  return *count ? cudaSuccess : failed(cudaErrorNoDevice);
}
EXPORT cudaError_t cudaGetDevice(int *device) {
  *device = current_device;
  return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= stub_device_count())
    return failed(cudaErrorInvalidDevice);
  current_device = device;
  context_made = contexts[device] = 1;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDriverGetVersion(int *version) {
  *version = DRIVER;
  return cudaSuccess;
}
EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
    API(cudaMemGetInfo,
        {
          *total = stub_total_bytes();
          *available = *total - stub_used_bytes(current_device);
        })

        EXPORT cudaError_t
    cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  const struct stub_model *model = stub_model();
  (void)device;
  switch (attribute) {
  case cudaDevAttrMaxThreadsPerBlock:
  case cudaDevAttrMaxBlockDimX:
  case cudaDevAttrMaxBlockDimY:
    *value = 1024;
    break;
  case cudaDevAttrMaxBlockDimZ:
    *value = 64;
    break;
  case cudaDevAttrMaxGridDimX:
    *value = 2147483647;
    break;
  case cudaDevAttrMaxGridDimY:
  case cudaDevAttrMaxGridDimZ:
    *value = 65535;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlock:
    *value = 49152;
    break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin:
    *value = (int)model->shared_bytes - 1024;
    break;
  case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
    *value = (int)model->shared_bytes;
    break;
  case cudaDevAttrReservedSharedMemoryPerBlock:
    *value = 1024;
    break;
  case cudaDevAttrWarpSize:
  case cudaDevAttrMaxBlocksPerMultiprocessor:
    *value = 32;
    break;
  case cudaDevAttrMultiProcessorCount:
    *value = model->sms;
    break;
  case cudaDevAttrMaxThreadsPerMultiProcessor:
    *value = 2048;
    break;
  case cudaDevAttrMaxRegistersPerBlock:
  case cudaDevAttrMaxRegistersPerMultiprocessor:
    *value = 65536;
    break;
  case cudaDevAttrComputeCapabilityMajor:
    *value = model->major;
    break;
  case cudaDevAttrComputeCapabilityMinor:
    *value = model->minor;
    break;
  case cudaDevAttrL2CacheSize:
    *value = (int)model->l2_bytes;
    break;
  case cudaDevAttrClockRate:
    *value = model->most_mhz * 1000;
    break;
  case cudaDevAttrCooperativeLaunch:
  case cudaDevAttrUnifiedAddressing:
  case cudaDevAttrConcurrentManagedAccess:
  case cudaDevAttrManagedMemory:
  case cudaDevAttrMemoryPoolsSupported:
  case cudaDevAttrHostRegisterSupported:
  case cudaDevAttrStreamPrioritiesSupported:
    *value = 1;
    break;
  default:
    *value = 0;
  }
  return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
  const struct stub_model *model = stub_model();
  int board = stub_board_of(device);
  if (board < 0)
    return failed(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", model->name);
  stub_uuid(board, (unsigned char *)p->uuid.bytes);
  p->totalGlobalMem = stub_total_bytes();
  p->sharedMemPerBlock = 49152;
  p->sharedMemPerBlockOptin = model->shared_bytes - 1024;
  p->sharedMemPerMultiprocessor = model->shared_bytes;
  p->reservedSharedMemPerBlock = 1024;
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->maxThreadsPerMultiProcessor = 2048;
  p->maxBlocksPerMultiProcessor = 32;
  p->totalConstMem = 65536;
  p->textureAlignment = 512;
  p->major = model->major;
  p->minor = model->minor;
  p->multiProcessorCount = model->sms;
  p->l2CacheSize = (int)model->l2_bytes;
  p->memoryBusWidth = 5120;
  p->asyncEngineCount = 3;
  p->pciBusID = 0x0f + board;
  p->canMapHostMemory = p->concurrentKernels = p->ECCEnabled = p->unifiedAddressing = 1;
  p->streamPrioritiesSupported = p->managedMemory = p->concurrentManagedAccess = 1;
  p->cooperativeLaunch = p->memoryPoolsSupported = p->hostRegisterSupported = 1;
  return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int room, int device) {
  snprintf(text, (size_t)room, "0000:%02X:00.0", 0x0f + stub_board_of(device));
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
  *can = device != peer;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  (void)peer;
  (void)flags;
  return cudaSuccess;
}
EXPORT cudaError_t cudaProfilerStart(void) { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop(void) { return cudaSuccess; }

EXPORT cudaError_t cudaGetDriverEntryPointByVersion(
    const char *symbol, void **function, unsigned version, unsigned long long flags,
    enum cudaDriverEntryPointQueryResult *status) {
  static void *driver;
  (void)version;
  (void)flags;
  if (!driver)
    driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  *function = driver ? dlsym(driver, symbol) : NULL;
  if (status)
    *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!*function)
    stub_unhandled(symbol);
  return *function ? cudaSuccess : cudaErrorSymbolNotFound;
}
