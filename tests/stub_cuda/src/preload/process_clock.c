/* libgpuperf_clock, to be preloaded: the virtual clock as that of the whole process.
 *
 * CLOCK_MONOTONIC, and with it time.perf_counter, then reads what the stub of the runtime
 * counts. Reading it costs time, so that a loop that waits for a moment comes to it; a
 * sleep takes its real time too, since others may be waited for. Waits with a deadline are
 * put on the real clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define READING_NS 100
#define SECOND 1000000000ull
#define FIRST_REAL_S 500000000 /* seconds of a deadline that is a date */

EXPORT uint64_t gpuperf_stub_virtual_ns = 1000 * SECOND;

static int is_virtual(void) {
  static int known; /* 1 no, 2 yes */
  if (!known) {
    const char *set = getenv("GPUPERF_STUB_CLOCK");
    known = set && !strcmp(set, "virtual") ? 2 : 1;
  }
  return known == 2;
}

static uint64_t in_ns(const struct timespec *t) {
  return (uint64_t)t->tv_sec * SECOND + (uint64_t)t->tv_nsec;
}
static struct timespec in_timespec(uint64_t ns) {
  return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}
static uint64_t advance(uint64_t ns) {
  return __atomic_add_fetch(&gpuperf_stub_virtual_ns, ns, __ATOMIC_SEQ_CST);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
  if (clock != CLOCK_MONOTONIC || !is_virtual())
    return (int)syscall(SYS_clock_gettime, clock, now);
  *now = in_timespec(advance(READING_NS));
  return 0;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *rest) {
  int (*real)(clockid_t, int, const struct timespec *, struct timespec *) =
      dlsym(RTLD_NEXT, "clock_nanosleep");
  if (clock != CLOCK_MONOTONIC || !is_virtual())
    return real(clock, flags, time, rest);
  uint64_t now = __atomic_load_n(&gpuperf_stub_virtual_ns, __ATOMIC_SEQ_CST), ns = in_ns(time);
  if (flags & TIMER_ABSTIME)
    ns = ns > now ? ns - now : 0;
  advance(ns);
  struct timespec sleep = in_timespec(ns);
  return real(clock, 0, &sleep, NULL);
}

/* A deadline of the virtual clock, as the real one will come to it. */
static struct timespec really(const struct timespec *deadline) {
  struct timespec now;
  uint64_t virtual_now = __atomic_load_n(&gpuperf_stub_virtual_ns, __ATOMIC_SEQ_CST);
  syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
  uint64_t at = in_ns(deadline);
  return in_timespec(in_ns(&now) + (at > virtual_now ? at - virtual_now : 0));
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline) {
  int (*real)(sem_t *, clockid_t, const struct timespec *) = dlsym(RTLD_NEXT, "sem_clockwait");
  if (clock != CLOCK_MONOTONIC || !is_virtual())
    return real(semaphore, clock, deadline);
  struct timespec until = really(deadline);
  return real(semaphore, clock, &until);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  clockid_t clock, const struct timespec *deadline) {
  int (*real)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *) =
      dlsym(RTLD_NEXT, "pthread_cond_clockwait");
  if (clock != CLOCK_MONOTONIC || !is_virtual())
    return real(condition, mutex, clock, deadline);
  struct timespec until = really(deadline);
  return real(condition, mutex, clock, &until);
}

/* Python waits for the GIL so, on a clock that the condition was made with. */
EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *deadline) {
  int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
      dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (deadline->tv_sec >= FIRST_REAL_S || !is_virtual())
    return real(condition, mutex, deadline);
  struct timespec until = really(deadline);
  return real(condition, mutex, &until);
}
