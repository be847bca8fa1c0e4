/* libnvidia-ml: boards as torch and nvidia-ml-py ask for them. */
#define _GNU_SOURCE
#include "models.h"
#include <dlfcn.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7 };

static char boards[MOST_DEVICES]; /* a handle is the address of a board's byte */
static int board_of(const void *handle) { return (int)((const char *)handle - boards); }
static int number(unsigned *out, unsigned value) {
  *out = value;
  return SUCCESS;
}
static unsigned setting(const char *name, unsigned otherwise) {
  const char *set = getenv(name);
  return set ? (unsigned)strtoul(set, NULL, 0) : otherwise;
}

EXPORT int nvmlInit_v2(void) { return SUCCESS; }
EXPORT int nvmlInit(void) { return SUCCESS; }
EXPORT int nvmlInitWithFlags(unsigned flags) { return (void)flags, SUCCESS; }
EXPORT int nvmlShutdown(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(int error) { return error ? "Not Supported" : "Success"; }
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned room) {
  snprintf(text, room, "580.65.06");
  return SUCCESS;
}
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *version) {
  *version = 13000;
  return SUCCESS;
}
EXPORT int nvmlSystemGetCudaDriverVersion(int *version) {
  return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *count) {
  return number(count, (unsigned)boards_in_machine());
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
  if ((int)index >= boards_in_machine())
    return INVALID_ARGUMENT;
  *handle = boards + index;
  return SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
  for (int board = 0; board < boards_in_machine(); board++) {
    char text[48];
    uuid_text(board, text);
    if (!strcmp(text, uuid)) {
      *handle = boards + board;
      return SUCCESS;
    }
  }
  return NOT_FOUND;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char *address, void **handle) {
  unsigned bus = 0;
  sscanf(address, "%*x:%x", &bus);
  return nvmlDeviceGetHandleByIndex_v2(bus - 0x0f, handle);
}
EXPORT int nvmlDeviceGetUUID(void *handle, char *text, unsigned room) {
  char uuid[48];
  uuid_text(board_of(handle), uuid);
  snprintf(text, room, "%s", uuid);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetName(void *handle, char *text, unsigned room) {
  (void)handle;
  snprintf(text, room, "%s", chosen_model()->name);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *handle, void **parent) {
  (void)handle, (void)parent;
  return NOT_SUPPORTED;
}

/* Settings of a board. */

EXPORT int nvmlDeviceGetMigMode(void *handle, unsigned *now, unsigned *later) {
  (void)handle;
  return number(now, 0), number(later, 0);
}
EXPORT int nvmlDeviceGetEccMode(void *handle, unsigned *now, unsigned *later) {
  (void)handle;
  return number(now, 1), number(later, 1);
}
EXPORT int nvmlDeviceGetPersistenceMode(void *handle, unsigned *mode) {
  return (void)handle, number(mode, 1);
}
EXPORT int nvmlDeviceGetPowerManagementLimit(void *handle, unsigned *milliwatts) {
  return (void)handle, number(milliwatts, (unsigned)chosen_model()->milliwatts);
}
EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(void *handle, unsigned *milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(handle, milliwatts);
}
EXPORT int nvmlDeviceGetMaxClockInfo(void *handle, int kind, unsigned *mhz) {
  (void)handle, (void)kind;
  return number(mhz, (unsigned)chosen_model()->most_mhz);
}
static int has_work(void) {
  int (*is_busy)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "stub_is_busy");
  return is_busy && is_busy(0);
}
enum { MEMORY_CLOCK = 2, MEMORY_MHZ = 2619 };
EXPORT int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) {
  unsigned at_work = setting("GPUPERF_STUB_MHZ", (unsigned)chosen_model()->mhz);
  (void)handle;
  if (kind == MEMORY_CLOCK)
    return number(mhz, MEMORY_MHZ);
  return number(mhz, has_work() ? at_work : setting("GPUPERF_STUB_IDLE_MHZ", at_work));
}
EXPORT int nvmlDeviceGetCurrentClocksEventReasons(void *handle, unsigned long long *reasons) {
  (void)handle;
  *reasons = setting("GPUPERF_STUB_THROTTLE", 0);
  return SUCCESS;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle,
                                                     unsigned long long *reasons) {
  return nvmlDeviceGetCurrentClocksEventReasons(handle, reasons);
}

