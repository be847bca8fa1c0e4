/* libnccl: ranks on one machine meet in shared memory, and each collective takes time.
 *
 * Data go through a window per rank, so that small tensors have their right values:
 * sums of floats and integers, copies of everything up to 64 KiB. A collective makes the host
 * wait until every rank has come to it, which NCCL does on the GPU.
 */
#define _GNU_SOURCE
#include "stub.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MOST_RANKS 16
#define WINDOW 65536 /* bytes of each rank in the shared memory */
#define KERNEL_NS 20000
#define BYTES_A_NS 100.0
#define PATIENCE_S 120
enum { SUCCESS, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4 };
enum { SUM, PRODUCT, MAXIMUM, MINIMUM, AVERAGE };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, HALF, FLOAT, DOUBLE, BFLOAT16 };

struct meeting {
  unsigned arrived, round;
  char window[MOST_RANKS][WINDOW];
};
struct comm {
  int ranks, rank, device, splits;
  char name[64];
  struct meeting *meeting;
};
struct unique_id {
  char text[128];
};

static size_t bytes_of(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return type >= 0 && type <= BFLOAT16 ? bytes[type] : 1;
}

/* Wait until all ranks are here; 0 if one does not come. */
static int meet(struct comm *comm) {
  struct meeting *meeting = comm->meeting;
  unsigned round = __atomic_load_n(&meeting->round, __ATOMIC_SEQ_CST);
  if (__atomic_add_fetch(&meeting->arrived, 1, __ATOMIC_SEQ_CST) == (unsigned)comm->ranks) {
    __atomic_store_n(&meeting->arrived, 0, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&meeting->round, 1, __ATOMIC_SEQ_CST);
    return 1;
  }
  const struct timespec nap = {0, 20000};
  for (long naps = 0; naps < PATIENCE_S * 50000l; naps++) {
    if (__atomic_load_n(&meeting->round, __ATOMIC_SEQ_CST) != round)
      return 1;
    nanosleep(&nap, NULL);
  }
  return 0;
}

static int join(struct comm **made, int ranks, int rank, const char *name) {
  if (ranks < 1 || ranks > MOST_RANKS)
    return INVALID_ARGUMENT;
  struct comm *comm = calloc(1, sizeof *comm);
  *comm = (struct comm){.ranks = ranks, .rank = rank, .device = stub_current_device()};
  snprintf(comm->name, sizeof comm->name, "%s", name);
  int file = shm_open(comm->name, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof *comm->meeting))
    return INTERNAL_ERROR;
  comm->meeting =
      mmap(NULL, sizeof *comm->meeting, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (comm->meeting == MAP_FAILED || !meet(comm))
    return INTERNAL_ERROR;
  if (!rank)
    shm_unlink(comm->name);
  *made = comm;
  return SUCCESS;
}

EXPORT int ncclGetVersion(int *version) {
  *version = 22907;
  return SUCCESS;
}
EXPORT const char *ncclGetErrorString(int error) {
  return error ? "an error of the stub" : "no error";
}
EXPORT const char *ncclGetLastError(void *comm) { return (void)comm, ""; }
EXPORT int ncclGetUniqueId(struct unique_id *id) {
  static int made;
  memset(id, 0, sizeof *id);
  snprintf(id->text, sizeof id->text, "/stub-nccl-%d-%d-%llx", (int)getpid(), made++,
           (unsigned long long)stub_now());
  return SUCCESS;
}
EXPORT int ncclCommInitRankConfig(struct comm **comm, int ranks, struct unique_id id, int rank,
                                  void *config) {
  (void)config;
  return join(comm, ranks, rank, id.text);
}
EXPORT int ncclCommInitRank(struct comm **comm, int ranks, struct unique_id id, int rank) {
  return join(comm, ranks, rank, id.text);
}
EXPORT int ncclCommInitRankScalable(struct comm **comm, int ranks, int rank, int ids,
                                    struct unique_id *id, void *config) {
  (void)ids, (void)config;
  return join(comm, ranks, rank, id->text);
}
/* Every rank of one color joins a new one; keys order them, and are their old ranks here. */
EXPORT int ncclCommSplit(struct comm *comm, int color, int key, struct comm **made,
                         void *config) {
  char name[64];
  (void)key, (void)config;
  int *colors = (int *)comm->meeting->window[comm->rank], ranks = 0, rank = 0;
  *colors = color;
  if (!meet(comm))
    return INTERNAL_ERROR;
  for (int i = 0; i < comm->ranks; i++)
    if (*(int *)comm->meeting->window[i] == color)
      ranks++, rank += i < comm->rank;
  if (!meet(comm))
    return INTERNAL_ERROR;
  snprintf(name, sizeof name, "%.40s-%d-%d", comm->name, ++comm->splits, color);
  *made = NULL;
  return color < 0 ? SUCCESS : join(made, ranks, rank, name);
}

static int leave(struct comm *comm) {
  if (comm) {
    munmap(comm->meeting, sizeof *comm->meeting);
    free(comm);
  }
  return SUCCESS;
}
EXPORT int ncclCommDestroy(struct comm *comm) { return leave(comm); }
EXPORT int ncclCommAbort(struct comm *comm) { return leave(comm); }
EXPORT int ncclCommFinalize(struct comm *comm) { return (void)comm, SUCCESS; }
EXPORT int ncclCommGetAsyncError(struct comm *comm, int *error) {
  (void)comm;
  *error = SUCCESS;
  return SUCCESS;
}
EXPORT int ncclCommCount(const struct comm *comm, int *count) {
  *count = comm->ranks;
  return SUCCESS;
}
EXPORT int ncclCommUserRank(const struct comm *comm, int *rank) {
  *rank = comm->rank;
  return SUCCESS;
}

