/* libcudart, the clock: real, virtual, or none.
 *
 * On the virtual clock time goes on only when CUDA is used: each call costs what the
 * table below says, and a wait moves the clock to its end at once. Two runs of the same
 * calls read the same times.
 */
#include "runtime.h"
#include <dlfcn.h>
#include <errno.h>
#include <time.h>

#define SPIN_NS 80000 /* a sleeping thread wakes up late by about that */
#define CALL_NS 300
#define LAUNCH_NS 4000
#define COPY_NS 6000
#define MALLOC_NS 100000
#define RETURN_NS 2000 /* between the end of the work and that of the wait for it */

pthread_mutex_t stub_lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
void take_lock(void) { pthread_mutex_lock(&stub_lock); }
void leave_lock(void) { pthread_mutex_unlock(&stub_lock); }

int option(const char *name, const char *value) {
  const char *set = getenv(name);
  return set && !strcmp(set, value);
}

static int clock_kind(void) {
  static int kind;
  if (!kind)
    kind = option("GPUPERF_STUB_CLOCK", "off")       ? 3
           : option("GPUPERF_STUB_CLOCK", "virtual") ? 2
                                                     : 1;
  return kind;
}

int timeless(void) { return clock_kind() == 3; }

/* The counter of the library that answers for the whole process, where that is loaded. */
static uint64_t own_ns = 1000000000;
static uint64_t *virtual_ns(void) {
  static uint64_t *found;
  if (!found) {
    found = dlsym(RTLD_DEFAULT, "gpuperf_stub_virtual_ns");
    if (!found)
      found = &own_ns;
  }
  return found;
}

static uint64_t real_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

EXPORT uint64_t stub_now(void) { return clock_kind() == 2 ? *virtual_ns() : real_ns(); }

/* On a slower machine all that the tables say takes so many times as long. */
uint64_t slowed(uint64_t ns) {
  static uint64_t factor;
  if (!factor) {
    const char *set = getenv("GPUPERF_STUB_SLOWER");
    long times = set ? atol(set) : 1;
    factor = times > 1 ? (uint64_t)times : 1;
  }
  return clock_kind() == 2 ? factor * ns : ns;
}

static void advance(uint64_t ns) {
  __atomic_add_fetch(virtual_ns(), slowed(ns), __ATOMIC_SEQ_CST);
}

EXPORT void stub_host_works(uint64_t ns) {
  if (clock_kind() == 2)
    advance(ns);
}

/* Others may read the clock meanwhile, and it never goes back. */
static void advance_to(uint64_t ns) {
  uint64_t now = *virtual_ns();
  while (now < ns && !__atomic_compare_exchange_n(virtual_ns(), &now, ns, 0, __ATOMIC_SEQ_CST,
                                                  __ATOMIC_SEQ_CST)) {
  }
}

void charge_launch(void) { stub_host_works(LAUNCH_NS); }

void charge(int cbid) {
  if (clock_kind() != 2)
    return;
  switch (cbid) {
  case CBID_cudaLaunchKernel:
  case CBID_cudaLaunchKernelExC:
  case CBID_cudaLaunchCooperativeKernel:
  case CBID_cudaGraphLaunch:
    advance(LAUNCH_NS);
    return;
  case CBID_cudaMemcpy:
  case CBID_cudaMemcpyAsync:
  case CBID_cudaMemsetAsync:
    advance(COPY_NS);
    return;
  case CBID_cudaMalloc:
  case CBID_cudaFree:
  case CBID_cudaHostAlloc:
    advance(MALLOC_NS);
    return;
  default:
    advance(CALL_NS);
  }
}

static void sleep_until(uint64_t ns) {
  uint64_t now = real_ns();
  if (ns > now + SPIN_NS) {
    ns -= SPIN_NS;
    struct timespec until = {(time_t)(ns / 1000000000ull), (long)(ns % 1000000000ull)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
    ns += SPIN_NS;
  }
  while (real_ns() < ns) {
  }
}

/* Wait for the GPU. The caller has the lock once, and has it again afterwards. */
void wait_until(uint64_t ns) {
  if (timeless() || ns <= stub_now())
    return;
  if (clock_kind() == 2) {
    advance_to(ns + RETURN_NS);
    return;
  }
  leave_lock();
  sleep_until(ns);
  take_lock();
}
