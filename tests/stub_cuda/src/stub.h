/* What the stub libraries share: settings, the clock, kernels, memory, records. */
#ifndef STUB_H
#define STUB_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define EXPORT __attribute__((visibility("default")))
#define MIB (1ull << 20)
#define MOST_DEVICES 64

/* One kind of GPU, with what torch, NVML and the clock ask of it. */
struct stub_model {
  const char *key, *name;
  uint64_t bytes;
  int major, minor, sms;
  int mhz, most_mhz, milliwatts;
  size_t shared_bytes, l2_bytes;
  double bytes_a_ns, tflops;
};

enum stub_memory { STUB_UNKNOWN, STUB_HOST, STUB_DEVICE };
enum stub_kind {
  STUB_API,
  STUB_DRIVER_API,
  STUB_KERNEL,
  STUB_COPY,
  STUB_FILL,
  STUB_SYNC,
  STUB_EVENT
};

/* What happened, for who records it (CUPTI). */
struct stub_record {
  enum stub_kind kind;
  int cbid;         /* of the function, in CUPTI's numbers */
  uint32_t of_call; /* correlation: the call that made it */
  uint64_t start, end;
  uint32_t thread, stream, device, event;
  int result;
  const char *name; /* of a kernel */
  unsigned grid[3], block[3], shared;
  uint64_t bytes;
  int copy_kind, from, to; /* in CUPTI's numbers */
  int sync_kind;           /* in CUPTI's numbers */
};

typedef void (*stub_listener)(const struct stub_record *);
extern stub_listener stub_listening;

uint64_t stub_now(void);
void stub_unhandled(const char *function);

/* Boards, after CUDA_VISIBLE_DEVICES. */
int stub_device_count(void);
int stub_board_of(int device);
void stub_host_works(uint64_t ns); /* on the virtual clock */
int stub_in_use(void);
int stub_has_context(int device);
const struct stub_model *stub_model(void);
uint64_t stub_total_bytes(void);
uint64_t stub_used_bytes(int device);
void stub_uuid(int board, unsigned char out[16]);

/* Memory: lend and take back count bytes of the current device. */
int stub_lend_bytes(int device, uint64_t bytes);
void stub_return_bytes(int device, uint64_t bytes);
void stub_note_range(void *start, size_t bytes, enum stub_memory kind);
void stub_forget_range(const void *start);
enum stub_memory stub_find(const void *address, void **start, size_t *bytes, int *device);
int stub_current_device(void);

/* Put a kernel of a library on a stream; a matrix product takes time by its size. */
void stub_library_kernel(const char *name, void *stream, uint64_t ns);
/* One that writes what the caller writes with stub_write, and nothing else. */
void stub_moving_kernel(const char *name, void *stream, uint64_t ns);
uint64_t stub_product_ns(double m, double n, double k, double share_of_peak);

/* A launch through the driver, by the function of this name and number in CUPTI. */
struct stub_launch {
  const char *name;
  void *stream;
  int cbid;
  const char *call;
  unsigned grid[3], block[3], shared;
};
void stub_driver_launch(const struct stub_launch *);
/* Values in device memory: written where they are known, else read as zero. */
int stub_copying(void);
void stub_write(void *to, const void *from, size_t bytes);
int stub_read(void *to, const void *from, size_t bytes);
int stub_stream_is_capturing(void *stream);

/* What the mirror asks for. Where torch copies a tensor, what is read back is what lies in
 * memory. What a kernel wrote for torch itself is not right: it is zero, or a number that is
 * known beforehand. */
struct stub_reading {
  enum { STUB_ZERO, STUB_MEMORY, STUB_NUMBER } what;
  int64_t number;
};
int stub_mirrored(void);
struct stub_reading stub_read_so(struct stub_reading);
/* Call a function at each replay of the graph that the stream captures; 0 where it does not. */
int stub_at_replay(void *stream, void (*function)(void *), void *data);
#ifdef __cplusplus
}
#endif
#endif
