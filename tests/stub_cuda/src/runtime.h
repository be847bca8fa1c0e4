/* What the files of libcudart share among themselves. */
#ifndef STUB_RUNTIME_H
#define STUB_RUNTIME_H
#define _GNU_SOURCE
#include "cbid.h"
#include "stub.h"
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE 1024       /* launches that may wait on a stream before the host does */
#define LATENCY_NS 3000  /* between a launch and its start on an idle stream */
#define OVERHEAD_NS 1500 /* of a copy or a fill */

/* One lock for everything. A wait leaves it meanwhile. */
extern pthread_mutex_t stub_lock;
void take_lock(void);
void leave_lock(void);
#define LOCKED for (int once_ = (take_lock(), 1); once_; once_ = (leave_lock(), 0))

/* calls.c */
struct call {
  enum stub_kind kind; /* of the runtime or of the driver */
  int cbid;
  uint32_t id;
  uint64_t start;
};
struct call begin_call(int cbid, const char *name);
struct call begin_driver_launch(int cbid, const char *name);
cudaError_t end_call(struct call, cudaError_t);
cudaError_t failed(cudaError_t);
extern _Thread_local int current_device;
extern int context_made, contexts[MOST_DEVICES]; /* any; of each device */

/* Body of a function that CUPTI records: `own` is the call, `err` its result. */
#define API(name, ...)                                                                         \
  {                                                                                            \
    take_lock();                                                                               \
    struct call own = begin_call(CBID_##name, #name);                                          \
    cudaError_t err = cudaSuccess;                                                             \
    __VA_ARGS__                                                                                \
    err = end_call(own, err);                                                                  \
    leave_lock();                                                                              \
    return err;                                                                                \
  }

/* clock.c */
int timeless(void);
void wait_until(uint64_t ns);
void charge(int cbid);
void charge_launch(void);
uint64_t slowed(uint64_t ns);
int option(const char *name, const char *value);

/* effects.c: what a kernel or a copy writes, where that is known. */
enum test { GREATER_EQUAL, GREATER, LESS_EQUAL, LESS, EQUAL, NOT_EQUAL }; /* in torch's order */
enum reduction { SUM = 1, MEAN, ALL, ANY };
struct effect {
  enum {
    ANYTHING,
    NOTHING,
    COPY_BYTES,
    SET_BYTES,
    FILL_VALUES,
    COMPARE_VALUES,
    REDUCE_VALUES
  } kind;
  void *to;
  const void *from, *other;
  size_t count; /* of bytes to copy or set, or of elements */
  size_t width; /* bytes of an element */
  char type;    /* of an element, as mangled names write it */
  char value[16];
  int byte; /* of SET_BYTES */
  enum test test;
  enum reduction reduction;
};
struct effect effect_of_kernel(const char *name, void **arguments);
void take_effect(const struct effect *);

/* graphs.c: a node is what is launched again at each replay. */
struct node {
  const char *name; /* of a kernel; NULL for a copy or a fill */
  uint64_t ns;
  dim3 grid, block;
  size_t shared;
  uint64_t bytes;
  int copy_kind, from, to;
  cudaHostFn_t host;
  void *data;
  int unseen; /* of the mirror */
  struct effect effect;
};
struct CUgraph_st {
  struct node *nodes;
  size_t count, room;
  unsigned long long id;
};
void add_node(struct CUgraph_st *, const struct node *);

/* streams.c */
struct CUstream_st {
  uint32_t id;
  int priority, device;
  unsigned flags;
  uint64_t busy; /* until when its work lasts */
  uint64_t ring[QUEUE];
  unsigned head;
  struct CUgraph_st *capturing;
  struct CUstream_st *next;
};
struct CUevent_st {
  uint32_t id;
  unsigned flags;
  int recorded, device;
  uint64_t at;
  struct CUgraph_st *capturing;
};
struct CUstream_st *stream_of(cudaStream_t);
uint64_t busiest(int device);
uint64_t enqueue(struct CUstream_st *, uint64_t ns);
void end_capture_everywhere(const struct CUgraph_st *);
void record_sync(struct call, int kind, uint32_t stream, uint32_t event);

/* kernels.c, copies.c */
void launch_node(struct CUstream_st *, uint32_t of_call, const struct node *);
void transfer(struct CUstream_st *, uint32_t of_call, const struct node *);
int memory_kind(const void *);

/* memory.c */
struct range {
  char *start;
  size_t bytes;
  enum stub_memory kind;
  int device;
};
struct range *range_of(const void *);
#endif
