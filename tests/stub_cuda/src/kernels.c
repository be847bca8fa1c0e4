/* libcudart, kernels: known by the name under which they are registered. */
#include "runtime.h"

struct CUkern_st {
  const void *key;
  const char *name;
  int sleeps; /* torch.cuda._sleep */
};

/* A table by address; torch registers about 60,000 kernels. */
static struct entry {
  const void *key;
  struct CUkern_st *kernel;
} *entries;
static size_t room, count;

static size_t place_of(const void *key) {
  size_t place = ((uintptr_t)key >> 4) * 11400714819323198485ull >> 20;
  for (place %= room; entries[place].key && entries[place].key != key;)
    place = (place + 1) % room;
  return place;
}

static void put(const void *key, struct CUkern_st *kernel);

static void grow(void) {
  struct entry *old = entries;
  size_t old_room = room;
  room = room ? 2 * room : 1 << 17;
  entries = calloc(room, sizeof *entries);
  count = 0;
  for (size_t i = 0; i < old_room; i++)
    if (old[i].key)
      put(old[i].key, old[i].kernel);
  free(old);
}

static void put(const void *key, struct CUkern_st *kernel) {
  if (2 * (count + 1) > room)
    grow();
  struct entry *entry = &entries[place_of(key)];
  count += !entry->key;
  *entry = (struct entry){key, kernel};
}

static const struct CUkern_st *kernel_of(const void *key) {
  static const struct CUkern_st unknown = {.name = "unknown_kernel"};
  struct CUkern_st *found = room ? entries[place_of(key)].kernel : NULL;
  return found ? found : &unknown;
}

/* What the compiler's code calls when a library is loaded. */

EXPORT void **__cudaRegisterFatBinary(void *binary) {
  void **handle = malloc(sizeof *handle);
  *handle = binary;
  return handle;
}
EXPORT void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
EXPORT void __cudaUnregisterFatBinary(void **handle) { (void)handle; }
EXPORT char __cudaInitModule(void **handle) {
  (void)handle;
  return 1;
}
EXPORT void __cudaRegisterFunction(void **handle, const char *host, char *function,
                                   const char *name, int limit, void *thread, void *block,
                                   void *block_size, void *grid_size, int *warp) {
  (void)handle, (void)function, (void)limit, (void)thread;
  (void)block, (void)block_size, (void)grid_size, (void)warp;
  struct CUkern_st *kernel = calloc(1, sizeof *kernel);
  *kernel = (struct CUkern_st){host, name, strstr(name, "spin_kernel") != NULL};
  LOCKED {
    put(host, kernel);
    put(kernel, kernel);
  }
}
EXPORT void __cudaRegisterVar(void **handle, char *host, char *device, const char *name,
                              int ext, size_t bytes, int constant, int global) {
  (void)handle, (void)device, (void)name, (void)ext, (void)constant, (void)global;
  stub_note_range(host, bytes, STUB_UNKNOWN);
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *key) {
  LOCKED { *kernel = (cudaKernel_t)kernel_of(key); }
  return cudaSuccess;
}

/* The <<<grid, block>>> of a launch lies on a stack between two calls. */

static _Thread_local struct {
  dim3 grid, block;
  size_t shared;
  void *stream;
} pushed[16];
static _Thread_local int depth;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared,
                                            struct CUstream_st *stream) {
  if (depth == 16)
    return 1;
  pushed[depth].grid = grid;
  pushed[depth].block = block;
  pushed[depth].shared = shared;
  pushed[depth++].stream = stream;
  return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared,
                                              void *stream) {
  if (!depth)
    return cudaErrorMissingConfiguration;
  depth--;
  *grid = pushed[depth].grid;
  *block = pushed[depth].block;
  *shared = pushed[depth].shared;
  *(void **)stream = pushed[depth].stream;
  return cudaSuccess;
}

/* Launches. */

static void show_kernel(const struct CUstream_st *stream, uint32_t of_call,
                        const struct node *node, uint64_t start) {
  stub_listener listener = stub_listening;
  if (!listener)
    return;
  struct stub_record record = {.kind = STUB_KERNEL,
                               .of_call = of_call,
                               .start = start,
                               .end = start + node->ns,
                               .name = node->name,
                               .stream = stream->id,
                               .device = (uint32_t)stream->device,
                               .grid = {node->grid.x, node->grid.y, node->grid.z},
                               .block = {node->block.x, node->block.y, node->block.z},
                               .shared = (unsigned)node->shared};
  listener(&record);
}

/* Kernels take time by the SM clock of this moment, as NVML reads it. */
static double slowdown(void) {
  const char *set = getenv("GPUPERF_STUB_MHZ");
  double mhz = set ? strtod(set, NULL) : 0;
  return mhz > 0 ? stub_model()->mhz / mhz : 1;
}

void launch_node(struct CUstream_st *stream, uint32_t of_call, const struct node *node) {
  if (stream->capturing) {
    add_node(stream->capturing, node);
    return;
  }
  struct node run = *node;
  run.ns = slowed((uint64_t)((double)node->ns * slowdown()));
  show_kernel(stream, of_call, &run, enqueue(stream, run.ns));
  take_effect(&node->effect);
}

