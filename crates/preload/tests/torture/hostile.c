// Programs that would break a careless observer. Each prints only what does not depend on timing.
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 16
static int fd;
static long total, mixed;
static volatile int stop;

static long add(const char *from, long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) sum += (unsigned char)from[i];
    return sum;
}
static void count(long got, const char *from) {
    __atomic_fetch_add(&total, got, __ATOMIC_RELAXED);
    __atomic_fetch_add(&mixed, add(from, got), __ATOMIC_RELAXED);
}
static void in_threads(void *(*what)(void *), int threads, size_t stack) {
    pthread_t t[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (stack) pthread_attr_setstacksize(&attributes, stack);
    for (long i = 0; i < threads; i++) if (pthread_create(&t[i], &attributes, what, (void *)i)) exit(8);
    for (int i = 0; i < threads; i++) pthread_join(t[i], NULL);
}

// ---- threads -----------------------------------------------------------------------------------------------------------

static void *share_position(void *_) {
    char a[777];
    long got;
    while ((got = read(fd, a, sizeof a)) > 0) count(got, a);
    return NULL;
}
static void *own_offsets(void *me) {
    char a[4096];
    for (long i = (long)me; i < 257; i += THREADS) { long got = pread(fd, a, sizeof a, i * 4096); count(got, a); }
    return NULL;
}
static void *small_stack(void *_) {
    char a[1000], *line = NULL;
    size_t room = 0;
    FILE *f = fopen("data", "r");
    int own = open("data", O_RDONLY);
    for (int i = 0; i < 100; i++) { count(read(own, a, sizeof a), a); long got = getline(&line, &room, f); count(got, line); }
    struct iovec v = {a, 1000};
    count(readv(own, &v, 1), a);
    fclose(f); close(own); free(line);
    return NULL;
}
static void *fork_often(void *_) {
    char a[4096];
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (!child) { _exit(pread(fd, a, 4096, i * 4096) != 4096); }
        int status; waitpid(child, &status, 0);
        count(status, a);
        count(pread(fd, a, 4096, i * 4096), a);
    }
    return NULL;
}

// ---- closing -----------------------------------------------------------------------------------------------------------

static int reads_right(void) {
    char a[5000];
    int own = open("data", O_RDONLY);
    return own >= 0 && read(own, a, 5000) == 5000 && add(a, 7) == add("000000 ", 7) && !close(own);
}
static void close_all(const char *how) {
    char a[100];
    int keep = open("data", O_RDONLY), low = strstr(how, "+") ? 0 : 3;
    read(keep, a, 100);
    int out = fcntl(1, F_DUPFD_CLOEXEC, 900);
    dup2(keep, 500);
    read(500, a, 100);
    if (strstr(how, "loop")) for (int i = low; i < 899; i++) close(i);
    if (strstr(how, "range")) close_range(low, 899, 0);
    if (strstr(how, "cloexec")) close_range(low, 899, CLOSE_RANGE_CLOEXEC);
    if (strstr(how, "from")) { dup2(out, 1); closefrom(low ? 3 : 2); out = 1; }
    int right = 0;
    for (int i = 0; i < 50; i++) right += reads_right();
    dprintf(out, "%d %d\n", right, (int)(read(500, a, 100)));
}

static void *reopen(void *_) {                           // files `data` and `other` are told apart by their bytes
    while (!stop) {
        int a = open("data", O_RDONLY), b = open("other", O_RDONLY);
        dup2(b, 200); dup2(a, 200);
        close(200);
        dup2(a, 200);
        close(a); close(b);
    }
    return NULL;
}
static void *read_racing(void *_) {
    char a[64];
    for (int i = 0; i < 20000; i++) {
        long got = pread(200, a, 64, (i % 200) * 4096);
        if (got < 0 ? errno != EBADF : got != 64) __atomic_fetch_add(&total, 1, __ATOMIC_RELAXED);
        read(200, a, 64);
    }
    return NULL;
}

// ---- another program -----------------------------------------------------------------------------------------------------

