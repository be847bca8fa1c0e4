/* libcupti: the activity API as Kineto uses it, fed by the stub of the runtime. */
#define _GNU_SOURCE
#include "cbid_names.h"
#include "records.h"
#include "stub.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH(array) (sizeof array / sizeof *array)
#define MOST_KINDS 512
#define MOST_PUSHED 256
#define FIRST_KERNEL_NS 5000000 /* of the host, for the first kernel that is recorded */
#define KERNEL_NS 2000          /* for each other one */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc client_clock;
static unsigned char enabled[MOST_KINDS];
static int seen_kernel; /* since recording began */

/* The two clocks, read together when recording began. */
static uint64_t own_start, client_start;

/* A record that is in no buffer yet; *times* are to be put on the client's clock. */
struct pending {
  struct pending *next;
  size_t bytes;
  uint64_t *times[2];
  union {
    char bytes[512];
    CUpti_Activity activity;
  } record;
};
static struct pending *first, **last = &first;

static uint64_t client_now(void) {
  return client_clock ? client_clock() : stub_now();
}

static struct pending *add(size_t bytes, CUpti_ActivityKind kind) {
  struct pending *made = calloc(1, sizeof *made);
  made->bytes = (bytes + 7) / 8 * 8;
  made->record.activity.kind = kind;
  *last = made;
  last = &made->next;
  return made;
}

#define NEW(type, kind, variable)                                                              \
  struct pending *made = add(sizeof(type), kind);                                              \
  type *variable = (type *)made->record.bytes;
#define TIMED(variable)                                                                        \
  variable->start = seen->start;                                                               \
  variable->end = seen->end;                                                                   \
  variable->correlationId = seen->of_call;                                                     \
  made->times[0] = &variable->start;                                                           \
  made->times[1] = &variable->end;
#define PLACED(variable)                                                                       \
  variable->deviceId = seen->device;                                                           \
  variable->contextId = 1;                                                                     \
  variable->streamId = seen->stream;

/* Operations of torch around a call: Kineto pushes their numbers. */
static _Thread_local struct {
  CUpti_ExternalCorrelationKind kind;
  uint64_t id;
} pushed[MOST_PUSHED];
static _Thread_local int depth;

static void add_external(const struct stub_record *seen) {
  unsigned added = 0; /* the innermost of each kind */
  for (int i = depth; i-- > 0;) {
    if (added & 1u << pushed[i].kind)
      continue;
    added |= 1u << pushed[i].kind;
    NEW(CUpti_ActivityExternalCorrelation, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, external)
    external->externalKind = pushed[i].kind;
    external->externalId = pushed[i].id;
    external->correlationId = seen->of_call;
  }
}

static void add_call_of(CUpti_ActivityKind kind, const struct stub_record *seen) {
  NEW(CUpti_ActivityAPI, kind, call)
  call->cbid = (CUpti_CallbackId)seen->cbid;
  call->processId = (uint32_t)getpid();
  call->threadId = seen->thread;
  call->returnValue = (uint32_t)seen->result;
  TIMED(call)
}
static void add_call(const struct stub_record *seen) {
  add_call_of(CUPTI_ACTIVITY_KIND_RUNTIME, seen);
}
static void add_driver_call(const struct stub_record *seen) {
  add_call_of(CUPTI_ACTIVITY_KIND_DRIVER, seen);
}
static void add_kernel(const struct stub_record *seen) {
  NEW(newest_Kernel, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, kernel)
  kernel->gridX = (int)seen->grid[0];
  kernel->gridY = (int)seen->grid[1];
  kernel->gridZ = (int)seen->grid[2];
  kernel->blockX = (int)seen->block[0];
  kernel->blockY = (int)seen->block[1];
  kernel->blockZ = (int)seen->block[2];
  kernel->dynamicSharedMemory = (int)seen->shared;
  kernel->registersPerThread = 32;
  kernel->name = seen->name;
  TIMED(kernel)
  PLACED(kernel)
}
static void add_copy(const struct stub_record *seen) {
  NEW(newest_Memcpy, CUPTI_ACTIVITY_KIND_MEMCPY, copy)
  copy->copyKind = (uint8_t)seen->copy_kind;
  copy->srcKind = (uint8_t)seen->from;
  copy->dstKind = (uint8_t)seen->to;
  copy->bytes = seen->bytes;
  copy->runtimeCorrelationId = seen->of_call;
  TIMED(copy)
  PLACED(copy)
}
static void add_fill(const struct stub_record *seen) {
  NEW(newest_Memset, CUPTI_ACTIVITY_KIND_MEMSET, fill)
  fill->bytes = seen->bytes;
  fill->memoryKind = (uint16_t)seen->to;
  TIMED(fill)
  PLACED(fill)
}
static void add_sync(const struct stub_record *seen) {
  NEW(newest_Synchronization, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, sync)
  sync->type = (CUpti_ActivitySynchronizationType)seen->sync_kind;
  sync->contextId = 1;
  sync->streamId = seen->stream;
  sync->cudaEventId = seen->event;
  TIMED(sync)
}
static void add_event(const struct stub_record *seen) {
  NEW(newest_CudaEvent, CUPTI_ACTIVITY_KIND_CUDA_EVENT, event)
  event->correlationId = seen->of_call;
  event->eventId = seen->event;
#if CUDA_VERSION >= 12080
  event->deviceId = seen->device;
#endif
  event->contextId = 1;
  event->streamId = seen->stream;
}

