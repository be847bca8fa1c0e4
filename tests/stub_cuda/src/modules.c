/* libcuda, modules: kernels that NVRTC and Triton compiled.
 *
 * ptxas comes with Triton, so its machine code is the real one: it says how many registers,
 * and how much shared and local memory a kernel takes, which decides what Inductor does.
 */
#define _GNU_SOURCE
#include "stub.h"
#include <cuda.h>
#include <cupti_driver_cbid.h>
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define REGISTERS 32 /* of a kernel of which there is no machine code */
#define SM_REGISTERS 65536
#define SM_THREADS 2048
#define SM_BLOCKS 32

/* Entries of .nv.info: the number of a symbol, and its registers or its bytes of stack. */
#define REGISTER_COUNT 0x2f04
#define FRAME_BYTES 0x1104 /* what the registers have no room for is there */

struct CUfunc_st {
  const char *name;
  int registers, shared_bytes, local_bytes;
  struct CUfunc_st *next;
};
struct CUmod_st {
  struct CUfunc_st *functions;
};

static struct CUfunc_st *add_function(struct CUmod_st *module, const char *name) {
  struct CUfunc_st *made = calloc(1, sizeof *made);
  *made = (struct CUfunc_st){strdup(name), REGISTERS, 0, 0, module->functions};
  return module->functions = made;
}

/* Machine code is an ELF file, with sections for each kernel. */
struct code {
  const char *image, *names;
  const Elf64_Shdr *sections;
  size_t count;
};

static struct code code_at(const void *image) {
  const Elf64_Ehdr *head = image;
  const Elf64_Shdr *sections = (const Elf64_Shdr *)((const char *)image + head->e_shoff);
  return (struct code){image, (const char *)image + sections[head->e_shstrndx].sh_offset,
                       sections, head->e_shnum};
}

/* The section with the name *before* and then *name*, or NULL. */
static const Elf64_Shdr *section(const struct code *code, const char *before,
                                 const char *name) {
  size_t length = strlen(before);
  for (size_t i = 0; i < code->count; i++) {
    const char *own = code->names + code->sections[i].sh_name;
    if (!strncmp(own, before, length) && !strcmp(own + length, name))
      return &code->sections[i];
  }
  return NULL;
}

static const char *symbol_name(const struct code *code, uint32_t number) {
  const Elf64_Shdr *table = section(code, ".symtab", "");
  const Elf64_Sym *symbols = (const Elf64_Sym *)(code->image + table->sh_offset);
  return code->image + code->sections[table->sh_link].sh_offset + symbols[number].st_name;
}

static int info_of(const struct code *code, uint16_t kind, const char *name) {
  const Elf64_Shdr *info = section(code, ".nv.info", "");
  const char *at = info ? code->image + info->sh_offset : NULL;
  for (const char *end = info ? at + info->sh_size : NULL; at < end;) {
    const uint16_t *entry = (const uint16_t *)at; /* its kind, and its bytes or its value */
    const uint32_t *pair = (const uint32_t *)(at + 4);
    if (*entry == kind && !strcmp(symbol_name(code, pair[0]), name))
      return (int)pair[1];
    at += 4 + ((*entry & 0xff) == 4 ? entry[1] : 0);
  }
  return 0;
}

static void read_kernels(struct CUmod_st *module, const void *image) {
  const struct code code = code_at(image);
  for (size_t i = 0; i < code.count; i++) {
    const char *own = code.names + code.sections[i].sh_name;
    if (strncmp(own, ".text.", 6))
      continue;
    struct CUfunc_st *kernel = add_function(module, own + 6);
    const Elf64_Shdr *shared = section(&code, ".nv.shared.", kernel->name);
    kernel->registers = info_of(&code, REGISTER_COUNT, kernel->name);
    kernel->shared_bytes = shared ? (int)shared->sh_size : 0;
    kernel->local_bytes = info_of(&code, FRAME_BYTES, kernel->name);
  }
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  *module = calloc(1, sizeof **module);
  if (!memcmp(image, ELFMAG, SELFMAG))
    read_kernels(*module, image);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned count,
                                   CUjit_option *options, void **values) {
  (void)count, (void)options, (void)values;
  return cuModuleLoadData(module, image);
}
EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path) {
  struct stat file;
  int opened = open(path, O_RDONLY | O_CLOEXEC);
  if (opened < 0 || fstat(opened, &file))
    return CUDA_ERROR_FILE_NOT_FOUND;
  void *image = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, opened, 0);
  close(opened);
  CUresult result = cuModuleLoadData(module, image);
  munmap(image, (size_t)file.st_size);
  return result;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  struct CUfunc_st *found = module->functions;
  while (found && strcmp(found->name, name))
    found = found->next;
  *function = found ? found : add_function(module, name);
  return CUDA_SUCCESS;
}
/* Graphs and traces still have the names: they stay. */
EXPORT CUresult cuModuleUnload(CUmodule module) {
  free(module);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetAttribute(int *value, CUfunction_attribute which,
                                   CUfunction function) {
  *value = which == CU_FUNC_ATTRIBUTE_NUM_REGS                ? function->registers
           : which == CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES     ? function->shared_bytes
           : which == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES      ? function->local_bytes
           : which == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
                                                              : 0;
  return CUDA_SUCCESS;
}

static int at_most(int number, int most) { return number < most ? number : most; }

EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function,
                                                            int threads, size_t shared) {
  size_t bytes = shared + (size_t)function->shared_bytes + 1024;
  int fit = at_most(SM_BLOCKS, SM_THREADS / (threads > 0 ? threads : SM_THREADS));
  if (threads > 0 && function->registers > 0)
    fit = at_most(fit, SM_REGISTERS / (threads * function->registers));
  *blocks = at_most(fit, (int)(stub_model()->shared_bytes / bytes));
  return CUDA_SUCCESS;
}
/* As many as the blocks that fit on all SMs make. */
EXPORT CUresult cuOccupancyMaxActiveClusters(int *clusters, CUfunction function,
                                             const CUlaunchConfig *config) {
  unsigned blocks_of_one = 1;
  int fit, threads = (int)(config->blockDimX * config->blockDimY * config->blockDimZ);
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      blocks_of_one = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
                      config->attrs[i].value.clusterDim.z;
  cuOccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, threads, config->sharedMemBytes);
  *clusters = fit * stub_model()->sms / (int)(blocks_of_one ? blocks_of_one : 1);
  return CUDA_SUCCESS;
}

EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared, CUstream stream,
                               void **arguments, void **extra) {
  (void)arguments, (void)extra;
  const struct stub_launch launch = {function->name,
                                     stream,
                                     CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel,
                                     "cuLaunchKernel",
                                     {grid_x, grid_y, grid_z},
                                     {block_x, block_y, block_z},
                                     shared};
  stub_driver_launch(&launch);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function,
                                 void **arguments, void **extra) {
  (void)arguments, (void)extra;
  const struct stub_launch launch = {
      function->name,
      config->hStream,
      CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx,
      "cuLaunchKernelEx",
      {config->gridDimX, config->gridDimY, config->gridDimZ},
      {config->blockDimX, config->blockDimY, config->blockDimZ},
      config->sharedMemBytes};
  stub_driver_launch(&launch);
  return CUDA_SUCCESS;
}