static void become(const char *how) {
    char a[4096], *none[] = {NULL}, *it[] = {"true", NULL};
    pid_t child, parent = getpid();
    int own = open("other", O_RDONLY | O_CLOEXEC);
    pread(own, a, 4096, 0);
    pread(fd, a, 4096, 0);
    if (!strcmp(how, "orphan")) {
        if (fork()) _exit(0);
        while (getppid() == parent) usleep(1000);
        execv("/bin/true", it);
    }
    if (!(child = fork())) { execv("/bin/true", it); _exit(1); }
    waitpid(child, NULL, 0);
    if (!(child = vfork())) { execv("/bin/true", it); _exit(1); }
    waitpid(child, NULL, 0);
    execve("/nowhere", it, none);
    pread(fd, a, 4096, 8192);
    if (!strcmp(how, "directly")) syscall(SYS_execve, "/bin/true", it, none);
    execve("/bin/true", it, none);
}

// ---- signals -----------------------------------------------------------------------------------------------------------

static int from_handler;
static sigjmp_buf out_of_read;
static volatile sig_atomic_t may_jump;
static void on_alarm(int _) {
    char a[512];
    int e = errno;
    if (pread(from_handler, a, 512, (rand() % 200) * 4096) != 512) _exit(7);
    if (read(from_handler, a, 1) < 0) _exit(6);
    errno = e;
    if (may_jump) { may_jump = 0; siglongjmp(out_of_read, 1); }
}
static void alarms(int jump) {
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = jump ? SA_NODEFER : SA_RESTART};
    struct itimerval often = {{0, 300}, {0, 300}}, never = {{0, 0}, {0, 0}};
    char a[4096];
    from_handler = open("data", O_RDONLY);
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    for (int round = 0; round < 100; round++) {
        lseek(fd, 0, SEEK_SET);
        lseek(from_handler, 0, SEEK_SET);
        if (jump && sigsetjmp(out_of_read, 1)) continue;
        may_jump = jump;
        for (int i = 0; i < 256; i++) {
            long got = read(fd, a, 4096);
            if (!jump) count(got, a);
            got = pread(fd, a, 4096, i * 4096L);
            if (!jump) count(got, a);
            else if (got != 4096) exit(5);
        }
        may_jump = 0;
    }
    setitimer(ITIMER_REAL, &never, NULL);
}
static void *blocks(void *p) {
    char a[10];
    read(*(int *)p, a, 10);
    return NULL;
}

// ---- sandboxes ---------------------------------------------------------------------------------------------------------

