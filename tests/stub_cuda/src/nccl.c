/* libnccl: ranks on one machine meet in shared memory, and each collective takes time.
 *
 * Data go through a window per rank, so that small tensors have their right values, and with
 * the mirror of values (src/mirror) those of any size, a window after the other. A collective
 * makes the host wait until every rank has come to it, which NCCL does on the GPU. What is
 * sent to one rank lies in a file of its own until that rank receives it.
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
  unsigned sent[MOST_RANKS], received[MOST_RANKS];
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
static void reduce(void *into, const void *from, size_t count, int type, int reduction);
#define REDUCED(type)                                                                          \
  for (size_t i = 0; i < count; i++) {                                                         \
    type a = ((type *)into)[i], b = ((const type *)from)[i];                                   \
    ((type *)into)[i] = reduction == MAXIMUM   ? (a > b ? a : b)                               \
                        : reduction == MINIMUM ? (a < b ? a : b)                               \
                        : reduction == PRODUCT ? (type)(a * b)                                 \
                                               : (type)(a + b);                                \
  }
/* The half that is written first is the upper one of a float. */
static float of_bfloat(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float number;
  memcpy(&number, &bits, sizeof number);
  return number;
}
static uint16_t to_bfloat(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float reduced(float a, float b, int reduction) {
  float both[2] = {a, b};
  reduce(both, both + 1, 1, FLOAT, reduction);
  return both[0];
}
static void reduce_bfloats(uint16_t *into, const uint16_t *from, size_t count, int reduction) {
  for (size_t i = 0; i < count; i++)
    into[i] = to_bfloat(reduced(of_bfloat(into[i]), of_bfloat(from[i]), reduction));
}
static void reduce(void *into, const void *from, size_t count, int type, int reduction) {
  switch (type) {
  case HALF:
    REDUCED(_Float16)
    break;
  case BFLOAT16:
    reduce_bfloats(into, from, count, reduction);
    break;
  case INT8:
    REDUCED(int8_t)
    break;
  case UINT32:
    REDUCED(uint32_t)
    break;
  case UINT64:
    REDUCED(uint64_t)
    break;
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
  default:
    break;
  }
}
static void divide(void *into, size_t count, int type, int by) {
  for (size_t i = 0; i < count; i++)
    if (type == FLOAT)
      ((float *)into)[i] /= (float)by;
    else if (type == DOUBLE)
      ((double *)into)[i] /= by;
    else if (type == HALF)
      ((_Float16 *)into)[i] /= (_Float16)by;
    else if (type == BFLOAT16)
      ((uint16_t *)into)[i] = to_bfloat(of_bfloat(((uint16_t *)into)[i]) / (float)by);
}

/* What a rank takes from the windows of all, which show *bytes* from *at* on. */
struct taking {
  const struct comm *comm;
  const char *from;
  char *to;
  size_t all, at, bytes; /* of all that a rank brings, or gets of a rank */
  int type, reduction, root;
};
typedef void (*taker)(const struct taking *);

static void take_reduced(const struct taking *t) {
  char result[WINDOW];
  size_t count = t->bytes / bytes_of(t->type);
  memcpy(result, t->comm->meeting->window[0], t->bytes);
  for (int i = 1; i < t->comm->ranks; i++)
    reduce(result, t->comm->meeting->window[i], count, t->type, t->reduction);
  if (t->reduction == AVERAGE)
    divide(result, count, t->type, t->comm->ranks);
  stub_write(t->to + t->at, result, t->bytes);
}
static void take_all(const struct taking *t) {
  for (int i = 0; i < t->comm->ranks; i++)
    stub_write(t->to + (size_t)i * t->all + t->at, t->comm->meeting->window[i], t->bytes);
}
static void take_root(const struct taking *t) {
  stub_write(t->to + t->at, t->comm->meeting->window[t->root], t->bytes);
}
static void take_reduced_at_root(const struct taking *t) {
  if (t->comm->rank == t->root)
    take_reduced(t);
}

static void take_all_at_root(const struct taking *t) {
  if (t->comm->rank == t->root)
    take_all(t);
}

static int is_moved(size_t bytes) {
  return stub_copying() && (bytes <= WINDOW || stub_mirrored());
}

static void show_kernel(const char *name, void *stream, size_t bytes) {
  uint64_t ns = KERNEL_NS + (uint64_t)((double)bytes / BYTES_A_NS);
  if (is_moved(bytes))
    stub_moving_kernel(name, stream, ns);
  else
    stub_library_kernel(name, stream, ns);
}

/* Show a window of it after the other to all ranks; nobody writes the next one too early. */
static int move(struct taking t, taker take) {
  for (t.at = 0; t.at < t.all; t.at += t.bytes) {
    t.bytes = t.all - t.at < WINDOW ? t.all - t.at : WINDOW;
    stub_read(t.comm->meeting->window[t.comm->rank], t.from + t.at, t.bytes);
    if (!meet((struct comm *)t.comm))
      return INTERNAL_ERROR;
    take(&t);
    if (!meet((struct comm *)t.comm))
      return INTERNAL_ERROR;
  }
  return SUCCESS;
}

static int collective(const char *name, struct comm *comm, const void *from, void *to,
                      size_t count, int type, int reduction, int root, void *stream,
                      taker take) {
  struct taking taking = {
      comm, from, to, count * bytes_of(type), 0, 0, type, reduction, root};
  int meets = !stub_stream_is_capturing(stream);
  if (meets && !meet(comm))
    return INTERNAL_ERROR;
  show_kernel(name, stream, taking.all);
  return meets && is_moved(taking.all) ? move(taking, take) : SUCCESS;
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

/* Each rank gets another part of what all have: one part after the other has its root. */
static int scatter(const char *name, struct taking taking, void *stream, taker take) {
  const char *from = taking.from;
  int meets = !stub_stream_is_capturing(stream);
  if (meets && !meet((struct comm *)taking.comm))
    return INTERNAL_ERROR;
  show_kernel(name, stream, taking.all);
  if (!meets || !is_moved(taking.all))
    return SUCCESS;
  for (taking.root = 0; taking.root < taking.comm->ranks; taking.root++) {
    taking.from = from + (size_t)taking.root * taking.all;
    if (move(taking, take))
      return INTERNAL_ERROR;
  }
  return SUCCESS;
}

EXPORT int ncclReduceScatter(const void *from, void *to, size_t count, int type, int reduction,
                             struct comm *comm, void *stream) {
  struct taking taking = {comm, from, to, count * bytes_of(type), 0, 0, type, reduction, 0};
  return scatter("ncclDevKernel_ReduceScatter_stub", taking, stream, take_reduced_at_root);
}
EXPORT int ncclAlltoAll(const void *from, void *to, size_t count, int type, struct comm *comm,
                        void *stream) {
  struct taking taking = {comm, from, to, count * bytes_of(type), 0, 0, type, SUM, 0};
  return scatter("ncclDevKernel_AlltoAll_stub", taking, stream, take_all_at_root);
}

/* Between two ranks: what is sent waits in a file for who receives it, and a sender does not
 * wait. In a group all is sent before anything is received, whatever the order of calls. */

static const char SEND_RECEIVE[] = "ncclDevKernel_SendRecv_stub";

struct receipt {
  char *to;
  size_t bytes;
  int peer;
  struct comm *comm;
};
static _Thread_local struct receipt expected[4 * MOST_RANKS];
static _Thread_local int groups, expecting;

static void name_message(char name[128], const struct comm *comm, int from, int to,
                         unsigned number) {
  snprintf(name, 128, "%s-%d-%d-%u", comm->name, from, to, number);
}

/* A message gets its name once it is whole. */
static int post(struct comm *comm, int peer, const void *from, size_t bytes) {
  char name[128], unfinished[160], path[192], made[160];
  name_message(name, comm, comm->rank, peer, comm->sent[peer]++);
  snprintf(unfinished, sizeof unfinished, "%s-unfinished", name);
  int file = shm_open(unfinished, O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, (off_t)(bytes ? bytes : 1)))
    return INTERNAL_ERROR;
  void *message = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (message == MAP_FAILED)
    return INTERNAL_ERROR;
  stub_read(message, from, bytes);
  munmap(message, bytes ? bytes : 1);
  snprintf(path, sizeof path, "/dev/shm%s", unfinished);
  snprintf(made, sizeof made, "/dev/shm%s", name);
  return rename(path, made) ? INTERNAL_ERROR : SUCCESS;
}

static int fetch(const struct receipt *receipt) {
  struct comm *comm = receipt->comm;
  char name[128];
  name_message(name, comm, receipt->peer, comm->rank, comm->received[receipt->peer]++);
  const struct timespec nap = {0, 20000};
  int file = -1;
  for (long naps = 0; file < 0 && naps < PATIENCE_S * 50000l; naps++)
    if ((file = shm_open(name, O_RDWR, 0600)) < 0)
      nanosleep(&nap, NULL);
  if (file < 0)
    return INTERNAL_ERROR;
  size_t bytes = receipt->bytes ? receipt->bytes : 1;
  void *message = mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  shm_unlink(name);
  if (message == MAP_FAILED)
    return INTERNAL_ERROR;
  stub_write(receipt->to, message, receipt->bytes);
  munmap(message, bytes);
  return SUCCESS;
}

EXPORT int ncclGroupStart(void) {
  groups++;
  return SUCCESS;
}
EXPORT int ncclGroupEnd(void) {
  int error = SUCCESS;
  if (--groups > 0)
    return SUCCESS;
  for (int i = 0; i < expecting && !error; i++)
    error = fetch(&expected[i]);
  expecting = 0;
  return error;
}
EXPORT int ncclSend(const void *from, size_t count, int type, int peer, struct comm *comm,
                    void *stream) {
  size_t bytes = count * bytes_of(type);
  show_kernel(SEND_RECEIVE, stream, bytes);
  return is_moved(bytes) && !stub_stream_is_capturing(stream) ? post(comm, peer, from, bytes)
                                                              : SUCCESS;
}
EXPORT int ncclRecv(void *to, size_t count, int type, int peer, struct comm *comm,
                    void *stream) {
  struct receipt receipt = {to, count * bytes_of(type), peer, comm};
  show_kernel(SEND_RECEIVE, stream, receipt.bytes);
  if (!is_moved(receipt.bytes) || stub_stream_is_capturing(stream))
    return SUCCESS;
  if (!groups)
    return fetch(&receipt);
  if (expecting == sizeof expected / sizeof *expected)
    return INVALID_ARGUMENT;
  expected[expecting++] = receipt;
  return SUCCESS;
}
