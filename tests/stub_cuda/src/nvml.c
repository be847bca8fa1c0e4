/* libnvidia-ml: boards as torch and nvidia-ml-py ask for them. */
#define _GNU_SOURCE
#include "models.h"
#include <dlfcn.h>
#include <stdio.h>
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
EXPORT int nvmlDeviceGetClockInfo(void *handle, int kind, unsigned *mhz) {
  (void)handle, (void)kind;
  return number(mhz, setting("GPUPERF_STUB_MHZ", (unsigned)chosen_model()->mhz));
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

/* Processes: this one, where it made a context. Others cannot be seen. */

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
  unsigned room = *count;
  (void)handle;
  *count = used > 0;
  if (!used)
    return SUCCESS;
  if (!processes || !room)
    return TOO_SMALL;
  processes[0] = (struct process){(unsigned)getpid(), used, ~0u, ~0u};
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
EXPORT int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory) {
  (void)handle;
  memory->total = bytes_in(getenv("GPUPERF_STUB_MEMORY"), chosen_model()->bytes);
  memory->used = used_bytes();
  memory->available = memory->total - memory->used;
  return SUCCESS;
}
