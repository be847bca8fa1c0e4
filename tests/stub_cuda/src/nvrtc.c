/* libnvrtc: compiles everything to nothing; a kernel has the name that it is asked for by. */
#include "stub.h"
#include <string.h>

#define IMAGE_BYTES 16

EXPORT int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return 0;
}
static int image_size(size_t *bytes) {
  *bytes = IMAGE_BYTES;
  return 0;
}
static int image(char *out) {
  memset(out, 0, IMAGE_BYTES);
  return 0;
}
EXPORT int nvrtcGetCUBINSize(void *program, size_t *bytes) {
  return (void)program, image_size(bytes);
}
EXPORT int nvrtcGetPTXSize(void *program, size_t *bytes) {
  return (void)program, image_size(bytes);
}
EXPORT int nvrtcGetCUBIN(void *program, char *out) { return (void)program, image(out); }
EXPORT int nvrtcGetPTX(void *program, char *out) { return (void)program, image(out); }
EXPORT int nvrtcGetProgramLogSize(void *program, size_t *bytes) {
  (void)program;
  *bytes = 1;
  return 0;
}
EXPORT int nvrtcGetProgramLog(void *program, char *out) {
  (void)program;
  *out = 0;
  return 0;
}
EXPORT int nvrtcGetLoweredName(void *program, const char *expression, const char **name) {
  (void)program;
  *name = strdup(expression);
  return 0;
}