/* A thread moves sixteen bytes. */
static uint64_t moving_ns(dim3 grid, dim3 block) {
  double threads = (double)grid.x * grid.y * grid.z * block.x * block.y * block.z;
  return 1000 + (uint64_t)(threads * 16 / stub_model()->bytes_a_ns);
}

/* The kernel of torch.cuda._sleep says how long it takes. */
static uint64_t duration(const struct CUkern_st *kernel, dim3 grid, dim3 block,
                         void **arguments) {
  if (kernel->sleeps && arguments)
    return *(uint64_t *)arguments[0] * 1000 / (uint64_t)stub_model()->mhz;
  return moving_ns(grid, block);
}

static void launch(struct call own, const void *key, dim3 grid, dim3 block, void **arguments,
                   size_t shared, cudaStream_t stream) {
  const struct CUkern_st *kernel = kernel_of(key);
  struct node node = {.name = kernel->name,
                      .ns = duration(kernel, grid, block, arguments),
                      .grid = grid,
                      .block = block,
                      .shared = shared,
                      .effect = effect_of_kernel(kernel->name, arguments)};
  launch_node(stream_of(stream), own.id, &node);
}

EXPORT cudaError_t cudaLaunchKernel(const void *key, dim3 grid, dim3 block, void **arguments,
                                    size_t shared, cudaStream_t stream)
    API(cudaLaunchKernel,
        { launch(own, key, grid, block, arguments, shared, stream); }) EXPORT cudaError_t
    __cudaLaunchKernel(cudaKernel_t key, dim3 grid, dim3 block, void **arguments, size_t shared,
                       cudaStream_t stream)
        API(cudaLaunchKernel,
            { launch(own, key, grid, block, arguments, shared, stream); }) EXPORT cudaError_t
    cudaLaunchCooperativeKernel(const void *key, dim3 grid, dim3 block, void **arguments,
                                size_t shared, cudaStream_t stream)
        API(cudaLaunchCooperativeKernel,
            { launch(own, key, grid, block, arguments, shared, stream); }) EXPORT cudaError_t
    cudaLaunchKernelExC(const cudaLaunchConfig_t *c, const void *key, void **arguments)
        API(cudaLaunchKernelExC,
            {
              launch(own, key, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes,
                     c->stream);
            })

            static void put_library_kernel(const char *name, void *stream, uint64_t ns,
                                           struct effect effect) {
  struct node node = {
      .name = name, .ns = ns, .grid = {1, 1, 1}, .block = {128, 1, 1}, .effect = effect};
  take_lock();
  struct call own = begin_call(CBID_cudaLaunchKernelExC, "cudaLaunchKernelExC");
  launch_node(stream_of(stream), own.id, &node);
  end_call(own, cudaSuccess);
  leave_lock();
}

EXPORT void stub_library_kernel(const char *name, void *stream, uint64_t ns) {
  put_library_kernel(name, stream, ns, (struct effect){.kind = ANYTHING});
}
EXPORT void stub_moving_kernel(const char *name, void *stream, uint64_t ns) {
  put_library_kernel(name, stream, ns, (struct effect){.kind = NOTHING});
}

EXPORT void stub_driver_launch(const struct stub_launch *launch) {
  const unsigned *grid = launch->grid, *block = launch->block;
  struct node node = {.name = launch->name,
                      .grid = {grid[0], grid[1], grid[2]},
                      .block = {block[0], block[1], block[2]},
                      .shared = launch->shared};
  node.ns = moving_ns(node.grid, node.block);
  take_lock();
  struct call own = begin_driver_launch(launch->cbid, launch->call);
  launch_node(stream_of(launch->stream), own.id, &node);
  end_call(own, cudaSuccess);
  leave_lock();
}

EXPORT uint64_t stub_product_ns(double m, double n, double k, double share_of_peak) {
  double a_ns = stub_model()->tflops * share_of_peak * 1000;
  return 3000 + (uint64_t)(2 * m * n * k / a_ns);
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes,
                                         const void *key) {
  const struct stub_model *model = stub_model();
  (void)key;
  memset(attributes, 0, sizeof *attributes);
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = 32;
  attributes->ptxVersion = attributes->binaryVersion = 10 * model->major + model->minor;
  attributes->maxDynamicSharedSizeBytes = (int)model->shared_bytes - 1024;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFuncSetAttribute(const void *key, enum cudaFuncAttribute which,
                                        int value) {
  (void)key, (void)which, (void)value;
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    int *blocks, const void *key, int threads, size_t shared, unsigned flags) {
  (void)key, (void)shared, (void)flags;
  int fit = threads > 0 ? 2048 / threads : 1;
  *blocks = fit > 32 ? 32 : fit < 1 ? 1 : fit;
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *key,
                                                                 int threads, size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, key, threads, shared,
                                                                0);
}
