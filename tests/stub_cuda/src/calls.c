/* libcudart, calls: each is counted, numbered and shown to CUPTI; errors are kept. */
#include "runtime.h"
#include <sys/syscall.h>

#define MOST_FUNCTIONS 2048

EXPORT stub_listener stub_listening;
_Thread_local int current_device;
int context_made, contexts[MOST_DEVICES];
static _Thread_local cudaError_t last_error;
static uint32_t calls_made;

struct counted {
  const char *name;
  uint64_t calls;
};
static struct counted handled[MOST_FUNCTIONS], unwritten[MOST_FUNCTIONS];

static struct counted *counter_of(struct counted *table, const char *name) {
  for (size_t i = 0; i < MOST_FUNCTIONS; i++) {
    if (!table[i].name)
      table[i].name = name;
    if (table[i].name == name || !strcmp(table[i].name, name))
      return &table[i];
  }
  return &table[MOST_FUNCTIONS - 1];
}

static void log_line(const char *name) {
  const char *path = getenv("GPUPERF_STUB_LOG");
  if (!path || !*path)
    return;
  FILE *file = strcmp(path, "-") ? fopen(path, "a") : stderr;
  if (!file)
    return;
  fprintf(file, "stub cuda: %s has no body\n", name);
  if (file != stderr)
    fclose(file);
}

/* Note that a generated stub was called. */
EXPORT void stub_unhandled(const char *name) {
  LOCKED {
    if (++counter_of(unwritten, name)->calls == 1)
      log_line(name);
  }
}

/* For a test, with ctypes: how often was this function called? */
EXPORT uint64_t stub_calls(const char *name) {
  uint64_t calls = 0;
  LOCKED { calls = counter_of(handled, name)->calls; }
  return calls;
}

__attribute__((destructor)) static void write_counts(void) {
  const char *path = getenv("GPUPERF_STUB_COUNTS");
  FILE *file = path && context_made ? fopen(path, "a") : NULL;
  if (!file)
    return;
  for (size_t i = 0; i < MOST_FUNCTIONS && handled[i].name; i++)
    fprintf(file, "%s %lu\n", handled[i].name, (unsigned long)handled[i].calls);
  fclose(file);
}

static uint32_t thread_id(void) {
  static _Thread_local uint32_t own;
  if (!own)
    own = (uint32_t)syscall(SYS_gettid);
  return own;
}

static struct call begun(enum stub_kind kind, int cbid, const char *name) {
  context_made = contexts[current_device] = 1;
  counter_of(handled, name)->calls++;
  return (struct call){kind, cbid, ++calls_made, stub_now()};
}

struct call begin_call(int cbid, const char *name) {
  struct call own = begun(STUB_API, cbid, name);
  charge(cbid);
  return own;
}

struct call begin_driver_launch(int cbid, const char *name) {
  struct call own = begun(STUB_DRIVER_API, cbid, name);
  charge_launch();
  return own;
}

cudaError_t end_call(struct call own, cudaError_t result) {
  if (result != cudaSuccess && result != cudaErrorNotReady)
    last_error = result;
  stub_listener listener = stub_listening;
  if (listener) {
    struct stub_record record = {.kind = own.kind,
                                 .cbid = own.cbid,
                                 .of_call = own.id,
                                 .start = own.start,
                                 .end = stub_now(),
                                 .thread = thread_id(),
                                 .result = (int)result};
    listener(&record);
  }
  return result;
}

cudaError_t failed(cudaError_t error) { return last_error = error; }

EXPORT cudaError_t cudaGetLastError(void) {
  cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }

static const struct {
  cudaError_t error;
  const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle",
     "invalid resource handle"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
};

EXPORT const char *cudaGetErrorName(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].name;
  return "cudaErrorUnknown";
}

EXPORT const char *cudaGetErrorString(cudaError_t error) {
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error)
      return errors[i].text;
  return "an error of the stub";
}
