// Another preloaded library behind ours: its reads take their time, as those of pages that went away do.
#include <dlfcn.h>
#include <unistd.h>

ssize_t read(int fd, void *to, size_t len) {
    static ssize_t (*next)(int, void *, size_t);
    if (!next) next = dlsym(RTLD_NEXT, "read");
    usleep(100);
    return next(fd, to, len);
}

ssize_t pread(int fd, void *to, size_t len, off_t at) {
    static ssize_t (*next)(int, void *, size_t, off_t);
    if (!next) next = dlsym(RTLD_NEXT, "pread");
    usleep(100);
    return next(fd, to, len, at);
}
