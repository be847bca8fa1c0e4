/* libcudart, streams and events: each stream has a time until which its work lasts. */
#include "runtime.h"

static struct CUstream_st defaults[MOST_DEVICES], *streams;
static uint32_t stream_ids = 13, event_ids;

struct CUstream_st *stream_of(cudaStream_t stream) {
  if ((uintptr_t)stream > 2)
    return stream;
  struct CUstream_st *own = &defaults[current_device];
  own->id = 7;
  own->device = current_device;
  return own;
}

uint64_t busiest(int device) {
  uint64_t until = defaults[device].busy;
  for (struct CUstream_st *s = streams; s; s = s->next)
    if (s->device == device && s->busy > until)
      until = s->busy;
  return until;
}

/* Whether a device has work, for NVML. */
EXPORT int stub_is_busy(int device) {
  int busy = 0;
  LOCKED { busy = !timeless() && busiest(device) > stub_now(); }
  return busy;
}

/* Put *ns* of work on a stream; return when it starts. A full queue makes the host wait. */
uint64_t enqueue(struct CUstream_st *stream, uint64_t ns) {
  if (timeless())
    return stream->busy = stub_now();
  uint64_t *oldest = &stream->ring[stream->head++ % QUEUE];
  wait_until(*oldest);
  uint64_t start = stub_now() + slowed(LATENCY_NS);
  if (stream->busy > start)
    start = stream->busy;
  *oldest = stream->busy = start + ns;
  return start;
}

void end_capture_everywhere(const struct CUgraph_st *graph) {
  for (int i = 0; i < MOST_DEVICES; i++)
    if (defaults[i].capturing == graph)
      defaults[i].capturing = NULL;
  for (struct CUstream_st *s = streams; s; s = s->next)
    if (s->capturing == graph)
      s->capturing = NULL;
}

static cudaStream_t new_stream(unsigned flags, int priority) {
  struct CUstream_st *stream = calloc(1, sizeof *stream);
  stream->id = stream_ids += 4;
  stream->flags = flags;
  stream->priority = priority;
  stream->device = current_device;
  stream->next = streams;
  return streams = stream;
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *stream)
    API(cudaStreamCreate, { *stream = new_stream(0, 0); }) EXPORT cudaError_t
    cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
        API(cudaStreamCreateWithFlags, { *stream = new_stream(flags, 0); }) EXPORT cudaError_t
    cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
        API(cudaStreamCreateWithPriority, { *stream = new_stream(flags, priority); })

            EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
                API(cudaStreamDestroy,
                    {
                      for (struct CUstream_st **at = &streams; *at; at = &(*at)->next)
                        if (*at == stream) {
                          *at = stream->next; /* its memory stays: an event may still name it */
                          break;
                        }
                    })

                    EXPORT cudaError_t
    cudaStreamGetPriority(cudaStream_t stream, int *priority) {
  *priority = stream_of(stream)->priority;
  return cudaSuccess;
}

void record_sync(struct call own, int kind, uint32_t stream, uint32_t event) {
  stub_listener listener = stub_listening;
  if (!listener)
    return;
  struct stub_record record = {.kind = STUB_SYNC,
                               .of_call = own.id,
                               .sync_kind = kind,
                               .start = own.start,
                               .end = stub_now(),
                               .stream = stream,
                               .event = event};
  listener(&record);
}

/* CUPTI's kinds of waits: 1 event, 2 stream for event, 3 stream, 4 device. */
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
    API(cudaStreamSynchronize,
        {
          struct CUstream_st *own_stream = stream_of(stream);
          if (own_stream->capturing) {
            err = cudaErrorStreamCaptureUnsupported;
          } else {
            wait_until(own_stream->busy);
            record_sync(own, 3, own_stream->id, 0);
          }
        })

        EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream)
            API(cudaStreamQuery,
                {
                  err = timeless() || stream_of(stream)->busy <= stub_now() ? cudaSuccess
                                                                            : cudaErrorNotReady;
                })

                EXPORT cudaError_t cudaDeviceSynchronize(void)
                    API(cudaDeviceSynchronize,
                        {
                          wait_until(busiest(current_device));
                          record_sync(own, 4, 0xffffffff, 0);
                        })

                        EXPORT cudaError_t
    cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
        API(cudaStreamWaitEvent,
            {
              struct CUstream_st *waiting = stream_of(stream);
              (void)flags;
              if (event->capturing)
                waiting->capturing = event->capturing; /* it joins the capture */
              else if (event->recorded && event->at > waiting->busy)
                waiting->busy = event->at;
              record_sync(own, 2, waiting->id, event->id);
            })

            static cudaEvent_t new_event(unsigned flags) {
  struct CUevent_st *event = calloc(1, sizeof *event);
  event->id = ++event_ids;
  event->flags = flags;
  event->device = current_device;
  return event;
}

static void record_event(uint32_t of_call, cudaEvent_t event, cudaStream_t stream) {
  struct CUstream_st *recording = stream_of(stream);
  uint64_t now = stub_now();
  event->capturing = recording->capturing;
  event->recorded = !recording->capturing;
  event->at = recording->busy > now && !timeless() ? recording->busy : now;
  stub_listener listener = stub_listening;
  if (listener) {
    struct stub_record record = {.kind = STUB_EVENT,
                                 .of_call = of_call,
                                 .stream = recording->id,
                                 .device = (uint32_t)recording->device,
                                 .event = event->id,
                                 .start = event->at};
    listener(&record);
  }
}

static int has_come(const struct CUevent_st *event) {
  return !event->recorded || timeless() || event->at <= stub_now();
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event)
    API(cudaEventCreate, { *event = new_event(0); }) EXPORT cudaError_t
    cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
        API(cudaEventCreateWithFlags, { *event = new_event(flags); }) EXPORT cudaError_t
    cudaEventDestroy(cudaEvent_t event)
        API(cudaEventDestroy, { free(event); }) EXPORT cudaError_t
    cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
        API(cudaEventRecord, { record_event(own.id, event, stream); }) EXPORT cudaError_t
    cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
        API(cudaEventRecordWithFlags,
            {
              (void)flags;
              record_event(own.id, event, stream);
            }) EXPORT cudaError_t cudaEventQuery(cudaEvent_t event)
            API(cudaEventQuery, { err = has_come(event) ? cudaSuccess : cudaErrorNotReady; })

                EXPORT cudaError_t
    cudaEventSynchronize(cudaEvent_t event) API(cudaEventSynchronize,
                                                {
                                                  if (event->recorded)
                                                    wait_until(event->at);
                                                  record_sync(own, 1, 0, event->id);
                                                })

        EXPORT cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
            API(cudaEventElapsedTime,
                {
                  if (!start->recorded || !end->recorded ||
                      ((start->flags | end->flags) & cudaEventDisableTiming))
                    err = cudaErrorInvalidResourceHandle;
                  else if (!has_come(start) || !has_come(end))
                    err = cudaErrorNotReady;
                  else
                    *ms = (float)(((double)end->at - (double)start->at) / 1e6);
                })

    /* An event of another process: its work is done by the time this one reads of it. */
    EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  memset(handle, 0, sizeof *handle);
  LOCKED {
    if (event->recorded)
      wait_until(event->at);
  }
  return cudaSuccess;
}
EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  (void)handle;
  LOCKED { *event = new_event(cudaEventDisableTiming); }
  return cudaSuccess;
}

EXPORT int stub_stream_is_capturing(void *stream) {
  int capturing;
  LOCKED { capturing = stream_of(stream)->capturing != NULL; }
  return capturing;
}