/* The counters of three of those reasons: each runs while its reason is set. */

enum { SOFTWARE_HEAT = 269, HARDWARE_HEAT, POWER_BRAKE };

static const struct {
  unsigned field, reason;
} counters[] = {{SOFTWARE_HEAT, 0x20}, {HARDWARE_HEAT, 0x40}, {POWER_BRAKE, 0x80}};

struct field_value {
  unsigned id, scope;
  long long timestamp, latency;
  int type, answer;
  unsigned long long value;
};

static unsigned long long nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned long long)now.tv_sec * 1000000000ull + (unsigned long long)now.tv_nsec;
}

/* Energy of a board that always takes the same power. As on real boards, the counter moves
   in leaps. */

enum { LEAP_MS = 20 };

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *millijoules) {
  unsigned watts = setting("GPUPERF_STUB_WATTS", 0);
  (void)handle;
  *millijoules = nanoseconds() / (LEAP_MS * 1000000ull) * LEAP_MS * watts;
  return watts ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetFieldValues(void *handle, int count, struct field_value *values) {
  unsigned reasons = setting("GPUPERF_STUB_THROTTLE", 0);
  (void)handle;
  for (int i = 0; i < count; i++) {
    values[i].answer = NOT_SUPPORTED;
    for (size_t c = 0; c < sizeof counters / sizeof *counters; c++)
      if (values[i].id == counters[c].field && !getenv("GPUPERF_STUB_NO_COUNTERS")) {
        values[i].answer = SUCCESS;
        values[i].value = reasons & counters[c].reason ? nanoseconds() : 0;
      }
  }
  return SUCCESS;
}

/* Processes: this one, where it made a context, and a neighbour that settings name. */

struct process {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
struct memory {
  unsigned long long total, available, used;
};

static uint64_t used_bytes(void) {
  uint64_t (*used)(int) = (uint64_t (*)(int))dlsym(RTLD_DEFAULT, "stub_used_bytes");
  return used ? used(0) : 0;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count,
                                                   struct process *processes) {
  uint64_t used = used_bytes();
  unsigned room = *count, neighbour = setting("GPUPERF_STUB_NEIGHBOUR", 0);
  (void)handle;
  *count = (used > 0) + (neighbour > 0);
  if (!*count)
    return SUCCESS;
  if (!processes || room < *count)
    return TOO_SMALL;
  if (used)
    *processes++ = (struct process){(unsigned)getpid(), used, ~0u, ~0u};
  if (neighbour)
    *processes = (struct process){neighbour, MIB, ~0u, ~0u};
  return SUCCESS;
}
EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(void *handle, unsigned *count,
                                                   struct process *processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, processes);
}
EXPORT int nvmlDeviceGetComputeRunningProcesses(void *handle, unsigned *count,
                                                struct process *processes) {
  return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, processes);
}
struct sample {
  unsigned pid;
  unsigned long long at_us;
  unsigned multiprocessors, memory, encoder, decoder;
};

/* A sample is of this very moment, for who computes in it. */
EXPORT int nvmlDeviceGetProcessUtilization(void *handle, struct sample *samples,
                                           unsigned *count, unsigned long long since_us) {
  unsigned long long now_us = nanoseconds() / 1000;
  unsigned neighbour = setting("GPUPERF_STUB_NEIGHBOUR", 0);
  unsigned percent = setting("GPUPERF_STUB_NEIGHBOUR_PERCENT", 0), room = *count;
  (void)handle;
  if (getenv("GPUPERF_STUB_NO_SAMPLES"))
    return NOT_SUPPORTED;
  if (now_us <= since_us)
    return NOT_FOUND;
  *count = (used_bytes() > 0) + (neighbour && percent);
  if (!*count)
    return NOT_FOUND;
  if (!samples || room < *count)
    return TOO_SMALL;
  if (used_bytes() > 0)
    *samples++ = (struct sample){(unsigned)getpid(), now_us, 100, 0, 0, 0};
  if (neighbour && percent)
    *samples = (struct sample){neighbour, now_us, percent, 0, 0, 0};
  return SUCCESS;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
  (void)handle;
  memory->total = bytes_in(getenv("GPUPERF_STUB_MEMORY"), chosen_model()->bytes);
  memory->used = used_bytes();
  memory->available = memory->total - memory->used;
  return SUCCESS;
}
