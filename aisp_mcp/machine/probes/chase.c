/* Pointer chase and read bandwidth over working sets, one thread. argv: set sizes in bytes. One line per set:
   bytes, nanoseconds per dependent load, bytes per second of a sequential read. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LINE = 64 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static uint64_t state = 0x9E3779B97F4A7C15ull;
static uint64_t random64(void) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* One cycle through all lines in random order (Sattolo), so that no prefetcher can follow. */
static void **link_lines(char *memory, size_t lines) {
    uint32_t *order = malloc(lines * sizeof *order);
    if (!order) return NULL;
    for (size_t i = 0; i < lines; i++) order[i] = (uint32_t)i;
    for (size_t i = lines - 1; i > 0; i--) {
        size_t j = random64() % i;
        uint32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(memory + (size_t)order[i] * LINE) = memory + (size_t)order[(i + 1) % lines] * LINE;
    free(order);
    return (void **)memory;
}

static double latency(void **start, size_t lines) {
    size_t steps = lines < 200000 ? 400000 : 2 * lines;
    if (steps > 4000000) steps = 4000000;
    void **at = start;
    for (size_t i = 0; i < lines && i < 1000000; i++) at = (void **)*at; /* warm */
    double begin = now();
    for (size_t i = 0; i < steps; i++) at = (void **)*at;
    double spent = now() - begin;
    if (at == NULL) puts("never"); /* keeps the chain alive */
    return spent / steps * 1e9;
}

static double bandwidth(const char *memory, size_t bytes) {
    const uint64_t *words = (const uint64_t *)memory;
    size_t count = bytes / 8, passes = 1 + (256u << 20) / bytes;
    volatile uint64_t sink;
    double begin = now();
    for (size_t p = 0; p < passes; p++) {
        uint64_t s0 = p, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;
        for (size_t i = 0; i + 8 <= count; i += 8) {
            s0 ^= words[i], s1 ^= words[i + 1], s2 ^= words[i + 2], s3 ^= words[i + 3];
            s4 ^= words[i + 4], s5 ^= words[i + 5], s6 ^= words[i + 6], s7 ^= words[i + 7];
        }
        sink = s0 ^ s1 ^ s2 ^ s3 ^ s4 ^ s5 ^ s6 ^ s7;
    }
    (void)sink;
    return (double)bytes * passes / (now() - begin);
}

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoull(argv[i], NULL, 10) / LINE * LINE;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (bytes < LINE || memory == MAP_FAILED) return 1;
        madvise(memory, bytes, MADV_HUGEPAGE); /* otherwise the TLB, not the cache, is measured */
        memset(memory, 1, bytes);
        void **start = link_lines(memory, bytes / LINE);
        if (!start) return 1;
        double ns = latency(start, bytes / LINE);
        printf("%zu %.4f %.6g\n", bytes, ns, bandwidth(memory, bytes));
        fflush(stdout);
        munmap(memory, bytes);
    }
    return 0;
}
