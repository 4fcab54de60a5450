// Reads what is cached, over and over: "cost WAY CALLS". Blocks of calls through the library take turns with blocks of
// calls past it in the same process, so that whatever else the machine does meets both. Prints the medians of both, of
// their differences and of their ratios, in ns a call. "only" makes all calls through the library, for counting.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PAGES 256
#define BLOCK 1000
#define BLOCKS_MAX 100000

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static int order(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }
static double median(double *values, long n) { qsort(values, n, sizeof *values, order); return values[n / 2]; }
static double plain[BLOCKS_MAX], steered[BLOCKS_MAX], more[BLOCKS_MAX], ratio[BLOCKS_MAX];

int main(int argc, char **argv) {
    static char a[4096];
    const char *what = argv[1];
    long calls = atol(argv[2]), blocks = calls / BLOCK;
    int fd = open("data", O_RDONLY), p[2];
    FILE *f = fopen("data", "r"), *g = fopen("data", "r");
    void *libc = dlopen("libc.so.6", RTLD_NOW);
#define BOTH(type, name) type name##_[2] = {(type)dlsym(libc, #name), name}
    BOTH(typeof(&pread), pread);
    BOTH(typeof(&read), read);
    BOTH(typeof(&fread), fread);
    BOTH(typeof(&fgets), fgets);
    BOTH(typeof(&getc), getc);
    BOTH(typeof(&close), close);
    int (*open_[2])(const char *, int, ...) = {(int (*)(const char *, int, ...))dlsym(libc, "open"), open};
    for (long i = 0; i < 257; i++) pread(fd, a, 4096, i * 4096);
    getc(f); getc(g);
    usleep(20000); // the agent hears of the file and settles it
    for (long i = 0; i < 257; i++) pread(fd, a, 4096, i * 4096);
    if (pipe(p)) return 9;
    for (long block = 0; block < blocks; block++) {
        double took[2];
        for (int turn = 0; turn < 2; turn++) {
            int by = argc > 3 || (turn ^ (block & 1)); // 1: through the library
            FILE *stream = by ? f : g;
            lseek(fd, 0, SEEK_SET);
            double began = now();
            if (!strcmp(what, "pread")) for (long i = 0; i < BLOCK; i++) pread_[by](fd, a, 4096, i % PAGES * 4096);
            else if (!strcmp(what, "pread100")) for (long i = 0; i < BLOCK; i++) pread_[by](fd, a, 100, i % PAGES * 4096);
            else if (!strcmp(what, "pread2")) for (long i = 0; i < BLOCK; i++) pread_[by](fd, a, 4096, i % PAGES * 4000);
            else if (!strcmp(what, "read")) for (long i = 0; i < BLOCK; i++) {
                if (i % PAGES == 0) lseek(fd, 0, SEEK_SET);
                read_[by](fd, a, 4096);
            } else if (!strcmp(what, "fread")) for (long i = 0; i < BLOCK; i++) {
                if (!fread_[by](a, 1, 4096, stream)) rewind(stream);
            } else if (!strcmp(what, "fread20")) for (long i = 0; i < BLOCK; i++) {
                if (!fread_[by](a, 1, 20, stream)) rewind(stream);
            } else if (!strcmp(what, "fgets")) for (long i = 0; i < BLOCK; i++) {
                if (!fgets_[by](a, 4096, stream)) rewind(stream);
            } else if (!strcmp(what, "getc")) for (long i = 0; i < BLOCK; i++) {
                if (getc_[by](stream) < 0) rewind(stream);
            } else if (!strcmp(what, "open")) for (long i = 0; i < BLOCK; i++) close_[by](open_[by]("data", O_RDONLY));
            else if (!strcmp(what, "pipe")) for (long i = 0; i < BLOCK; i++) { write(p[1], a, 10); read_[by](p[0], a, 10); }
            took[by] = (now() - began) / BLOCK;
        }
        plain[block] = took[0]; steered[block] = took[1];
        more[block] = took[1] - took[0]; ratio[block] = took[1] / took[0];
    }
    printf("%.2f %.2f %.2f %.4f\n", median(plain, blocks), median(steered, blocks), median(more, blocks), median(ratio, blocks));
    return 0;
}
