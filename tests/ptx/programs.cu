// Ordinary CUDA programs, compiled by nvcc for tests/ptx/nvcc_test.cpp.
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <mma.h>

extern "C" __global__ void reduction(const float* x, float* out, int n) {
  __shared__ float part[32];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    sum += x[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x < 32) {
    sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x == 0) atomicAdd(out, sum);
  }
}

extern "C" __global__ void transpose(const int* x, int* y, int rows, int columns) {
  __shared__ int tile[32][33];
  int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < rows && c < columns) tile[threadIdx.y + i][threadIdx.x] = x[(r + i) * columns + c];
  __syncthreads();
  c = blockIdx.y * 32 + threadIdx.x;
  r = blockIdx.x * 32 + threadIdx.y;
  for (int i = 0; i < 32; i += 8)
    if (r + i < columns && c < rows) y[(r + i) * rows + c] = tile[threadIdx.x][threadIdx.y + i];
}

extern "C" __global__ void histogram(const unsigned char* x, unsigned* bins, int n) {
  __shared__ unsigned local[256];
  local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256)
    atomicAdd(&local[x[i]], 1u);
  __syncthreads();
  atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

// Inclusive, of one block.
extern "C" __global__ void scan(const long long* x, long long* y) {
  __shared__ long long sums[2][256];
  int from = 0;
  sums[0][threadIdx.x] = x[threadIdx.x];
  for (int step = 1; step < 256; step *= 2) {
    __syncthreads();
    long long value = sums[from][threadIdx.x];
    if (threadIdx.x >= step) value += sums[from][threadIdx.x - step];
    from ^= 1;
    sums[from][threadIdx.x] = value;
  }
  y[threadIdx.x] = sums[from][threadIdx.x];
}

// 32×32 by 32×32 by four warps.
extern "C" __global__ void wmma_gemm(const half* a, const half* b, float* c) {
  using namespace nvcuda::wmma;
  int row = threadIdx.x / 64 * 16, column = threadIdx.x / 32 % 2 * 16;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.5f);
  for (int k = 0; k < 32; k += 16) {
    fragment<matrix_a, 16, 16, 16, half, row_major> x;
    fragment<matrix_b, 16, 16, 16, half, col_major> y;
    load_matrix_sync(x, a + row * 32 + k, 32);
    load_matrix_sync(y, b + column * 32 + k, 32);
    mma_sync(sum, x, y, sum);
  }
  for (int i = 0; i < sum.num_elements; ++i) sum.x[i] *= 2;
  store_matrix_sync(c + row * 32 + column, sum, 32, mem_row_major);
}

// A ring of four slots filled ahead by cp.async.
extern "C" __global__ void pipeline(const float4* x, float4* y, int steps) {
  __shared__ float4 ring[4][64];
  for (int i = 0; i < 3; ++i) {
    if (i < steps)
      __pipeline_memcpy_async(&ring[i][threadIdx.x], &x[i * 64 + threadIdx.x], sizeof(float4));
    __pipeline_commit();
  }
  for (int i = 0; i < steps; ++i) {
    __pipeline_wait_prior(2);
    __syncthreads();
    float4 v = ring[i % 4][63 - threadIdx.x];
    v.x += i;
    y[i * 64 + threadIdx.x] = v;
    if (i + 3 < steps)
      __pipeline_memcpy_async(&ring[(i + 3) % 4][threadIdx.x], &x[(i + 3) * 64 + threadIdx.x],
                              sizeof(float4));
    __pipeline_commit();
  }
}

// The bits of a warp's values, and runs of equal ones.
extern "C" __global__ void warp_functions(const unsigned* x, unsigned* y) {
  unsigned v = x[threadIdx.x];
  unsigned odd = __ballot_sync(~0u, v & 1), same = __match_any_sync(~0u, v % 4);
  unsigned most = __reduce_max_sync(~0u, v), up = __shfl_up_sync(~0u, v, 1, 8);
  bool any = __any_sync(~0u, v > 100), all = __all_sync(~0u, v < 1000);
  y[threadIdx.x] = (__popc(odd) * 31 + __ffs(same)) * 31 + most + up + any * 7 + all * 11 +
                   __clz(v) + __brev(v) % 5;
}

// Math of the library: what nvcc makes of exp, log, pow, sin, tanh, division, square roots.
extern "C" __global__ void math(const float* x, float* y, const double* u, double* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float t = x[i];
  y[i] = expf(t) + logf(fabsf(t) + 1) * sinf(t) + cosf(t * 1000) + powf(fabsf(t), 1.7f) +
         tanhf(t) + t / 3.7f + sqrtf(fabsf(t)) + __half2float(__float2half(t));
  v[i] = exp(u[i]) + log(fabs(u[i]) + 1) / 3 + sqrt(fabs(u[i])) + (long long)(u[i] * 1e6) % 1000;
}

// A lock taken by single threads, and the last block to arrive sums up.
__device__ unsigned arrived = 0;
extern "C" __global__ void last_block(unsigned* partial, unsigned* total) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = blockIdx.x * blockIdx.x;
    __threadfence();
    last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  __shared__ unsigned sum;
  if (threadIdx.x == 0) sum = 0;
  __syncthreads();
  __threadfence();
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x)
    atomicAdd(&sum, ((volatile unsigned*)partial)[i]);
  __syncthreads();
  if (threadIdx.x == 0) *total = sum;
}
