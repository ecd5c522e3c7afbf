/* The driver itself: builds, launches and changes graphs with the calls that graphdsl makes, and nothing else.
 *
 *     peer CUBIN ENTRY < cases
 *
 * A case is one line of numbers: nodes, edges, seconds, least and most samples, and for each edge two node indices.
 * The answer is one line of JSON: for each metric its samples, in microseconds. The kernel is that of
 * graphdsl/bench/kernel.py, whose array argument is seven words in Numba's convention.
 */
#include <cuda.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ELEMENTS = 64, THREADS = 32, LAUNCHES = 100, MOST_SAMPLES = 1000, METRICS = 16 };

#define CHECK(call)                                                            \
    do {                                                                       \
        CUresult result_ = (call);                                             \
        if (result_ != CUDA_SUCCESS) fail(#call, result_);                     \
    } while (0)

static void fail(const char *call, CUresult result)
{
    const char *name = "unknown";
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", call, name);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * t.tv_sec + 1e-3 * t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* What reading the clock twice takes. */
static double clock_cost(void)
{
    double costs[101];
    for (int i = 0; i < 101; i++) {
        double start = now();
        costs[i] = now() - start;
    }
    qsort(costs, 101, sizeof *costs, by_value);
    return costs[50];
}

static void *allocate(size_t count, size_t size)
{
    void *found = calloc(count ? count : 1, size);
    if (!found) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return found;
}

/* Samples */

typedef struct {
    const char *name;
    int count;
    double samples[MOST_SAMPLES];
} Metric;

static Metric metrics[METRICS];

static void note(const char *name, double microseconds)
{
    Metric *metric = metrics;
    while (metric->name && metric->name != name) metric++;
    metric->name = name;
    if (metric->count < MOST_SAMPLES) metric->samples[metric->count++] = microseconds;
}

static void print_metrics(void)
{
    printf("{");
    for (Metric *metric = metrics; metric->name; metric++) {
        printf("%s\"%s\": [", metric == metrics ? "" : ", ", metric->name);
        for (int i = 0; i < metric->count; i++) printf("%s%.3f", i ? ", " : "", metric->samples[i]);
        printf("]");
        *metric = (Metric){0};
    }
    printf("}\n");
    fflush(stdout);
}

/* How long to go on: `least` rounds, then until the time is over or there are `most`. */

typedef struct {
    double seconds;
    int least, most;
} Budget;

static int goes_on(Budget budget, int round, double start)
{
    return round < budget.most && (round < budget.least || now() - start < 1e6 * budget.seconds);
}

/* Operands of the kernel */

static CUdeviceptr x;
static uint64_t array[7];
static float gain = 1;
static int32_t n = THREADS;
static void *pointers[9];

static void make_operands(void)
{
    CHECK(cuMemAlloc(&x, 4 * ELEMENTS));
    uint64_t words[7] = {0, 0, ELEMENTS, 4, x, ELEMENTS, 4}; /* meminfo, parent, size, item size, data, shape, stride */
    for (int i = 0; i < 7; i++) {
        array[i] = words[i];
        pointers[i] = &array[i];
    }
    pointers[7] = &gain;
    pointers[8] = &n;
}

/* Graphs */

typedef struct {
    size_t node_count, edge_count;
    int *pairs;
    CUgraphNode *nodes, *before, *after;
} Case;

static CUstream stream;

static CUgraph emit(const Case *given, const CUDA_KERNEL_NODE_PARAMS *params)
{
    CUgraph graph;
    CHECK(cuGraphCreate(&graph, 0));
    for (size_t i = 0; i < given->node_count; i++)
        CHECK(cuGraphAddKernelNode(&given->nodes[i], graph, NULL, 0, params));
    for (size_t i = 0; i < given->edge_count; i++) {
        given->before[i] = given->nodes[given->pairs[2 * i]];
        given->after[i] = given->nodes[given->pairs[2 * i + 1]];
    }
    if (given->edge_count)
        CHECK(cuGraphAddDependencies(graph, given->before, given->after, NULL, given->edge_count));
    return graph;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CHECK(cuGraphInstantiateWithParams(&exec, graph, &params));
    return exec;
}

static void require_sum(float expected)
{
    float found;
    CHECK(cuMemcpyDtoH(&found, x, sizeof found));
    if (found != expected) {
        fprintf(stderr, "the graph was launched and gave %g, and should have given %g\n", found, expected);
        exit(1);
    }
}

/* Builds, launches once and checks the result. */
static CUgraphExec build(const Case *given, const CUDA_KERNEL_NODE_PARAMS *params, int noted, CUgraph *graph)
{
    CHECK(cuMemsetD32(x, 0, ELEMENTS));
    CHECK(cuCtxSynchronize());
    double start = now();
    *graph = emit(given, params);
    double emitted = now();
    CUgraphExec exec = instantiate(*graph);
    double instantiated = now();
    CHECK(cuGraphUpload(exec, stream));
    double uploaded = now();
    CHECK(cuStreamSynchronize(stream));
    double ready = now();
    CHECK(cuGraphLaunch(exec, stream));
    double launched = now();
    CHECK(cuStreamSynchronize(stream));
    double done = now();
    require_sum(given->node_count);
    if (noted) {
        note("emit", emitted - start);
        note("instantiation", instantiated - emitted);
        note("upload_api_time", uploaded - instantiated);
        note("first_launch_api", launched - ready);
        note("first_launch_total", done - ready);
    }
    return exec;
}

static void destroy(CUgraphExec exec, CUgraph graph)
{
    CHECK(cuGraphExecDestroy(exec));
    CHECK(cuGraphDestroy(graph));
}

static void measure_launches(CUgraphExec exec, Budget budget)
{
    double cost = clock_cost();
    double start = now();
    for (int round = -3; goes_on(budget, round, start); round++) { /* the first three are the warm-up */
        double begin = now();
        CHECK(cuGraphLaunch(exec, stream));
        double launched = now();
        CHECK(cuStreamSynchronize(stream));
        double done = now();
        if (round < 0) continue;
        note("repeat_launch_api", launched - begin - cost);
        note("repeat_launch_total", done - begin - cost);
    }
}

/* Time on the device alone: the stream waits for a word in host memory until all is queued. */
static void measure_device(CUgraphExec exec, Budget budget)
{
    volatile uint32_t *gate;
    CUdeviceptr gate_address;
    CUevent begin, end;
    CHECK(cuMemHostAlloc((void **)&gate, sizeof *gate, CU_MEMHOSTALLOC_DEVICEMAP));
    CHECK(cuMemHostGetDevicePointer(&gate_address, (void *)gate, 0));
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    double start = now();
    for (int round = 0; goes_on(budget, round, start); round++) {
        *gate = 0;
        CHECK(cuStreamWaitValue32(stream, gate_address, 1, CU_STREAM_WAIT_VALUE_GEQ));
        CHECK(cuEventRecord(begin, stream));
        CHECK(cuGraphLaunch(exec, stream));
        CHECK(cuEventRecord(end, stream));
        *gate = 1;
        CHECK(cuStreamSynchronize(stream));
        float milliseconds;
        CHECK(cuEventElapsedTime(&milliseconds, begin, end));
        note("repeat_launch_device", 1e3 * milliseconds);
    }
    CHECK(cuEventDestroy(begin));
    CHECK(cuEventDestroy(end));
    CHECK(cuMemFreeHost((void *)gate));
}

/* Launches into the stream without a graph: many in a row, but not so many that its queue is full. */
static void measure_stream(CUkernel kernel, Budget budget)
{
    double start = now();
    for (int round = -1; goes_on(budget, round, start); round++) { /* the first is the warm-up */
        double begin = now();
        for (int i = 0; i < LAUNCHES; i++)
            CHECK(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, THREADS, 1, 1, 0, stream, pointers, NULL));
        double launched = now();
        CHECK(cuStreamSynchronize(stream));
        if (round >= 0) note("stream_launch", (launched - begin) / LAUNCHES);
    }
}

/* One argument of every node is changed, and with `blocks` other than 1 their grids, too, back and forth. */
static void update(const Case *given, CUgraphExec exec, CUDA_KERNEL_NODE_PARAMS *params, unsigned blocks)
{
    gain = gain == 1 ? 2 : 1;
    params->gridDimX = params->gridDimX == 1 ? blocks : 1;
    for (size_t i = 0; i < given->node_count; i++)
        CHECK(cuGraphExecKernelNodeSetParams(exec, given->nodes[i], params));
}

/* A sample holds enough updates for the clock to be precise. */
static void measure_updates(const char *metric, const Case *given, CUgraphExec exec,
                            const CUDA_KERNEL_NODE_PARAMS *given_params, unsigned blocks, Budget budget)
{
    CUDA_KERNEL_NODE_PARAMS params = *given_params;
    int calls = 1;
    for (double taken = 0; taken < 20; calls *= 2) {
        double begin = now();
        for (int i = 0; i < 2 * calls; i++) update(given, exec, &params, blocks);
        taken = now() - begin;
    }
    double start = now();
    for (int round = 0; goes_on(budget, round, start); round++) {
        double begin = now();
        for (int i = 0; i < calls; i++) update(given, exec, &params, blocks);
        note(metric, (now() - begin) / calls);
    }
    gain = 1;
}

static void measure(const Case *given, const CUDA_KERNEL_NODE_PARAMS *params, Budget budget)
{
    CUgraph graph;
    CUgraphExec exec = build(given, params, 0, &graph); /* the warm-up */
    double start = now();
    for (int round = 0; goes_on(budget, round, start); round++) {
        destroy(exec, graph);
        exec = build(given, params, 1, &graph);
    }
    measure_launches(exec, budget);
    measure_device(exec, budget);
    if (given->node_count == 1) measure_stream(params->kern, budget);
    measure_updates("update", given, exec, params, 1, budget);
    measure_updates("update_grid", given, exec, params, 2, budget);
    destroy(exec, graph);
    print_metrics();
}

static int read_case(Case *given, Budget *budget)
{
    if (scanf("%zu %zu %lf %d %d", &given->node_count, &given->edge_count, &budget->seconds, &budget->least,
              &budget->most) != 5)
        return 0;
    given->pairs = allocate(2 * given->edge_count, sizeof *given->pairs);
    given->nodes = allocate(given->node_count, sizeof *given->nodes);
    given->before = allocate(given->edge_count, sizeof *given->before);
    given->after = allocate(given->edge_count, sizeof *given->after);
    for (size_t i = 0; i < 2 * given->edge_count; i++)
        if (scanf("%d", &given->pairs[i]) != 1) return 0;
    return 1;
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    CUlibrary library;
    CUkernel kernel;
    if (argc != 3) {
        fprintf(stderr, "usage: peer CUBIN ENTRY < cases\n");
        return 2;
    }
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuLibraryLoadFromFile(&library, argv[1], NULL, NULL, 0, NULL, NULL, 0));
    CHECK(cuLibraryGetKernel(&kernel, library, argv[2]));
    make_operands();
    CUDA_KERNEL_NODE_PARAMS params = {
        .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1,
        .kernelParams = pointers, .kern = kernel, .ctx = context,
    };
    Case given;
    Budget budget;
    while (read_case(&given, &budget)) {
        measure(&given, &params, budget);
        free(given.pairs);
        free(given.nodes);
        free(given.before);
        free(given.after);
    }
    return 0;
}
