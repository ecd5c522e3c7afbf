/* A profiler for tests: what NVTX loads when NVTX_INJECTION64_PATH names it. It writes a line to the file that
   NVTX_TOOL_OUT names for each range that begins, as deep as it stands. The numbers are those of NVTX 3. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLBACKS = 1, CORE2 = 5, PUSH = 4, POP = 5, REGISTER_STRING = 10, DOMAIN_CREATE = 12, REGISTERED = 3 };

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const char *message;
} Attributes;

typedef struct {
    size_t size;
    int (*table)(int module, void ****table, unsigned *size);
} Callbacks;

static FILE *out;
static int depth;

static void *domain_create(const char *name) { return strdup(name); }
static void *register_string(void *domain, const char *text) { (void)domain; return strdup(text); }

static int push(void *domain, const Attributes *attributes) {
    const char *text = attributes->message_type == REGISTERED ? attributes->message : "?";
    fprintf(out, "%s %d %s\n", (const char *)domain, depth, text);
    fflush(out);
    return depth++;
}

static int pop(void *domain) { (void)domain; return --depth; }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const Callbacks *callbacks = export_table(CALLBACKS);
    void ***table;
    unsigned size;
    out = fopen(getenv("NVTX_TOOL_OUT"), "w");
    if (!out || !callbacks->table(CORE2, &table, &size) || size <= DOMAIN_CREATE) return 0;
    *table[PUSH] = (void *)push;
    *table[POP] = (void *)pop;
    *table[REGISTER_STRING] = (void *)register_string;
    *table[DOMAIN_CREATE] = (void *)domain_create;
    return 1;
}
