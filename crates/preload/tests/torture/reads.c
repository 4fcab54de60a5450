// Every call that reads, each once, on the file `data`. "E offset len" says which read the agent should hear of.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/stat.h>
#include <errno.h>
#include <unistd.h>

static char a[300000], b[70000];
static unsigned long sum;

static void took(const char *call, long got, const char *from) {
    for (long i = 0; i < got; i++) sum = sum * 31 + (unsigned char)from[i];
    printf("%s %ld %lu\n", call, got, sum);
}
static void expect(long offset, long len) { printf("E %ld %ld\n", offset, len); }

static void plain(void) {
    int fd = open("data", O_RDONLY);
    for (int i = 0; i < 5; i++) { expect(i * 5000, 5000); took("read", read(fd, a, 5000), a); }
    expect(100, 10); took("pread", pread(fd, a, 10, 100), a);
    expect(200000, 4096); took("pread64", pread64(fd, a, 4096, 200000), a);
    struct iovec v[2] = {{a, 1000}, {b, 2000}};
    expect(25000, 3000); took("readv", readv(fd, v, 2), a);
    expect(7, 3000); took("preadv", preadv(fd, v, 2, 7), a);
    expect(9, 3000); took("preadv2", preadv2(fd, v, 2, 9, 0), a);
    expect(28000, 3000); took("preadv2 -1", preadv2(fd, v, 2, -1, 0), a);
    volatile size_t n = 3000; // not known to the compiler: __read_chk, __pread_chk
    char room[4000];
    expect(31000, 3000); took("__read_chk", read(fd, room, n), room);
    expect(50, 3000); took("__pread_chk", pread(fd, room, n, 50), room);
    took("nothing", read(fd, a, 0), a);
    close(fd);
    fd = openat(AT_FDCWD, "data", O_RDONLY);
    expect(0, 1); took("openat", read(fd, a, 1), a);
    close(fd);
    fd = open64("data", O_RDONLY);
    expect(0, 2); took("open64", read(fd, a, 2), a);
    close(fd);
}

static void ends(void) {
    struct stat st;
    int fd = open("data", O_RDONLY);
    fstat(fd, &st);
    long end = lseek(fd, 0, SEEK_END);                   // a probe is no read
    printf("%ld\n", end);
    lseek(fd, 0, SEEK_SET);
    expect(0, 4096); took("read", read(fd, a, 4096), a);
    lseek(fd, -1000, SEEK_END);
    expect(end - 1000, 1000); took("tail", read(fd, a, 200000), a);
    took("end", read(fd, a, 200000), a);
    expect(end - 10, 10); took("pread tail", pread(fd, a, 131072, end - 10), a);
    took("pread end", pread(fd, a, 131072, end), a);
    took("pread past", pread(fd, a, 131072, end + 100000), a);
    errno = 0;
    long r = pread(fd, a, 10, -5);
    printf("negative %ld %d\n", r, errno);
    lseek(fd, 5000, SEEK_SET);
    lseek(fd, 100, SEEK_CUR);
    expect(5100, 50); took("cur", read(fd, a, 50), a);
}

static void dups(void) {
    int fd = open("data", O_RDONLY), other = dup(fd), third = 77;
    expect(0, 100); took("first", read(fd, a, 100), a);
    expect(100, 100); took("dup", read(other, a, 100), a);
    dup2(other, third);
    close(fd);
    expect(200, 100); took("dup2", read(third, a, 100), a);
    int fourth = fcntl(third, F_DUPFD_CLOEXEC, 100);
    expect(300, 100); took("F_DUPFD", read(fourth, a, 100), a);
    dup3(fourth, 120, O_CLOEXEC);
    expect(400, 100); took("dup3", read(120, a, 100), a);
    expect(500, 100); took("dup", read(other, a, 100), a);
    int own = open("data", O_RDONLY);
    expect(0, 7); took("own", read(own, a, 7), a);
    dup2(own, 0);
    close(own);
    expect(7, 7); took("stdin", read(0, a, 7), a);
}

static void forks(void) {
    int fd = open("data", O_RDONLY);
    expect(0, 1000); took("before", read(fd, a, 1000), a);
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        if (!fork()) {
            expect(1000 + i * 1500, 500); took("child", read(fd, a, 500), a);
            fflush(stdout);
            _exit(0);
        }
        int status; wait(&status);
        expect(1500 + i * 1500, 1000); took("parent", read(fd, a, 1000), a);
        fflush(stdout);
    }
}