static const struct {
  enum stub_kind seen;
  CUpti_ActivityKind kind;
  void (*add)(const struct stub_record *);
} rules[] = {
    {STUB_API, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, add_external},
    {STUB_API, CUPTI_ACTIVITY_KIND_RUNTIME, add_call},
    {STUB_DRIVER_API, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, add_external},
    {STUB_DRIVER_API, CUPTI_ACTIVITY_KIND_DRIVER, add_driver_call},
    {STUB_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, add_kernel},
    {STUB_COPY, CUPTI_ACTIVITY_KIND_MEMCPY, add_copy},
    {STUB_FILL, CUPTI_ACTIVITY_KIND_MEMSET, add_fill},
    {STUB_SYNC, CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, add_sync},
    {STUB_EVENT, CUPTI_ACTIVITY_KIND_CUDA_EVENT, add_event},
};

/* Kineto flushes only what it was asked a buffer for: ask when the first record comes. */
static uint8_t *early;
static size_t early_bytes;

static void listen(const struct stub_record *seen) {
  if (seen->kind == STUB_KERNEL)
    stub_host_works(seen_kernel++ ? KERNEL_NS : FIRST_KERNEL_NS);
  pthread_mutex_lock(&lock);
  if (!early && request) {
    size_t most = 0;
    request(&early, &early_bytes, &most);
  }
  for (size_t i = 0; i < LENGTH(rules); i++)
    if (rules[i].seen == seen->kind && enabled[rules[i].kind])
      rules[i].add(seen);
  pthread_mutex_unlock(&lock);
}

static void enable(CUpti_ActivityKind kind, unsigned char on) {
  int any = 0;
  if (kind == CUPTI_ACTIVITY_KIND_KERNEL)
    kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  if ((size_t)kind < MOST_KINDS)
    enabled[kind] = on;
  for (size_t i = 0; i < MOST_KINDS; i++)
    any |= enabled[i];
  if (any && !stub_listening) {
    seen_kernel = 0;
    own_start = stub_now();
    client_start = client_now();
  }
  stub_listening = any ? listen : NULL;
}

EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  enable(kind, 1);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
  enable(kind, 0);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiFinalize(void) {
  memset(enabled, 0, sizeof enabled);
  enable(CUPTI_ACTIVITY_KIND_INVALID, 0);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc requested,
                                                  CUpti_BuffersCallbackCompleteFunc completed) {
  request = requested;
  complete = completed;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  client_clock = clock;
  return CUPTI_SUCCESS;
}

/* On the client's clock: a line through two common readings. */
static uint64_t converted(uint64_t ns, uint64_t own_end, uint64_t client_end) {
  if (!client_clock || own_end <= own_start)
    return ns;
  double rate = (double)(client_end - client_start) / (double)(own_end - own_start);
  return client_start + (uint64_t)(int64_t)(((double)ns - (double)own_start) * rate);
}

