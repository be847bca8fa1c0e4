// The kernel beside, one thread after the other.
struct Place { int x, y; };
static Place blockIdx, blockDim, threadIdx;
#define __global__
#include "matrix_product.cu"

extern "C" void launch(const float *left, const float *right, float *result, int width)
{
    blockDim = {16, 16};
    int blocks = (width + 15) / 16;
    for (blockIdx.y = 0; blockIdx.y < blocks; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
            for (threadIdx.y = 0; threadIdx.y < 16; ++threadIdx.y)
                for (threadIdx.x = 0; threadIdx.x < 16; ++threadIdx.x)
                    product(left, right, result, width);
}
