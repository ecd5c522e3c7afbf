// The kernels that the trials launch. What a kernel saw is written where its first argument points.
#include <cooperative_groups.h>
#include <cuda_device_runtime_api.h>

__device__ long long now() {
  long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

__device__ void wait_for(long long nanoseconds) {
  for (long long start = now(); now() - start < nanoseconds;) {
  }
}

template <int bytes>
struct Block {
  int *out;
  char rest[bytes - 8];
};

extern "C" {

__global__ void put(int *out, int value) { *out = value; }

__global__ void put_sum(int *out, int value, int more) { *out = value + more; }

__global__ void add(int *out, int value) { atomicAdd(out, value); }

// out[0] counts, and the values follow in the order in which they came.
__global__ void append(int *out, int value) { out[1 + atomicAdd(out, 1)] = value; }

__global__ void nothing() {}

__global__ void fault() { *(volatile int *)8 = 1; }

__global__ void __launch_bounds__(128) bounded(int *out) { *out = 1; }

__global__ void shared_1024(int *out) {
  __shared__ int fixed[256];
  extern __shared__ int more[];
  fixed[threadIdx.x] = 1;
  more[0] = fixed[threadIdx.x];
  *out = more[0];
}

__global__ void block_4096(Block<4096> block) { *block.out = block.rest[4087]; }

__global__ void block_4104(Block<4104> block) { *block.out = block.rest[4095]; }

__global__ void block_32760(Block<32760> block) { *block.out = block.rest[32751]; }

// How it was launched: cluster width, whether grid-wide barriers work, grid width, whether a cluster was asked for.
__device__ void write_shape(int *out) {
  unsigned cluster, asked;
  asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(cluster));
  asm volatile("{.reg .pred q; mov.pred q, %%is_explicit_cluster; selp.u32 %0, 1, 0, q;}" : "=r"(asked));
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    out[0] = cluster;
    out[1] = cooperative_groups::this_grid().is_valid();
    out[2] = gridDim.x;
    out[3] = asked;
  }
}

__global__ void shape(int *out) { write_shape(out); }

__global__ void __cluster_dims__(2, 1, 1) shape_of_pairs(int *out) { write_shape(out); }

__global__ void grid_sync(int *out) {
  cooperative_groups::this_grid().sync();
  if (blockIdx.x == 0 && threadIdx.x == 0) *out = 7;
}

// times[0] is when the first kernel ended, times[1] when the second began, times[2] when it had waited.
__global__ void triggering(long long *times, int nanoseconds) {
  asm volatile("griddepcontrol.launch_dependents;");
  wait_for(nanoseconds);
  times[0] = now();
}

__global__ void busy(long long *times, int nanoseconds) {
  wait_for(nanoseconds);
  times[0] = now();
}

__global__ void waiting(long long *times) {
  times[1] = now();
  asm volatile("griddepcontrol.wait;" ::: "memory");
  times[2] = now();
}

__global__ void unwaiting(long long *times) { times[1] = times[2] = now(); }

// times[0] and times[1] are when the first and the last of its blocks began.
__global__ void crowd(long long *times, int nanoseconds) {
  atomicMin(times, now());
  atomicMax(times + 1, now());
  wait_for(nanoseconds);
}

__global__ void interval(long long *times, int nanoseconds) {
  int at = atomicAdd((int *)times, 1);
  times[1 + 2 * at] = now();
  wait_for(nanoseconds);
  times[2 + 2 * at] = now();
}

__global__ void set_condition(cudaGraphConditionalHandle handle, unsigned value) {
  cudaGraphSetConditional(handle, value);
}

__global__ void count_down(cudaGraphConditionalHandle handle, int *left) {
  cudaGraphSetConditional(handle, --*left > 0);
}
}
