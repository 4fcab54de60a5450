/* Threads that map, unmap, move, fork, close, advise and truncate, and check each byte that they look at.
 *
 *     stress FOLDER SECONDS THREADS
 *
 * Built by the test `stress_under_a_sanitizer`, plain and with -fsanitize=address: whatever the library in this process does wrong
 * to its memory, the sanitizer or valgrind says so. Ends with 0, or says what was wrong and ends with 1. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 256

static const char *folder;
static time_t until;

static void wrong(const char *what) {
    fprintf(stderr, "stress: %s\n", what);
    _exit(1);
}

static uint64_t word(unsigned id, unsigned page) { return id * 1000003u + page * 7919u + 1; }

static void check(const volatile char *at, unsigned id, unsigned page) {
    if (*(const volatile uint64_t *)(at + (size_t)page * PAGE) != word(id, page)) wrong("a page holds other bytes");
}

static void fill(int fd, unsigned id) {
    char *page = malloc(PAGE);
    for (unsigned i = 0; i < PAGES; i++) {
        memset(page, (int)i, PAGE);
        *(uint64_t *)page = word(id, i);
        if (pwrite(fd, page, PAGE, (off_t)i * PAGE) != PAGE) wrong("a file cannot be written");
    }
    free(page);
}

static void *one(void *number) {
    unsigned id = (unsigned)(uintptr_t)number, seed = id * 77 + 1;
    char name[4096];
    snprintf(name, sizeof name, "%s/stress-%u", folder, id);
    int made = open(name, O_RDWR | O_CREAT, 0600);
    if (made < 0) wrong("a file cannot be made");
    fill(made, id);
    close(made);
    while (time(NULL) < until) {
        int fd = open(name, O_RDWR);
        char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, rand_r(&seed) % 2 ? MAP_SHARED : MAP_PRIVATE, fd, 0);
        if (at == MAP_FAILED) wrong("a file cannot be mapped");
        if (rand_r(&seed) % 2) close(fd), fd = -1;
        switch (rand_r(&seed) % 7) {
        case 0:
            for (unsigned i = 0; i < PAGES; i++) check(at, id, i);
            break;
        case 1: /* a hole */
            munmap(at + 64 * PAGE, 32 * PAGE);
            for (unsigned i = 0; i < PAGES; i += 3)
                if (i < 64 || i >= 96) check(at, id, i);
            break;
        case 2: { /* elsewhere */
            char *to = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            at = mremap(at, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            for (unsigned i = 0; i < PAGES; i += 7) check(at, id, i);
            break;
        }
        case 3: { /* a child sees the same */
            pid_t child = fork();
            if (child == 0) {
                for (unsigned i = 0; i < PAGES; i += 5) check(at, id, i);
                _exit(0);
            }
            int status;
            if (waitpid(child, &status, 0) != child || status != 0) wrong("a child saw other bytes, or died");
            break;
        }
        case 4: { /* advice of its own, and backwards */
            static const int advice[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED};
            madvise(at, PAGES * PAGE, advice[rand_r(&seed) % 4]);
            for (unsigned i = PAGES; i-- > 0;) check(at, id, i);
            break;
        }
        case 5: { /* a copy through the heap, by read and by FILE */
            char *copy = malloc(PAGES * PAGE);
            FILE *file = fopen(name, "r");
            if (!file || fread(copy, PAGE, PAGES, file) != PAGES) wrong("a file cannot be read");
            for (unsigned i = 0; i < PAGES; i++) check(copy, id, i);
            fclose(file);
            free(copy);
            break;
        }
        default: { /* shorter, gone, and longer again */
            char other[4120];
            snprintf(other, sizeof other, "%s-x", name);
            int cut = open(other, O_RDWR | O_CREAT | O_TRUNC, 0600);
            fill(cut, id + 500);
            char *part = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, cut, 0);
            if (ftruncate(cut, PAGES / 2 * PAGE) != 0) wrong("a file cannot be cut");
            unlink(other);
            for (unsigned i = 0; i < PAGES / 2; i += 9) check(part, id + 500, i);
            munmap(part, PAGES * PAGE);
            close(cut);
        }
        }
        munmap(at, PAGES * PAGE);
        if (fd >= 0) {
            posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
            close(fd);
        }
    }
    unlink(name);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) return 64;
    folder = argv[1];
    until = time(NULL) + atoi(argv[2]);
    int first = dup(0), threads = atoi(argv[3]);
    close(first);
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    for (int i = 0; i < threads; i++) pthread_create(&all[i], NULL, one, (void *)(uintptr_t)i);
    for (int i = 0; i < threads; i++) pthread_join(all[i], NULL);
    free(all);
    int last = dup(0);
    if (last > first + 8) wrong("descriptors are left open");
    return 0;
}
