/* libgpuperf_clock, to be preloaded: the virtual clock as that of the whole process.
 *
 * All clocks of the process but those of CPU time then read what the stub of the runtime
 * counts: CLOCK_MONOTONIC, and with it time.perf_counter; the date; and the counter of
 * the processor, by which torch's profiler times what the host does. Reading them costs
 * time, so that a loop that waits for a moment comes to it. A sleep takes its real time
 * too, since others may be waited for. Waits with a deadline are put on the real clock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define READING_NS 100
#define COUNTER_NS 1 /* of reading the processor's counter: no two readings are equal */
#define SECOND 1000000000ull
#define FIRST_REAL_S 500000000 /* seconds of a deadline that is a date */
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

EXPORT uint64_t gpuperf_stub_virtual_ns = 1000 * SECOND;
static uint64_t date_ns; /* what the date is ahead of the other clocks */

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
static uint64_t now_without_cost(void) { return advance(0); }

/* Of the kernel, since what libc reads without it uses the processor's counter. */
static uint64_t real_ns(clockid_t clock) {
  struct timespec now;
  syscall(SYS_clock_gettime, clock, &now);
  return in_ns(&now);
}

/* For a test, with ctypes: the host computes for so long. */
EXPORT void gpuperf_stub_work(uint64_t ns) { advance(ns); }

/* The processor's counter: reading it is made a fault, and the fault answered. One tick
 * is a nanosecond. Threads and forked processes inherit that, and so would a program that
 * is run instead of this one, which has no answer.
 */
static struct sigaction chained;

static void trap_counter(int on) {
  if (is_virtual())
    prctl(PR_SET_TSC, on ? PR_TSC_SIGSEGV : PR_TSC_ENABLE);
}

static int length_of_reading(const unsigned char *code) {
  if (code[0] == 0x0f && code[1] == 0x31)
    return 2; /* rdtsc */
  return code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9 ? 3 : 0; /* rdtscp */
}

static void forward(int number, siginfo_t *info, void *context) {
  if (chained.sa_flags & SA_SIGINFO) {
    chained.sa_sigaction(number, info, context);
  } else if (chained.sa_handler != SIG_DFL && chained.sa_handler != SIG_IGN) {
    chained.sa_handler(number);
  } else {
    NEXT(sigaction)(number, &(struct sigaction){.sa_handler = SIG_DFL}, NULL);
    if (info->si_code <= 0) /* sent, so that it does not come again by itself */
      raise(number);
  }
}

static void on_fault(int number, siginfo_t *info, void *context) {
  greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *code = (const unsigned char *)registers[REG_RIP];
  int length = info->si_code == SI_KERNEL ? length_of_reading(code) : 0;
  if (!length) {
    forward(number, info, context);
    return;
  }
  uint64_t now = advance(COUNTER_NS);
  registers[REG_RAX] = (greg_t)(now & 0xffffffff);
  registers[REG_RDX] = (greg_t)(now >> 32);
  if (length == 3)
    registers[REG_RCX] = 0; /* of the processor's number */
  registers[REG_RIP] += length;
}

__attribute__((constructor)) static void start(void) {
  if (!is_virtual())
    return;
  date_ns = real_ns(CLOCK_REALTIME) - now_without_cost();
  /* Its threads would read the counter until the clock goes on. */
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  struct sigaction own = {.sa_sigaction = on_fault,
                          .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART};
  NEXT(sigaction)(SIGSEGV, &own, &chained);
  trap_counter(1);
}

/* Who handles faults, such as Python's faulthandler, is asked after this library. */
EXPORT int sigaction(int number, const struct sigaction *set, struct sigaction *old) {
  if (number != SIGSEGV || !is_virtual())
    return NEXT(sigaction)(number, set, old);
  struct sigaction before = chained;
  if (set)
    chained = *set;
  if (old)
    *old = before;
  return 0;
}

EXPORT sighandler_t signal(int number, sighandler_t handler) {
  if (number != SIGSEGV || !is_virtual())
    return NEXT(signal)(number, handler);
  sighandler_t before = chained.sa_handler;
  chained = (struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART};
  return before;
}

/* Programs start with a counter that can be read. */
#define UNTRAPPED(call)                                                                        \
  {                                                                                            \
    trap_counter(0);                                                                           \
    __typeof__(call) done = call;                                                              \
    trap_counter(1);                                                                           \
    return done;                                                                               \
  }

EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
    UNTRAPPED(NEXT(execve)(path, arguments, environment)) EXPORT
    int execv(const char *path, char *const arguments[])
        UNTRAPPED(NEXT(execv)(path, arguments)) EXPORT
    int execvp(const char *file, char *const arguments[])
        UNTRAPPED(NEXT(execvp)(file, arguments)) EXPORT
    int execvpe(const char *file, char *const arguments[], char *const environment[])
        UNTRAPPED(NEXT(execvpe)(file, arguments, environment)) EXPORT
    int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                    const posix_spawnattr_t *attributes, char *const arguments[],
                    char *const environment[])
        UNTRAPPED(NEXT(posix_spawn)(pid, path, actions, attributes, arguments,
                                    environment)) EXPORT
    int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                     const posix_spawnattr_t *attributes, char *const arguments[],
                     char *const environment[])
        UNTRAPPED(NEXT(posix_spawnp)(pid, file, actions, attributes, arguments,
                                     environment)) EXPORT
    int system(const char *command) UNTRAPPED(NEXT(system)(command)) EXPORT
    FILE *popen(const char *command, const char *mode) UNTRAPPED(NEXT(popen)(command, mode))

    /* Clocks. */

    static int is_date(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
}
static int is_ours(clockid_t clock) {
  return is_date(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
         clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now) {
  if (!is_ours(clock) || !is_virtual())
    return (int)syscall(SYS_clock_gettime, clock, now);
  *now = in_timespec(advance(READING_NS) + (is_date(clock) ? date_ns : 0));
  return 0;
}
EXPORT int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec date;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &date);
  *now = (struct timeval){date.tv_sec, date.tv_nsec / 1000};
  return 0;
}
EXPORT time_t time(time_t *seconds) {
  struct timespec date;
  clock_gettime(CLOCK_REALTIME, &date);
  if (seconds)
    *seconds = date.tv_sec;
  return date.tv_sec;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time,
                           struct timespec *rest) {
  if (clock != CLOCK_MONOTONIC || !is_virtual())
    return NEXT(clock_nanosleep)(clock, flags, time, rest);
  uint64_t now = now_without_cost(), ns = in_ns(time);
  if (flags & TIMER_ABSTIME)
    ns = ns > now ? ns - now : 0;
  advance(ns);
  struct timespec sleep = in_timespec(ns);
  return NEXT(clock_nanosleep)(clock, 0, &sleep, NULL);
}

/* Waits with a deadline of the virtual clock, as the real one will come to it. */

static struct timespec really(clockid_t clock, const struct timespec *deadline) {
  uint64_t now = now_without_cost() + (is_date(clock) ? date_ns : 0), at = in_ns(deadline);
  return in_timespec(real_ns(clock) + (at > now ? at - now : 0));
}

EXPORT int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline) {
  if (!is_ours(clock) || !is_virtual())
    return NEXT(sem_clockwait)(semaphore, clock, deadline);
  struct timespec until = really(clock, deadline);
  return NEXT(sem_clockwait)(semaphore, clock, &until);
}

EXPORT int sem_timedwait(sem_t *semaphore, const struct timespec *deadline) {
  if (!is_virtual())
    return NEXT(sem_timedwait)(semaphore, deadline);
  struct timespec until = really(CLOCK_REALTIME, deadline);
  return NEXT(sem_timedwait)(semaphore, &until);
}

EXPORT int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  clockid_t clock, const struct timespec *deadline) {
  if (!is_ours(clock) || !is_virtual())
    return NEXT(pthread_cond_clockwait)(condition, mutex, clock, deadline);
  struct timespec until = really(clock, deadline);
  return NEXT(pthread_cond_clockwait)(condition, mutex, clock, &until);
}

/* Python waits for the GIL so, on a clock that the condition was made with. */
EXPORT int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *deadline) {
  int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *) =
      dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
  if (!is_virtual())
    return real(condition, mutex, deadline);
  clockid_t clock = deadline->tv_sec >= FIRST_REAL_S ? CLOCK_REALTIME : CLOCK_MONOTONIC;
  struct timespec until = really(clock, deadline);
  return real(condition, mutex, &until);
}
