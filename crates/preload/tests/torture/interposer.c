// Another preloaded library: its malloc, and its constructor, read files before anybody else is ready.
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/mman.h>
#include <time.h>

static int depth;
static size_t bytes_read;

static void look(void) {
    char a[100];
    int fd = open("data", O_RDONLY);
    bytes_read += read(fd, a, 100);
    bytes_read += pread(fd, a, 100, 5000);
    lseek(fd, 10, SEEK_SET);
    close(fd);
}

void *malloc(size_t n) {
    static void *(*next)(size_t);
    if (depth++ == 0) look();
    depth--;
    if (!next) next = dlsym(RTLD_NEXT, "malloc");
    return next(n);
}

// A clock of its own, as those that play with time have it, that reads as well.
int clock_gettime(clockid_t clock, struct timespec *t) {
    if (depth++ == 0) look();
    depth--;
    *t = (struct timespec){1, 0};
    return 0;
}

__attribute__((constructor)) static void begin(void) {
    char line[100];
    look();
    FILE *f = fopen("data", "r");
    if (f && fgets(line, sizeof line, f)) bytes_read++;
    if (f) fclose(f);
}

__attribute__((destructor)) static void end(void) { look(); }
