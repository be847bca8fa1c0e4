/* libcudart, copies and fills: they take time by their bytes, and those of pageable
 * memory make the host wait. */
#include "runtime.h"

/* CUPTI's kinds: of memory 1 pageable, 2 pinned, 3 device; of copies 1 host to device,
 * 2 device to host, 8 on the device, 9 on the host. */
enum { PAGEABLE = 1, PINNED, ON_DEVICE };
enum { TO_DEVICE = 1, TO_HOST, DEVICE_TO_DEVICE = 8, HOST_TO_HOST };

int memory_kind(const void *address) {
  struct range *range = range_of(address);
  enum stub_memory kind = range ? range->kind : STUB_UNKNOWN;
  return kind == STUB_DEVICE ? ON_DEVICE : kind == STUB_HOST ? PINNED : PAGEABLE;
}

static int copy_kind(int from, int to) {
  if (from == ON_DEVICE)
    return to == ON_DEVICE ? DEVICE_TO_DEVICE : TO_HOST;
  return to == ON_DEVICE ? TO_DEVICE : HOST_TO_HOST;
}

static double bytes_a_ns(int kind, int pageable) {
  if (kind == DEVICE_TO_DEVICE)
    return stub_model()->bytes_a_ns / 2;
  return kind == HOST_TO_HOST ? 10 : pageable ? 8 : 25;
}

static void show_copy(const struct CUstream_st *stream, uint32_t of_call,
                      const struct node *node, uint64_t start) {
  stub_listener listener = stub_listening;
  if (!listener)
    return;
  struct stub_record record = {.kind = node->copy_kind ? STUB_COPY : STUB_FILL,
                               .of_call = of_call,
                               .start = start,
                               .end = start + node->ns,
                               .bytes = node->bytes,
                               .copy_kind = node->copy_kind,
                               .from = node->from,
                               .to = node->to,
                               .stream = stream->id,
                               .device = (uint32_t)stream->device};
  listener(&record);
}

/* Put a copy or a fill on the stream, or into the graph that it captures. */
void transfer(struct CUstream_st *stream, uint32_t of_call, const struct node *node) {
  if (stream->capturing) {
    add_node(stream->capturing, node);
    return;
  }
  struct node run = *node;
  run.ns = slowed(node->ns);
  show_copy(stream, of_call, &run, enqueue(stream, run.ns));
  take_effect(&node->effect);
}

static void copy(struct call own, void *to, const void *from, size_t bytes, cudaStream_t stream,
                 int blocking) {
  struct CUstream_st *at = stream_of(stream);
  int source = memory_kind(from), target = memory_kind(to), kind = copy_kind(source, target);
  int pageable = source == PAGEABLE || target == PAGEABLE || kind == HOST_TO_HOST;
  struct node node = {.ns =
                          OVERHEAD_NS + (uint64_t)((double)bytes / bytes_a_ns(kind, pageable)),
                      .bytes = bytes,
                      .copy_kind = kind,
                      .from = source,
                      .to = target,
                      .effect = {.kind = COPY_BYTES, .to = to, .from = from, .count = bytes}};
  int waits = (pageable || blocking) && !at->capturing;
  if (waits && pageable)
    wait_until(at->busy);
  transfer(at, own.id, &node);
  if (waits)
    wait_until(at->busy);
}

EXPORT cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                                   enum cudaMemcpyKind kind, cudaStream_t stream)
    API(cudaMemcpyAsync,
        {
          (void)kind;
          copy(own, to, from, bytes, stream, 0);
        }) EXPORT cudaError_t
    cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
        API(cudaMemcpy,
            {
              (void)kind;
              copy(own, to, from, bytes, NULL, 1);
            }) EXPORT cudaError_t
    cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                        size_t bytes, cudaStream_t stream)
        API(cudaMemcpyPeerAsync,
            {
              (void)to_device, (void)from_device;
              copy(own, to, from, bytes, stream, 0);
            }) EXPORT cudaError_t
    cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                      size_t width, size_t height, enum cudaMemcpyKind kind,
                      cudaStream_t stream)
        API(cudaMemcpy2DAsync,
            {
              (void)kind;
              for (size_t row = 0; row < height; row++)
                copy(own, (char *)to + row * to_pitch, (const char *)from + row * from_pitch,
                     width, stream, 0);
            }) EXPORT cudaError_t
    cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset,
                       enum cudaMemcpyKind kind)
        API(cudaMemcpyToSymbol,
            {
              /* The host's variable for the symbol may be smaller than the symbol. */
              (void)symbol, (void)from, (void)bytes, (void)offset, (void)kind;
            })

            static void fill(struct call own, void *to, int byte, size_t bytes,
                             cudaStream_t stream) {
  struct node node = {.ns = OVERHEAD_NS + (uint64_t)((double)bytes / stub_model()->bytes_a_ns),
                      .bytes = bytes,
                      .to = ON_DEVICE,
                      .effect = {.kind = SET_BYTES, .to = to, .count = bytes, .byte = byte}};
  transfer(stream_of(stream), own.id, &node);
}

EXPORT cudaError_t cudaMemset(void *to, int byte, size_t bytes)
    API(cudaMemset, { fill(own, to, byte, bytes, NULL); }) EXPORT cudaError_t
    cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
        API(cudaMemsetAsync, { fill(own, to, byte, bytes, stream); })

    /* A function of the host runs at once, whatever the stream still has to do. */
    static void call_host(cudaStream_t stream, cudaHostFn_t function, void *data) {
  struct CUstream_st *at = stream_of(stream);
  struct node node = {.host = function, .data = data, .effect = {.kind = NOTHING}};
  if (at->capturing)
    add_node(at->capturing, &node);
  else
    function(data);
}

EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data) {
  call_host(stream, function, data);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function,
                                         void *data, unsigned flags) {
  (void)flags;
  function(stream, cudaSuccess, data);
  return cudaSuccess;
}
