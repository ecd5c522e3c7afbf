// Kernels that launch work or change nodes from the device. Apart from the others, because loading them starts the
// device runtime.
#include <cuda_device_runtime_api.h>

extern "C" {

__global__ void put_later(int *out, int value) { *out = value; }

__global__ void launch_kernel(int *out, int value) { put_later<<<1, 1>>>(out, value); }

// out[0] counts the launches that were accepted, out[1] is the first code that was not 0. The streams are, by number:
// fire and forget, tail, sibling, and an ordinary one.
__global__ void launch_graphs(int *out, cudaGraphExec_t *graphs, int count, int stream) {
  cudaStream_t streams[] = {cudaStreamGraphFireAndForget, cudaStreamGraphTailLaunch,
                            cudaStreamGraphFireAndForgetAsSibling, 0};
  for (int i = 0; i < count; ++i) {
    cudaError_t code = cudaGraphLaunch(graphs[i], streams[stream]);
    if (code == cudaSuccess) {
      ++out[0];
    } else if (out[1] == 0) {
      out[1] = code;
    }
  }
}

// out[0] counts the runs; the codes of the launches that the first of them makes follow.
__global__ void launch_self(int *out, int times) {
  if (atomicAdd(out, 1) == 0) {
    for (int i = 0; i < times; ++i) {
      out[1 + i] = cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch);
    }
  }
}

__global__ void set_enabled(int *out, cudaGraphDeviceNode_t node, int enabled) {
  *out = cudaGraphKernelNodeSetEnabled(node, enabled != 0);
}
}
