// The core alone, for whoever keeps a cache of their own in C: the program of crates/core/examples/own_cache.rs, line by line.
//
//   cargo build --profile embed -p bowwave-c
//   cc -Icrates/c/include crates/c/examples/own_cache.c target/embed/libbowwave_c.a -lpthread -ldl -lm -o own_cache

#include "bowwave.h"
#include <inttypes.h>
#include <stdio.h>

int main(void) {
    const uint64_t file = 1, device = 7, latency = 30000000; // 30 ms
    struct bowwave *brain = bowwave_new(NULL);
    bowwave_open(brain, 0, file, device, 64 << 20);
    uint64_t now = 0;
    for (uint64_t read = 0; read < 6; read++) {
        // Before a read that misses, or meets a mark (bowwave_leaf says which pages are quiet), the brain is told.
        struct bowwave_extent pages = {read * 8, 8};
        bool missing = false;
        for (uint64_t page = pages.start; page < pages.start + pages.count; page++)
            missing = missing || bowwave_resident(brain, file, page) == 0;
        bowwave_read(brain, now, file, pages, 1);
        // The reader brings the first 128 KiB that he misses himself; here that takes 30 ms. What he waited is told.
        if (missing) {
            now += latency;
            bowwave_waited(brain, now, file, pages, 1, latency);
        }
        // What is to be fetched now: send it, and tell of its arrival. A cache that evicts tells bowwave_dropped.
        struct bowwave_fetch fetch;
        while (bowwave_poll(brain, now, &fetch) == 1) {
            printf("read %" PRIu64 ": fetch [%" PRIu64 ", %" PRIu64 "), %.*s\n", read, fetch.pages.start,
                   fetch.pages.start + fetch.pages.count, (int)fetch.why_len, fetch.why);
            now += latency;
            bowwave_arrived(brain, now, fetch.id);
        }
    }
    struct bowwave_counters counters;
    bowwave_counters_read(brain, &counters);
    printf("%" PRIu64 " reads, %" PRIu64 " waited; %" PRIu64 " pages fetched ahead, %" PRIu64 " of them read\n",
           counters.reads, counters.stalls, counters.pages_ahead, counters.pages_useful);
    bowwave_free(brain);
}