static void raw_exit(int code) { syscall(SYS_exit, code); }
static void strict(void) {
    char a[4096];
    read(fd, a, 4096);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) exit(4);
    for (int i = 0; i < 200; i++) if (read(fd, a, 4096) != 4096) raw_exit(3);
    write(1, "strict\n", 7);
    raw_exit(0);
}
static void filter(int by_syscall) {
    char a[4096];
#define ALLOW(n) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, n, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_pread64), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_exit),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    read(fd, a, 4096);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) exit(4);
    if (by_syscall ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program)
                   : prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) exit(4);
    for (int i = 0; i < 200; i++) if (pread(fd, a, 4096, i * 4096L) != 4096) _exit(3);
    for (int i = 0; i < 200; i++) if (read(fd, a, 4096) != 4096) _exit(3);
    write(1, "filter\n", 7);
    _exit(0);
}
static void holes(void) {                                // vectors of which the kernel can read no more than a part
    char *pages = mmap(NULL, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), a[4096];
    struct iovec *parts = (struct iovec *)pages;
    for (int i = 0; i < 1024; i++) parts[i] = (struct iovec){a + i * 4, 4};
    count(readv(fd, parts, 1024), a);
    munmap(pages + 4096, 4096);
    for (int i = 0; i < 3; i++) { long got = preadv(fd, parts, 1024, 0); printf("%ld %d\n", got, got < 0 ? errno : 0); }
    long got = readv(fd, parts, 1024);
    printf("%ld %d\n", got, got < 0 ? errno : 0);
    got = readv(fd, parts, 200);
    printf("%ld\n", got);
}
static void no_names(const char *how) {                  // the environment may lie where nobody can write
    extern char **environ;
    char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *text = page + 4096, **slots = (char **)page;
    if (!strcmp(how, "empty")) putenv("LD_PRELOAD=");
    else if (!strcmp(how, "text")) {
        for (char **from = environ; *from; from++) { strcpy(text, *from); *from = text; text += strlen(text) + 1; }
        putenv("BOWWAVE_SEGMENT=literal");
    } else {
        for (char **from = environ; *from; from++) { strcpy(text, *from); *slots++ = text; text += strlen(text) + 1; }
        environ = (char **)page;
    }
    mprotect(page, 1 << 20, PROT_READ);
    printf("%d\n", prctl(PR_SET_SECCOMP, 77, 0, 0, 0));
    const char *library = getenv("LD_PRELOAD");
    printf("%d\n", library && strstr(library, "bowwave"));
    fflush(stdout);
    execl("/proc/self/exe", "again", "sum", NULL);
}
static void in_child(void (*what)(int), int argument) {
    fflush(stdout);
    pid_t child = fork();
    if (!child) what(argument);
    int status;
    waitpid(child, &status, 0);
    printf("%x\n", status);
}
static int sandboxed(void *_) {                          // may do what a program does with files, and nothing that we do
    char a[4096];
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_read), ALLOW(SYS_pread64), ALLOW(SYS_openat), ALLOW(SYS_close), ALLOW(SYS_dup3), ALLOW(SYS_exit_group), ALLOW(SYS_exit),
#ifdef SYS_dup2
        ALLOW(SYS_dup2),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(4);
    int own = open("data", O_RDONLY);
    for (int i = 0; i < 50; i++) if (read(own, a, 4096) != 4096) _exit(3);
    for (int i = 0; i < 50; i++) if (pread(fd, a, 4096, i * 4096L) != 4096) _exit(3);
    if (dup2(own, 90) != 90 || pread(90, a, 100, 5) != 100 || close(own) || close(90)) _exit(2);
    _exit(0);
}
static void sandboxed_child(const char *how) {
    static char stack[65536] __attribute__((aligned(16)));
    int status;
    pid_t child = vfork();
    if (!child) { if (!strcmp(how, "vfork")) sandboxed(NULL); _exit(0); }
    waitpid(child, &status, 0);
    printf("%s %x\n", how, status);
    fflush(stdout);
    if (!strcmp(how, "clone")) child = clone(sandboxed, stack + sizeof stack, SIGCHLD, NULL);
    else if (!strcmp(how, "_Fork")) { child = _Fork(); if (!child) sandboxed(NULL); }
    else if (!strcmp(how, "fork")) { child = fork(); if (!child) sandboxed(NULL); }
    else if (!strcmp(how, "syscall")) { child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); if (!child) sandboxed(NULL); }
    else return;
    waitpid(child, &status, 0);
    printf("%x\n", status);
}

static void strict_child(int _) { strict(); }

// ---- when our library is gone --------------------------------------------------------------------------------------------

static void without_library(const char *how) {
    extern char **environ;
    char *again[] = {"again", "sum", NULL}, *copies[1000] = {NULL}, *self = "/proc/self/exe";
    int status = 0;
    pid_t child = 0;
    for (int i = 0; environ[i]; i++) copies[i] = strdup(environ[i]);
    unlink("libbowwave-moved.so");
    if (!strcmp(how, "execve")) execve(self, again, copies);
    else if (!strcmp(how, "execl")) execl(self, "again", "sum", NULL);
    else if (!strcmp(how, "execvp")) execvp(self, again);
    else if (!strcmp(how, "vfork")) { child = vfork(); if (!child) { execv(self, again); _exit(9); } }
    else if (!strcmp(how, "fork")) { child = fork(); if (!child) { execv(self, again); _exit(9); } }
    else if (!strcmp(how, "fork with copies")) { child = fork(); if (!child) { execve(self, again, copies); _exit(9); } }
    else if (!strcmp(how, "spawn")) posix_spawn(&child, self, NULL, NULL, again, copies);
    else status = system("exit 3");
    if (child) waitpid(child, &status, 0);
    printf("%x\n", status);
}

// ---- in step with the test ---------------------------------------------------------------------------------------------

