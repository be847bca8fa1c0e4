/* The GPUs that can be chosen with GPUPERF_STUB_MODEL; numbers of public data sheets. */
#ifndef STUB_MODELS_H
#define STUB_MODELS_H
#include "stub.h"
#include <stdlib.h>
#include <string.h>

static const struct stub_model models[] = {
    {"h100", "NVIDIA H100 80GB HBM3", 81089 * MIB, 9, 0, 132, 1755, 1980, 700000, 233472,
     50 * MIB, 2000, 500},
    {"a100", "NVIDIA A100-SXM4-40GB", 40354 * MIB, 8, 0, 108, 1095, 1410, 400000, 167936,
     40 * MIB, 1300, 200},
    {"l4", "NVIDIA L4", 22699 * MIB, 8, 9, 58, 1530, 2040, 72000, 102400, 48 * MIB, 250, 80},
};

static inline const struct stub_model *chosen_model(void) {
  const char *key = getenv("GPUPERF_STUB_MODEL");
  for (size_t i = 0; key && i < sizeof models / sizeof *models; i++)
    if (!strcmp(models[i].key, key))
      return &models[i];
  return models;
}

/* A number of bytes, with K, M or G behind it or not; *otherwise* where none is given. */
static inline uint64_t bytes_in(const char *text, uint64_t otherwise) {
  if (!text || !*text)
    return otherwise;
  char *unit;
  double number = strtod(text, &unit);
  int shift = *unit == 'G' ? 30 : *unit == 'M' ? 20 : *unit == 'K' ? 10 : 0;
  return (uint64_t)(number * (double)(1ull << shift));
}

static inline int boards_in_machine(void) {
  const char *set = getenv("GPUPERF_STUB_DEVICES");
  int count = set ? atoi(set) : 1;
  return count < 0 ? 0 : count > MOST_DEVICES ? MOST_DEVICES : count;
}

/* A UUID that differs from board to board in its last byte, and with the text that is set. */
static inline void uuid_of(int board, unsigned char out[16]) {
  const char *set = getenv("GPUPERF_STUB_UUID");
  for (int i = 0; i < 15; i++)
    out[i] = (unsigned char)(0x11 * (i + 1));
  for (int i = 0; set && set[i]; i++)
    out[i % 15] = (unsigned char)(31 * out[i % 15] + (unsigned char)set[i]);
  out[15] = (unsigned char)board;
}

/* The UUID as NVIDIA's tools write it, with "GPU-" in front. */
static inline void uuid_text(int board, char out[48]) {
  static const char digits[] = "0123456789abcdef";
  unsigned char bytes[16];
  uuid_of(board, bytes);
  strcpy(out, "GPU-");
  char *to = out + 4;
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10)
      *to++ = '-';
    *to++ = digits[bytes[i] >> 4];
    *to++ = digits[bytes[i] & 15];
  }
  *to = 0;
}
#endif