/* What is done by *now*; the GPU still works on the rest. */
static struct pending *taken(uint64_t now) {
  struct pending *done = NULL, **end = &done;
  pthread_mutex_lock(&lock);
  for (struct pending **next = &first; *next;) {
    struct pending *own = *next;
    if (own->times[1] && *own->times[1] > now) {
      next = &own->next;
      continue;
    }
    *next = own->next;
    own->next = NULL;
    *end = own;
    end = &own->next;
  }
  for (last = &first; *last;)
    last = &(*last)->next;
  pthread_mutex_unlock(&lock);
  return done;
}

/* Fill one buffer and hand it over; return what is left. */
static struct pending *hand_over(struct pending *next, uint64_t own_end, uint64_t client_end) {
  uint8_t *buffer = early;
  size_t room = early_bytes, most = 0, filled = 0;
  early = NULL;
  if (!buffer)
    request(&buffer, &room, &most);
  if (!buffer || !room)
    return NULL;
  while (next && filled + next->bytes <= room) {
    for (int i = 0; i < 2; i++)
      if (next->times[i])
        *next->times[i] = converted(*next->times[i], own_end, client_end);
    memcpy(buffer + filled, next->record.bytes, next->bytes);
    filled += next->bytes;
    struct pending *done = next;
    next = next->next;
    free(done);
  }
  complete(NULL, 0, buffer, room, filled);
  return filled ? next : NULL;
}

EXPORT CUptiResult cuptiActivityFlushAll(uint32_t flag) {
  (void)flag;
  if (!request || !complete)
    return CUPTI_SUCCESS;
  uint64_t own_end = stub_now(), client_end = client_now();
  for (struct pending *next = taken(own_end); next;)
    next = hand_over(next, own_end, client_end);
  return CUPTI_SUCCESS;
}

static size_t size_of(CUpti_ActivityKind kind) {
  switch (kind) {
  case CUPTI_ACTIVITY_KIND_RUNTIME:
  case CUPTI_ACTIVITY_KIND_DRIVER:
    return sizeof(CUpti_ActivityAPI);
  case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
    return sizeof(newest_Kernel);
  case CUPTI_ACTIVITY_KIND_MEMCPY:
    return sizeof(newest_Memcpy);
  case CUPTI_ACTIVITY_KIND_MEMSET:
    return sizeof(newest_Memset);
  case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION:
    return sizeof(newest_Synchronization);
  case CUPTI_ACTIVITY_KIND_CUDA_EVENT:
    return sizeof(newest_CudaEvent);
  default:
    return sizeof(CUpti_ActivityExternalCorrelation);
  }
}

EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t filled,
                                              CUpti_Activity **record) {
  uint8_t *next = buffer;
  if (*record)
    next = (uint8_t *)*record + (size_of((*record)->kind) + 7) / 8 * 8;
  if (next >= buffer + filled)
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = (CUpti_Activity *)next;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream,
                                                     size_t *count) {
  (void)context, (void)stream;
  *count = 0;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                          uint64_t id) {
  if (depth == MOST_PUSHED)
    return CUPTI_ERROR_OUT_OF_MEMORY;
  pushed[depth].kind = kind;
  pushed[depth++].id = id;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                         uint64_t *id) {
  for (int i = depth; i-- > 0;)
    if (pushed[i].kind == kind) {
      if (id)
        *id = pushed[i].id;
      depth--;
      memmove(pushed + i, pushed + i + 1, (size_t)(depth - i) * sizeof *pushed);
      return CUPTI_SUCCESS;
    }
  return CUPTI_ERROR_QUEUE_EMPTY;
}

EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber,
                                  CUpti_CallbackFunc callback, void *data) {
  static int only;
  (void)callback, (void)data;
  *subscriber = (CUpti_SubscriberHandle)&only;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiGetVersion(uint32_t *version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
  *text = result ? "an error of the stub" : "CUPTI_SUCCESS";
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t cbid,
                                        const char **name) {
  const char *known = NULL;
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API && cbid < LENGTH(cbid_names))
    known = cbid_names[cbid];
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API && cbid < LENGTH(driver_cbid_names))
    known = driver_cbid_names[cbid];
  *name = known ? known : "unknown";
  return known ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}