static void tell_and_wait(const char *line) {
    puts(line);
    fflush(stdout);
    getchar();
}
static void read_pages(int from, int pages) {
    char a[4096];
    for (int i = 0; i < pages; i++) read(from, a, sizeof a);
}
static void *fifty_pages(void *_) {
    read_pages(fd, 50);
    return NULL;
}
static void fifty_pages_and_exit(int _) {
    read_pages(fd, 50);
    _exit(0);
}
// Reads pages 0 to 191 in three parts, the second as `who` says, and then the one that the agent wants to hear of.
static void follow(const char *who) {
    read_pages(fd, 1);
    tell_and_wait("met");
    lseek(fd, 0, SEEK_SET);
    read_pages(fd, 256);
    tell_and_wait("mark 192");
    lseek(fd, 0, SEEK_SET);
    read_pages(fd, 100);
    if (!strcmp(who, "thread")) in_threads(fifty_pages, 1, 0);
    else if (!strcmp(who, "dup")) read_pages(dup(fd), 50);
    else if (!strcmp(who, "fork")) in_child(fifty_pages_and_exit, 0);
    else read_pages(fd, 50);
    read_pages(fd, 43);
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    char a[4096];
    fd = open("data", O_RDONLY);
    if (!strcmp(what, "twice")) {
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < 257; i++) { pread(fd, a, 4096, i * 4096L); if (!round && i < 50) usleep(2000); }
            usleep(50000);
        }
        return 0;
    } else if (!strcmp(what, "again_pread") || !strcmp(what, "again_read")) {
        int by_position = !strcmp(what, "again_read");
        for (int round = 0; round < 4; round++) {
            lseek(fd, 0, SEEK_SET);
            for (int i = 0; i < 256; i++) {
                if (by_position) read(fd, a, 4096); else pread(fd, a, 4096, i * 4096L);
                if (!round && !i) tell_and_wait("met");
            }
            tell_and_wait(round < 2 ? "harvest" : "leave");
        }
        return 0;
    } else if (!strcmp(what, "follow")) {
        follow(argv[2]);
        return 0;
    } else if (!strcmp(what, "advice")) {
        printf("%d\n", posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
        printf("%d\n", posix_fadvise(fd, 4096, 8192, POSIX_FADV_WILLNEED));
        printf("%zd\n", readahead(fd, 65536, 4096));
        printf("%d\n", posix_fadvise(fd, 4096, 8192, 77));
    } else if (!strcmp(what, "ignored")) {
        char *page = aligned_alloc(4096, 4096);
        close(fd);
        fd = open("small", O_RDONLY); count(read(fd, a, 4096), a); close(fd);
        fd = open("data", O_RDONLY | O_DIRECT);
        if (fd >= 0) { count(read(fd, page, 4096), page); count(pread(fd, page, 4096, 8192), page); close(fd); }
        fd = open("data", O_RDONLY); fcntl(fd, F_SETFL, O_DIRECT);
        if (fcntl(fd, F_GETFL) & O_DIRECT) count(read(fd, page, 4096), page);
        fd = open("/proc/self/status", O_RDONLY); read(fd, a, 100); close(fd);
        fd = open("/dev/zero", O_RDONLY); count(read(fd, a, 100), a); close(fd);
        fd = open(".", O_RDONLY | O_DIRECTORY); count(read(fd, a, 100) < 0, "x"); close(fd);
        fd = open("data", O_PATH); count(pread(fd, a, 100, 0) < 0, "x"); close(fd);
    } else if (!strcmp(what, "threads")) {
        in_threads(share_position, THREADS, 0);
        in_threads(own_offsets, THREADS, 0);
    } else if (!strcmp(what, "stacks")) {
        in_threads(small_stack, THREADS, 65536);
        in_threads(small_stack, THREADS, 16384);
    } else if (!strcmp(what, "fork_threads")) {
        in_threads(fork_often, 8, 0);
    } else if (!strncmp(what, "close", 5)) {
        close_all(what + 5);
    } else if (!strcmp(what, "become")) {
        become(argv[2]);
    } else if (!strcmp(what, "race")) {
        pthread_t t;
        dup2(fd, 200);
        pthread_create(&t, NULL, reopen, NULL);
        in_threads(read_racing, 4, 0);
        stop = 1;
        pthread_join(t, NULL);
        printf("%d\n", reads_right());
    } else if (!strcmp(what, "alarm")) {
        alarms(0);
    } else if (!strcmp(what, "jump")) {
        alarms(1);
        lseek(fd, 100, SEEK_SET); count(read(fd, a, 4096), a);
    } else if (!strcmp(what, "cancel")) {
        for (int i = 0; i < 20; i++) {
            int p[2]; pthread_t t; void *result;
            if (pipe(p)) return 9;
            pthread_create(&t, NULL, blocks, &p[0]);
            usleep(1000);
            pthread_cancel(t); pthread_join(t, &result);
            total += result == PTHREAD_CANCELED;
        }
    } else if (!strcmp(what, "seccomp")) {
        in_child(strict_child, 0);
        in_child(filter, 0);
        in_child(filter, 1);
        count(read(fd, a, 4096), a);
        strict();
    } else if (!strcmp(what, "holes")) {
        holes();
    } else if (!strcmp(what, "no_names")) {
        count(read(fd, a, 4096), a);
        no_names(argv[2]);
    } else if (!strcmp(what, "sandboxed")) {
        count(read(fd, a, 4096), a);
        sandboxed_child(argv[2]);
        for (int i = 0; i < 50; i++) count(read(fd, a, 4096), a);
        printf("%d\n", reads_right());
    } else if (!strcmp(what, "probe")) {                 // asks what seccomp can do, and goes on as before
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL);
        printf("E 0 4096\n"); count(read(fd, a, 4096), a);
    } else if (!strcmp(what, "chroot")) {
        count(read(fd, a, 4096), a);
        if (chroot(argv[2]) || chdir("/")) { printf("not permitted\n"); return 0; }
        count(read(fd, a, 4096), a);
        printf("%ld %ld %s\n", total, mixed, getenv("LD_PRELOAD") ? "set" : "unset");
        fflush(stdout);
        execl("/program", "program", "sum", NULL);
        return 9;
    } else if (!strcmp(what, "sum")) {
        long got;
        while ((got = read(fd, a, 4096)) > 0) count(got, a);
    } else if (!strcmp(what, "exec")) {
        printf("E 0 1000\n"); count(read(fd, a, 1000), a);
        dup2(fd, 0);
        printf("E 1000 500\nE 1500 500\n%ld\n", mixed);
        fflush(stdout);
        execl("/proc/self/exe", "again", "stdin", NULL);
    } else if (!strcmp(what, "stdin")) {
        count(read(0, a, 500), a);
        count(read(0, a, 500), a);
    } else if (!strcmp(what, "huge")) {
        struct rlimit limit = {200000, 200000};
        if (setrlimit(RLIMIT_NOFILE, &limit)) { printf("not permitted\n"); return 0; }
        int high = fcntl(fd, F_DUPFD, 65535), higher = fcntl(fd, F_DUPFD, 150000);
        count(read(high, a, 100), a); count(read(higher, a, 100), a); count(pread(higher, a, 100, 70000), a);
        printf("%d %d %d\n", high, higher, close(higher) || close(high) || read(higher, a, 1) != -1);
    } else if (!strcmp(what, "far")) {                   // descriptors that a program with few files never has
        struct rlimit limit = {20000, 20000};
        if (setrlimit(RLIMIT_NOFILE, &limit)) { printf("not permitted\n"); return 0; }
        for (int i = 0; i < 5000; i++) dup(0);
        for (int i = 0; i < 10; i++) {
            int high = i % 2 ? open("data", O_RDONLY) : fcntl(fd, F_DUPFD, 10000 + i);
            lseek(high, 100 * i, SEEK_SET);
            count(read(high, a, 100), a); count(pread(high, a, 100, 70000 + i), a);
            printf("E %d 100\nE %d 100\n", 100 * i, 70000 + i);
            if (i % 3) close(high);
        }
    } else if (!strcmp(what, "without_library")) {
        without_library(argv[2]);
    } else if (!strcmp(what, "many")) {
        for (int i = 0; i < 40000; i++) count(pread(fd, a, 100, (i * 7919L) % 1000000), a);
    } else if (!strcmp(what, "dying")) {                 // the agent dies when it sees the file `now`
        count(read(fd, a, 4096), a);
        int made = open("now", O_CREAT | O_WRONLY, 0600);
        close(made);
        while (!access("now", F_OK)) usleep(1000);
        for (int i = 0; i < 100; i++) count(read(fd, a, 4096), a);
    } else if (!strcmp(what, "grow")) {
        int out = open("growing", O_CREAT | O_RDWR | O_APPEND, 0600), in;
        memset(a, 'x', 4096);
        for (int i = 0; i < 10; i++) write(out, a, 4096);
        in = open("growing", O_RDONLY);
        for (int i = 0; i < 20; i++) { write(out, a, 4096); count(read(in, a, 4096), a); count(pread(out, a, 10, i * 4096 + 4090), a); }
        ftruncate(out, 100);
        lseek(in, 0, SEEK_SET); count(read(in, a, 4096), a);
    }
    printf("%ld %ld\n", total, mixed);
    return 0;
}