static void borrowed(void) {
    int fd = open("data", O_RDONLY), other = open("data", O_RDONLY);
    expect(0, 1000); took("before", read(fd, a, 1000), a);
    expect(0, 100); took("other", read(other, b, 100), b);
    fflush(stdout);
    if (!vfork()) {
        lseek(fd, 5000, SEEK_SET);                       // the position is shared, the descriptors are not
        close(other);
        close(0); close(1); close(2);
        _exit(0);
    }
    int status; wait(&status);
    expect(5000, 1000); took("moved", read(fd, a, 1000), a);
    expect(100, 100); took("still open", read(other, b, 100), b);
}

static void copies(void) {
    int fd = open("data", O_RDONLY), out = open("out", O_RDWR | O_CREAT | O_TRUNC, 0600), p[2];
    off_t at = 10000;
    if (pipe(p)) exit(9);
    expect(10000, 5000); printf("sendfile %zd\n", sendfile(out, fd, &at, 5000));
    expect(0, 3000); printf("sendfile %zd\n", sendfile(out, fd, NULL, 3000));
    loff_t from = 20000;
    expect(20000, 6000); printf("copy %zd\n", copy_file_range(fd, &from, out, NULL, 6000, 0));
    expect(3000, 700); printf("copy %zd\n", copy_file_range(fd, NULL, out, NULL, 700, 0));
    expect(3700, 800); printf("splice %zd\n", splice(fd, NULL, p[1], NULL, 800, 0));
    loff_t spliced = 40000;
    expect(40000, 900); printf("splice %zd\n", splice(fd, &spliced, p[1], NULL, 900, 0));
    took("pipe", read(p[0], a, 1700), a);
    took("out", pread(out, a, 14700, 0), a);
    // What is written is not followed while it is small; a bad pointer is the kernel's to refuse.
    void *volatile bad = (void *)16, *volatile null = NULL;
    volatile int minus = -1, one = 1, two = 2, hundred = 100;
    errno = 0;
    long r = sendfile(out, fd, bad, 10);
    printf("bad %ld %d\n", r, errno);
    r = readv(fd, bad, two);
    printf("bad %ld %d\n", r, errno);
    r = readv(fd, null, one);
    printf("bad %ld %d\n", r, errno);
    struct iovec v[1] = {{a, 10}};
    r = preadv(fd, v, minus, 0);
    printf("bad %ld %d\n", r, errno);
    r = read(fd, bad, hundred);
    expect(4500, 100);
    printf("bad %ld %d\n", r, errno);
    expect(4500, 10); took("unmoved", read(fd, a, 10), a);
}

static void updates(void) {
    int fd = open("data", O_RDWR);
    expect(0, 100); took("read", read(fd, a, 100), a);
    write(fd, a, 0);
    lseek(fd, 1000, SEEK_SET);
    expect(1000, 100); took("read", read(fd, a, 100), a);
    pwrite(fd, a, 0, 0);
    expect(1100, 100); took("read", read(fd, a, 100), a);
}

static void errnos(void) {
    int fd = open("data", O_RDONLY);
    errno = 77;
    expect(0, 10); read(fd, a, 10);
    printf("%d\n", errno);
    read(-1, a, 10);
    printf("%d\n", errno);
    pread(1000000, a, 10, 0);
    printf("%d\n", errno);
    errno = 78; close(fd); printf("%d\n", errno);
    printf("%d %d\n", close(fd), errno);
    printf("%d %d\n", open("nowhere", O_RDONLY), errno);
    printf("%d %d\n", dup(-1), errno);
    errno = 79;
    printf("%d %d\n", posix_fadvise(-1, 0, 0, POSIX_FADV_NORMAL), errno);
    FILE *f = fopen("data", "r"); errno = 80;
    expect(0, 4096); getc(f); printf("%d\n", errno);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "plain")) plain();
    if (!strcmp(what, "ends")) ends();
    if (!strcmp(what, "dups")) dups();
    if (!strcmp(what, "forks")) forks();
    if (!strcmp(what, "borrowed")) borrowed();
    if (!strcmp(what, "copies")) copies();
    if (!strcmp(what, "updates")) updates();
    if (!strcmp(what, "errnos")) errnos();
    return 0;
}