/* Reduce *count* numbers of another rank into *into*. */
#define REDUCED(type)                                                                          \
  for (size_t i = 0; i < count; i++) {                                                         \
    type a = ((type *)into)[i], b = ((const type *)from)[i];                                   \
    ((type *)into)[i] = reduction == MAXIMUM   ? (a > b ? a : b)                               \
                        : reduction == MINIMUM ? (a < b ? a : b)                               \
                        : reduction == PRODUCT ? (type)(a * b)                                 \
                                               : (type)(a + b);                                \
  }
static void reduce(void *into, const void *from, size_t count, int type, int reduction) {
  switch (type) {
  case FLOAT:
    REDUCED(float)
    break;
  case DOUBLE:
    REDUCED(double)
    break;
  case INT32:
    REDUCED(int32_t)
    break;
  case INT64:
    REDUCED(int64_t)
    break;
  case UINT8:
    REDUCED(uint8_t)
    break;
  default: /* half precision keeps the value of the first rank */
    break;
  }
}
static void divide(void *into, size_t count, int type, int by) {
  for (size_t i = 0; i < count; i++)
    if (type == FLOAT)
      ((float *)into)[i] /= (float)by;
    else if (type == DOUBLE)
      ((double *)into)[i] /= by;
}

/* What a rank takes from the windows of all. */
struct taking {
  const struct comm *comm;
  char *to;
  size_t count, bytes;
  int type, reduction, root;
};
typedef void (*taker)(const struct taking *);

static void take_reduced(const struct taking *t) {
  char result[WINDOW];
  memcpy(result, t->comm->meeting->window[0], t->bytes);
  for (int i = 1; i < t->comm->ranks; i++)
    reduce(result, t->comm->meeting->window[i], t->count, t->type, t->reduction);
  if (t->reduction == AVERAGE)
    divide(result, t->count, t->type, t->comm->ranks);
  stub_write(t->to, result, t->bytes);
}
static void take_all(const struct taking *t) {
  for (int i = 0; i < t->comm->ranks; i++)
    stub_write(t->to + (size_t)i * t->bytes, t->comm->meeting->window[i], t->bytes);
}
static void take_root(const struct taking *t) {
  stub_write(t->to, t->comm->meeting->window[t->root], t->bytes);
}
static void take_reduced_at_root(const struct taking *t) {
  if (t->comm->rank == t->root)
    take_reduced(t);
}

static int collective(const char *name, struct comm *comm, const void *from, void *to,
                      size_t count, int type, int reduction, int root, void *stream,
                      taker take) {
  struct taking taking = {comm, to, count, count * bytes_of(type), type, reduction, root};
  uint64_t ns = KERNEL_NS + (uint64_t)((double)taking.bytes / BYTES_A_NS);
  int meets = !stub_stream_is_capturing(stream);
  int moves = meets && stub_copying() && take && taking.bytes <= WINDOW;
  if (moves)
    stub_read(comm->meeting->window[comm->rank], from, taking.bytes);
  if (meets && !meet(comm))
    return INTERNAL_ERROR;
  stub_library_kernel(name, stream, ns);
  if (!moves)
    return SUCCESS;
  take(&taking);
  return meet(comm) ? SUCCESS : INTERNAL_ERROR; /* before a window is written again */
}

EXPORT int ncclAllReduce(const void *from, void *to, size_t count, int type, int reduction,
                         struct comm *comm, void *stream) {
  return collective("ncclDevKernel_AllReduce_stub", comm, from, to, count, type, reduction, 0,
                    stream, take_reduced);
}
EXPORT int ncclReduce(const void *from, void *to, size_t count, int type, int reduction,
                      int root, struct comm *comm, void *stream) {
  return collective("ncclDevKernel_Reduce_stub", comm, from, to, count, type, reduction, root,
                    stream, take_reduced_at_root);
}
EXPORT int ncclBroadcast(const void *from, void *to, size_t count, int type, int root,
                         struct comm *comm, void *stream) {
  return collective("ncclDevKernel_Broadcast_stub", comm, from, to, count, type, SUM, root,
                    stream, take_root);
}
EXPORT int ncclBcast(void *both, size_t count, int type, int root, struct comm *comm,
                     void *stream) {
  return ncclBroadcast(both, both, count, type, root, comm, stream);
}
EXPORT int ncclAllGather(const void *from, void *to, size_t count, int type, struct comm *comm,
                         void *stream) {
  return collective("ncclDevKernel_AllGather_stub", comm, from, to, count, type, SUM, 0, stream,
                    take_all);
}
/* Its values are not moved: each rank takes another part. */
EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int reduction,
                             struct comm *comm, void *stream) {
  return collective("ncclDevKernel_ReduceScatter_stub", comm, from, to, count, type, reduction,
                    0, stream, NULL);
}
/* Between two ranks nobody is waited for, and nothing is moved. */
static int between(const char *name, size_t count, int type, void *stream) {
  double bytes = (double)(count * bytes_of(type));
  stub_library_kernel(name, stream, KERNEL_NS + (uint64_t)(bytes / BYTES_A_NS));
  return SUCCESS;
}
EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct comm *comm,
                    void *stream) {
  (void)from, (void)peer, (void)comm;
  return between("ncclDevKernel_SendRecv_stub", count, type, stream);
}
EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct comm *comm,
                    void *stream) {
  (void)to, (void)peer, (void)comm;
  return between("ncclDevKernel_SendRecv_stub", count, type, stream);
}
