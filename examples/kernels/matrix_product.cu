// One thread an element of the result, of square matrices that lie row by row.
extern "C" __global__ void product(
    const float *left, const float *right, float *result, int width)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= width || column >= width) return;
    float sum = 0;
    for (int k = 0; k < width; ++k)
        sum += left[row * width + k] * right[k * width + column];
    result[row * width + column] = sum;
}
